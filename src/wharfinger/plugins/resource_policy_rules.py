"""What a ResourcePolicy says, read and compiled: whom it governs, how its pods are grouped, and which nodes are in which
units. Knows single pods and nodes by their labels only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from wharfinger.api.fields import describe
from wharfinger.api.kinds.resource_policy import KIND, PREFER
from wharfinger.api.selectors import Requirements, matches
from wharfinger.api.views import ObjectMeta, Pod, view
from wharfinger.api.views.resource_policy import ResourcePolicy
from wharfinger.plugins.resource_policy_charges import Order, Units

Signature = tuple[str | None, ...]
"""A pod's values for the keys that split governed pods into groups; None for a label it does not have."""

OUTSIDE = -1
"""Stands for the priority of a node in no unit: below all units, whose least is 0."""


class BadPolicy(ValueError):
    """The object is not a valid ResourcePolicy, so it is ignored; the message names every fault with its path."""


@dataclass(frozen=True, slots=True)
class Unit:
    name: str
    priority: int
    max_count: int | None
    nodes: Requirements


@dataclass(frozen=True)
class Rules:
    namespace: str
    name: str
    pods: Requirements
    keys: tuple[str, ...]
    ignore_terminating: bool
    prefer: bool  # whether nodes of no unit may be used at all
    units: tuple[Unit, ...]

    def governs(self, labels: Mapping[str, str]) -> bool:
        """Whether a pod of the policy's namespace is governed."""
        return matches(self.pods, labels)

    def counts(self, pod: Pod) -> bool:
        """Whether a governed pod on a node takes a place in its unit."""
        return not pod.terminal and not (self.ignore_terminating and pod.terminating)

    def signature(self, labels: Mapping[str, str]) -> Signature:
        return tuple(labels.get(key) for key in self.keys)

    @cached_property
    def preference(self) -> Units:
        """All units, the highest priority first, equal ones as listed."""
        return tuple(sorted(range(len(self.units)), key=lambda index: -self.units[index].priority))

    def units_of(self, labels: Mapping[str, str]) -> Units:
        """The units of a node with these labels, the preferred one first."""
        return tuple(index for index in self.preference if matches(self.units[index].nodes, labels))

    def preferred(self, units: Iterable[int]) -> Units:
        """The same units in order of preference."""
        wanted = frozenset(units)
        return tuple(index for index in self.preference if index in wanted)

    def priority(self, unit: int | None) -> int:
        return OUTSIDE if unit is None else self.units[unit].priority


def read(document: Mapping[str, Any]) -> Rules:
    """Raises BadPolicy."""
    assert KIND.default is not None
    assert KIND.validate is not None
    copy = deepcopy({key: value for key, value in document.items() if key != "status"})
    KIND.default(copy)
    if errors := KIND.validate(copy, None):
        raise BadPolicy(describe(list(errors)))
    policy = view(copy, ResourcePolicy)
    spec = policy.spec
    return Rules(
        policy.metadata.namespace,
        policy.metadata.name,
        spec.pod_selector.compile(),
        spec.match_label_keys,
        spec.match_policy.ignore_terminating_pod,
        spec.strategy == PREFER,
        tuple(Unit(each.name, each.priority, each.max_count, each.node_selector.compile()) for each in spec.units),
    )


def order(metadata: ObjectMeta) -> Order:
    return metadata.creation_timestamp, metadata.uid, metadata.name
