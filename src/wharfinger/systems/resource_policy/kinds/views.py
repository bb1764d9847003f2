"""The typed view of a ResourcePolicy."""

from __future__ import annotations

from msgspec import field

from wharfinger.api.selectors import LabelSelector
from wharfinger.api.views.base import View
from wharfinger.api.views.meta import Condition, ObjectView
from wharfinger.api.views.pods import Quantities


class MatchPolicy(View, frozen=True):
    ignore_terminating_pod: bool = False


class Unit(View, frozen=True):
    name: str = ""
    priority: int = 0
    max_count: int | None = None  # None: unlimited
    max_percent: int | None = None  # of the pods in the group
    max_resources: Quantities = field(default_factory=dict)
    node_selector: LabelSelector = LabelSelector()  # empty: every node


class WhenTryNextUnits(View, frozen=True):
    policy: str = "LackResourceOrExceedMax"
    timeout: str = ""


class ResourcePolicySpec(View, frozen=True):
    units: tuple[Unit, ...] = ()
    pod_selector: LabelSelector = LabelSelector()  # empty: every pod of the namespace
    match_label_keys: tuple[str, ...] = ()
    match_policy: MatchPolicy = MatchPolicy()
    strategy: str = "required"
    when_try_next_units: WhenTryNextUnits = WhenTryNextUnits()


class UnitStatus(View, frozen=True):
    name: str = ""
    count: int = 0


class ResourcePolicyStatus(View, frozen=True):
    conditions: tuple[Condition, ...] = ()
    units: tuple[UnitStatus, ...] = ()
    summary: str = ""


class ResourcePolicy(ObjectView, frozen=True):
    spec: ResourcePolicySpec = field(default_factory=ResourcePolicySpec)
    status: ResourcePolicyStatus = field(default_factory=ResourcePolicyStatus)
