"""A compiled ResourcePolicy: which pods it governs, how they are grouped, and which nodes are in which units. Works on
the labels of single pods and nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

import msgspec

from wharfinger.api.fields import describe
from wharfinger.api.groups import SIGS
from wharfinger.api.resources import in_units, nano, requests
from wharfinger.api.selectors import Requirements, matches
from wharfinger.api.times import parse_duration
from wharfinger.api.views import ObjectMeta, Pod, view
from wharfinger.systems.resource_policy.kinds.resource_policy import EXCEED_MAX, KIND, PREFER, TIMEOUT_OR_EXCEED_MAX
from wharfinger.systems.resource_policy.kinds.views import ResourcePolicy
from wharfinger.systems.resource_policy.plugin.charges import Order, Units
from wharfinger.systems.resource_policy.plugin.sized import NOTHING, Limit, Size
from wharfinger.systems.resource_policy.rules.wording import maximum

Signature = tuple[str | None, ...]
"""A pod's values for the matchLabelKeys, which determine its group; None for a label the pod lacks."""

NEXT_UNITS = f"{SIGS}/next-units"
"""Annotation on a waiting pod: how many more priorities it may use. Set by the controller when timeouts pass."""

OUTSIDE = -1
"""The priority of nodes outside all units, below that of any unit."""


class BadPolicy(ValueError):
    """The ResourcePolicy is invalid and is ignored. The message lists every fault with its path."""


class CompiledUnit(msgspec.Struct, frozen=True):
    name: str
    priority: int
    limit: Limit
    nodes: Requirements
    maximum: str = ""  # the limits in words


class Waiting(Enum):
    """When a pod may use units of the next lower priority."""

    NO_NODE = "LackResourceOrExceedMax"  # when no node of the previous units fits
    FULL = EXCEED_MAX  # only when the previous units are full
    FULL_OR_TIME = TIMEOUT_OR_EXCEED_MAX


@dataclass(frozen=True)
class PolicyRules:
    namespace: str
    name: str
    pods: Requirements
    keys: tuple[str, ...]
    ignore_terminating: bool
    prefer: bool  # nodes outside all units may be used, last
    units: tuple[CompiledUnit, ...]
    waiting: Waiting = Waiting.NO_NODE
    timeout: float = 0.0  # seconds to wait at each priority, with FULL_OR_TIME

    def governs(self, labels: Mapping[str, str]) -> bool:
        """Whether a pod of the policy's namespace is governed."""
        return matches(self.pods, labels)

    def counts(self, pod: Pod) -> bool:
        """Whether a governed pod on a node counts towards its unit."""
        return not pod.terminal and not (self.ignore_terminating and pod.terminating)

    def place(self, pod: Pod) -> tuple[Signature, Size] | None:
        """The group and the size of the place that a pod on a node takes; None if it takes none."""
        labels = pod.metadata.labels
        if not self.governs(labels) or not self.counts(pod):
            return None
        return self.signature(labels), self.size(requests(pod)) if self.sized else NOTHING

    def signature(self, labels: Mapping[str, str]) -> Signature:
        return tuple(labels.get(key) for key in self.keys)

    @cached_property
    def sized(self) -> bool:
        """Whether a unit has a limit other than a number of pods."""
        return any(unit.limit.percent is not None or unit.limit.resources for unit in self.units)

    @property
    def grows(self) -> bool:
        """Whether adding a pod may open units to others, by filling a previous unit or by raising a percentage limit."""
        return self.waiting is not Waiting.NO_NODE or any(unit.limit.percent is not None for unit in self.units)

    def size(self, requested: Mapping[str, int]) -> Size:
        """The part of a pod's requests that limits apply to."""
        if not self.sized:
            return NOTHING
        names = {name for unit in self.units for name in unit.limit.resources}
        return {name: requested[name] for name in names if requested.get(name)}

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """All priorities, highest first, including that of nodes outside all units if those may be used."""
        priorities = {unit.priority for unit in self.units} | ({OUTSIDE} if self.prefer else set())
        return tuple(sorted(priorities, reverse=True))

    @cached_property
    def preference(self) -> Units:
        """All units by descending priority; ties keep the order of the list."""
        return tuple(sorted(range(len(self.units)), key=lambda index: -self.units[index].priority))

    def units_of(self, labels: Mapping[str, str]) -> Units:
        """The units of a node with these labels, most preferred first."""
        return tuple(index for index in self.preference if matches(self.units[index].nodes, labels))

    def preferred(self, units: Iterable[int]) -> Units:
        """The units in order of preference."""
        wanted = frozenset(units)
        return tuple(index for index in self.preference if index in wanted)

    def priority(self, unit: int | None) -> int:
        return OUTSIDE if unit is None else self.units[unit].priority


def read(document: Mapping[str, Any]) -> PolicyRules:
    """Validate and compile a policy. Raises BadPolicy."""
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
                maximum(each.max_count, each.max_percent, each.max_resources),
            )
            for each in spec.units
        ),
        Waiting(spec.when_try_next_units.policy),
        parse_duration(spec.when_try_next_units.timeout) if spec.when_try_next_units.timeout else 0.0,
    )


def further(annotations: Mapping[str, str]) -> int:
    """How many priorities below the first one with room a pod may use, because it has waited."""
    text = annotations.get(NEXT_UNITS, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def order(metadata: ObjectMeta) -> Order:
    return metadata.creation_timestamp, metadata.uid, metadata.name
