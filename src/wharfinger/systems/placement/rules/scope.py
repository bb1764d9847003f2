"""The cluster sets that a Placement can select from: those bound to its namespace, or the subset that it names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from wharfinger.systems.placement.kinds.views import ManagedClusterSet
from wharfinger.systems.placement.rules.selectors import BadClusterSelector, Selector, compile_set


class EligibleSets(msgspec.Struct, frozen=True):
    """`bound`: whether the namespace has any valid binding; `sets`: the names of the eligible sets."""

    bound: bool = False
    sets: tuple[str, ...] = ()
    selectors: tuple[Selector, ...] = ()


def compile_sets(cluster_sets: Iterable[ManagedClusterSet]) -> tuple[dict[str, Selector], dict[str, str]]:
    """The member selector of each set, and the errors of sets with an invalid selector, which have no members."""
    selectors, faults = {}, {}
    for cluster_set in cluster_sets:
        name = cluster_set.metadata.name
        try:
            selectors[name] = compile_set(cluster_set)
        except BadClusterSelector as error:
            selectors[name], faults[name] = Selector(never=True), str(error)
    return selectors, faults


def scope_of(requested: Iterable[str], bindings: Iterable[str], sets: Mapping[str, Selector]) -> EligibleSets:
    """A binding is valid if its set exists, regardless of its condition."""
    valid = sorted({name for name in bindings if name in sets})
    wanted = set(requested)
    eligible = tuple(name for name in valid if not wanted or name in wanted)
    return EligibleSets(bool(valid), eligible, tuple(sets[name] for name in eligible))
