"""From where a Placement may choose: the cluster sets bound to its namespace, narrowed to those it names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from wharfinger.systems.placement.kinds.views import ManagedClusterSet
from wharfinger.systems.placement.rules.selectors import BadClusterSelector, Selector, compile_set


@dataclass(frozen=True, slots=True)
class EligibleSets:
    """`bound` tells whether the namespace has any valid binding; `sets` are the eligible sets' names."""

    bound: bool = False
    sets: tuple[str, ...] = ()
    selectors: tuple[Selector, ...] = ()


def compile_sets(cluster_sets: Iterable[ManagedClusterSet]) -> tuple[dict[str, Selector], dict[str, str]]:
    """Who belongs to each set; and the faults of sets whose selector is invalid, which have no members."""
    selectors, faults = {}, {}
    for cluster_set in cluster_sets:
        name = cluster_set.metadata.name
        try:
            selectors[name] = compile_set(cluster_set)
        except BadClusterSelector as error:
            selectors[name], faults[name] = Selector(never=True), str(error)
    return selectors, faults


def scope_of(requested: Iterable[str], bindings: Iterable[str], sets: Mapping[str, Selector]) -> EligibleSets:
    """A binding counts when its set exists, whatever its condition says."""
    valid = sorted({name for name in bindings if name in sets})
    wanted = set(requested)
    eligible = tuple(name for name in valid if not wanted or name in wanted)
    return EligibleSets(bool(valid), eligible, tuple(sets[name] for name in eligible))
