"""What a ResourcePolicy says, read and compiled: whom it governs, how its pods are grouped, and which nodes are in which
units. Knows single pods and nodes by their labels only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

from wharfinger.api.fields import describe
from wharfinger.api.groups import SIGS
from wharfinger.api.resources import in_units, nano
from wharfinger.api.selectors import Requirements, matches
from wharfinger.api.times import parse_duration
from wharfinger.api.views import ObjectMeta, Pod, view
from wharfinger.systems.resource_policy.kinds.resource_policy import EXCEED_MAX, KIND, PREFER, TIMEOUT_OR_EXCEED_MAX
from wharfinger.systems.resource_policy.kinds.views import ResourcePolicy
from wharfinger.systems.resource_policy.plugin.charges import Order, Units
from wharfinger.systems.resource_policy.plugin.sized import NOTHING, Limit, Size

Signature = tuple[str | None, ...]
"""A pod's values for the keys that split governed pods into groups; None for a label it does not have."""

NEXT_UNITS = f"{SIGS}/next-units"
"""On a pod that waits: how many priorities further it may go. The controller writes it, which knows the time."""

OUTSIDE = -1
"""Stands for the priority of a node in no unit: below all units, whose least is 0."""


class BadPolicy(ValueError):
    """The object is not a valid ResourcePolicy, so it is ignored; the message names every fault with its path."""


@dataclass(frozen=True, slots=True)
class CompiledUnit:
    name: str
    priority: int
    limit: Limit
    nodes: Requirements


class Waiting(Enum):
    """When a pod goes on to units of the next lower priority."""

    NO_NODE = "LackResourceOrExceedMax"  # when no node before can take it
    FULL = EXCEED_MAX  # only when the units before are full
    FULL_OR_TIME = TIMEOUT_OR_EXCEED_MAX


@dataclass(frozen=True)
class PolicyRules:
    namespace: str
    name: str
    pods: Requirements
    keys: tuple[str, ...]
    ignore_terminating: bool
    prefer: bool  # whether nodes of no unit may be used at all
    units: tuple[CompiledUnit, ...]
    waiting: Waiting = Waiting.NO_NODE
    timeout: float = 0.0  # seconds that each priority is waited for, with FULL_OR_TIME

    def governs(self, labels: Mapping[str, str]) -> bool:
        """Whether a pod of the policy's namespace is governed."""
        return matches(self.pods, labels)

    def counts(self, pod: Pod) -> bool:
        """Whether a governed pod on a node takes a place in its unit."""
        return not pod.terminal and not (self.ignore_terminating and pod.terminating)

    def signature(self, labels: Mapping[str, str]) -> Signature:
        return tuple(labels.get(key) for key in self.keys)

    @cached_property
    def sized(self) -> bool:
        """Whether some unit is limited by more than a number of pods."""
        return any(unit.limit.percent is not None or unit.limit.resources for unit in self.units)

    @property
    def grows(self) -> bool:
        """Whether a pod that comes may open units to others: by filling one before, or as part of a percentage."""
        return self.waiting is not Waiting.NO_NODE or any(unit.limit.percent is not None for unit in self.units)

    def size(self, requests: Mapping[str, int]) -> Size:
        """What limits need to know of what a pod asks for."""
        if not self.sized:
            return NOTHING
        names = {name for unit in self.units for name in unit.limit.resources}
        return {name: requests[name] for name in names if requests.get(name)}

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """The priorities, the highest first, with that of nodes of no unit where they may be used."""
        priorities = {unit.priority for unit in self.units} | ({OUTSIDE} if self.prefer else set())
        return tuple(sorted(priorities, reverse=True))

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


def read(document: Mapping[str, Any]) -> PolicyRules:
    """Raises BadPolicy."""
    assert KIND.default is not None
    assert KIND.validate is not None
    copy = deepcopy({key: value for key, value in document.items() if key != "status"})
    KIND.default(copy)
    if errors := KIND.validate(copy, None):
        raise BadPolicy(describe(list(errors)))
    policy = view(copy, ResourcePolicy)
    spec = policy.spec
    return PolicyRules(
        policy.metadata.namespace,
        policy.metadata.name,
        spec.pod_selector.compile(),
        spec.match_label_keys,
        spec.match_policy.ignore_terminating_pod,
        spec.strategy == PREFER,
        tuple(
            CompiledUnit(
                each.name,
                each.priority,
                Limit(each.max_count, each.max_percent, in_units(nano(each.max_resources))),
                each.node_selector.compile(),
            )
            for each in spec.units
        ),
        Waiting(spec.when_try_next_units.policy),
        parse_duration(spec.when_try_next_units.timeout) if spec.when_try_next_units.timeout else 0.0,
    )


def further(annotations: Mapping[str, str]) -> int:
    """How many priorities further than the first with room a pod may go, for having waited."""
    text = annotations.get(NEXT_UNITS, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def order(metadata: ObjectMeta) -> Order:
    return metadata.creation_timestamp, metadata.uid, metadata.name
