"""NodeResourcesFit: a node must have the resources that the pod requests; scores by how full the node would be."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import partial
from typing import Any, Self

import msgspec
import numpy as np

from wharfinger.api.fields import FieldError, forbidden, invalid, not_supported, required
from wharfinger.api.kubernetes_version import KubernetesVersion
from wharfinger.api.names import qualified_name
from wharfinger.api.quantity import milli_value, value
from wharfinger.api.resources import CPU, EPHEMERAL_STORAGE, MEMORY, requests
from wharfinger.api.validation.resources import is_unqualified
from wharfinger.api.views import Node, Pod
from wharfinger.devices.classes import IMPLICIT_PREFIX, DeviceClasses
from wharfinger.framework.columns import Bools, Ints, Rows
from wharfinger.framework.events import NODE, POD, Action, Hint, WakeUp
from wharfinger.framework.explaining import AskedAmount
from wharfinger.framework.node_table import PODS, is_scalar
from wharfinger.framework.plugin import Args, Plugin, Prepared, RowFunctions, Scope
from wharfinger.framework.shapes import Shape
from wharfinger.framework.simulation import Simulation
from wharfinger.framework.status import Code, Status
from wharfinger.framework.tables import Tables
from wharfinger.plugins.dynamic_resources.catalogue import CLASS, catalogue_of
from wharfinger.plugins.node_resources.jointly import JointFit
from wharfinger.plugins.node_resources.scoring import (
    Least,
    ScoringStrategy,
    key_of,
    scorer,
    shape_faults,
    weight_faults,
)

_ORDER = (CPU, MEMORY, EPHEMERAL_STORAGE)
_STRATEGIES = ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")


class NodeResourcesFitArgs(Args, frozen=True):
    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
    scoring_strategy: ScoringStrategy = ScoringStrategy()

    def faults(self, kubernetes: KubernetesVersion) -> list[FieldError]:
        found = []
        for index, name in enumerate(self.ignored_resources):
            found += [invalid(f"ignoredResources[{index}]", name, fault) for fault in qualified_name(name)]
        for index, group in enumerate(self.ignored_resource_groups):
            path = f"ignoredResourceGroups[{index}]"
            if "/" in group:
                found.append(invalid(path, group, "resource group name can't contain '/'"))
            found += [invalid(path, group, fault) for fault in qualified_name(group)]
        strategy, path = self.scoring_strategy, "scoringStrategy"
        if strategy.type not in _STRATEGIES:
            found.append(not_supported(f"{path}.type", strategy.type, _STRATEGIES))
        found += weight_faults(strategy.resources, f"{path}.resources")
        ratio = strategy.requested_to_capacity_ratio
        if strategy.type == "RequestedToCapacityRatio":
            if ratio is None:
                detail = "must be specified when type is RequestedToCapacityRatio"
                found.append(required(f"{path}.requestedToCapacityRatio", detail))
            else:
                found += shape_faults(ratio.shape, f"{path}.requestedToCapacityRatio.shape")
        elif ratio is not None:
            detail = "must be nil when type is not RequestedToCapacityRatio"
            found.append(forbidden(f"{path}.requestedToCapacityRatio", detail))
        return found


class NodeResourcesFit(Plugin):
    name = "NodeResourcesFit"
    points = frozenset({"preFilter", "filter", "preScore", "score"})
    position = 80
    args_type = NodeResourcesFitArgs
    kinds = (CLASS,)

    def __init__(self, tables: Tables, args: NodeResourcesFitArgs) -> None:
        super().__init__(tables, args)
        self._devices = catalogue_of(tables)

    def observe(self, kind: str, old: Any, new: Any) -> None:
        self._devices.observe(kind, old, new)

    def prepare(self, shape: Shape) -> Prepared | Status | None:
        return _Fit(self.tables, shape, self.args, self._handled, self._devices.classes)

    @property
    def _handled(self) -> frozenset[str]:
        """Resources whose fit another plugin of this profile decides."""
        return self.tables.handled if self.handlers else frozenset()

    def wake_ups(self) -> tuple[WakeUp, ...]:
        return (
            WakeUp(POD, Action.DELETE | Action.UPDATE_POD_SCALE_DOWN, _room_made),
            WakeUp(NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE, self._node_has_room),
            WakeUp(CLASS, Action.ADD | Action.UPDATE, _class_serves),
            *self._of_handlers(),
        )

    def _of_handlers(self) -> Iterator[WakeUp]:
        """What another plugin decides now may have been refused here before, when nothing said that it is its part."""
        for plugin in self.handlers:
            for each in plugin.wake_ups():
                yield msgspec.structs.replace(each, hint=partial(_hands_over, plugin, each.hint))

    def _node_has_room(self, pod: Pod, old: Any, new: Any) -> bool:
        return _node_has_room(pod, old, new, self._handled, self._devices.classes)


class _Fit(Prepared):
    """Codes are bit sets: bit 0 if evictions cannot help, bit 1 for too many pods, then one bit for each resource.

    A resource that a device class serves is left to DynamicResources on nodes that have none of it themselves.
    """

    scope = Scope.ROW
    filters = scores = bounded = True

    def __init__(
        self,
        tables: Tables,
        shape: Shape,
        args: NodeResourcesFitArgs,
        handled: frozenset[str] = frozenset(),
        classes: DeviceClasses | None = None,
    ) -> None:
        super().__init__()
        self._tables = tables
        amounts = shape.requests
        # An unqualified name is that of a device class: no node has such a resource, so without a plugin that handles
        # classes the pod waits.
        scalars = sorted(name for name in amounts if name not in _ORDER and (is_scalar(name) or is_unqualified(name)))
        names = [
            name
            for name in (*_ORDER, *scalars)
            if amounts.get(name, 0) > 0 and name not in handled and not _ignored(name, args)
        ]
        self._names = names
        served = [name for name in names if classes and classes.serving(name) is not None]
        self._served = frozenset(tables.resource(name) for name in served)  # by device classes
        self._wanted = [
            (2 << index + 1, tables.allocatable[number], tables.requested[number], amounts[name], number)
            for index, name in enumerate(names)
            for number in (tables.resource(name),)
        ]
        self._score = scorer(tables, shape, args.scoring_strategy)
        self._known: dict[int, Status] = {}

    def filter(self, rows: Rows) -> Ints:
        tables = self._tables
        codes = np.where(tables.pod_count.take(rows) >= tables.pod_limit.take(rows), 2, 0)
        for bit, has, used, amount, number in self._wanted:
            allocatable = has.take(rows)
            short = allocatable - used.take(rows) < amount
            if number in self._served:
                short &= allocatable > 0
            if short.any():
                codes |= np.where(short, np.where(allocatable < amount, bit | 1, bit), 0)
        return codes

    def accepts(self, rows: Rows) -> Bools:
        found: Bools = self._tables.pod_count.take(rows) < self._tables.pod_limit.take(rows)
        for _, has, used, amount, number in self._wanted:
            free = has.take(rows)
            free -= used.take(rows)
            enough = free >= amount
            found &= enough | (has.take(rows) <= 0) if number in self._served else enough
        return found

    def filter_row(self, row: int, simulation: Simulation | None = None) -> int:
        tables = self._tables
        if simulation is None:
            code = 2 if tables.pod_count.cells[row] >= tables.pod_limit.cells[row] else 0
            for bit, has, used, amount, number in self._wanted:
                allocatable = has.cells[row]
                if allocatable - used.cells[row] < amount and (allocatable > 0 or number not in self._served):
                    code |= bit | 1 if allocatable < amount else bit
            return code
        code = 2 if tables.pod_count.cells[row] + simulation.pods >= tables.pod_limit.cells[row] else 0
        imagined = simulation.requested
        for bit, has, used, amount, number in self._wanted:
            allocatable = has.cells[row]
            if allocatable - used.cells[row] - imagined.get(number, 0) < amount and (
                allocatable > 0 or number not in self._served
            ):
                code |= bit | 1 if allocatable < amount else bit
        return code

    def row_functions(self) -> RowFunctions:
        count, limit = self._tables.pod_count.cells, self._tables.pod_limit.cells
        wanted = [(has.cells, used.cells, amount) for _, has, used, amount, _ in self._wanted]
        if self._served:
            return RowFunctions(self.filter_row, self._score.row_scorer())

        def refuses(row: int) -> bool:
            if count[row] >= limit[row]:
                return True
            for has, used, amount in wanted:  # noqa: SIM110  (a generator would double the cost)
                if has[row] - used[row] < amount:
                    return True
            return False

        requested = [used for _, _, used, _, _ in self._wanted]
        inputs = [self._tables.pod_count, *requested, *(each.requested for each in self._score.used)]
        return RowFunctions(refuses, self._score.row_scorer(), inputs)

    def joint_key(self) -> Hashable | None:
        if self._served or not isinstance(self._score, Least) or not self._score.used:
            return None
        return tuple(number for *_, number in self._wanted), key_of(self._score.used)

    @classmethod
    def jointly(cls, answers: Sequence[Self]) -> JointFit:
        wanted = [
            (has, used, [each._wanted[index][3] for each in answers])
            for index, (_, has, used, _, _) in enumerate(answers[0]._wanted)
        ]
        return JointFit(answers[0]._tables, [each._score.used for each in answers], wanted)

    def status(self, code: int) -> Status:
        found = self._known.get(code)
        if found is None:
            reasons = ["Too many pods"] if code & 2 else []
            reasons += [
                f"Insufficient {name}" for name, (bit, *_) in zip(self._names, self._wanted, strict=True) if code & bit
            ]
            found = self._known[code] = Status(Code.UNRESOLVABLE if code & 1 else Code.UNSCHEDULABLE, tuple(reasons))
        return found

    def amounts(self, row: int, simulation: Simulation | None = None) -> list[AskedAmount]:
        imagined = {} if simulation is None else simulation.requested
        found = []
        for name, (_, has, used, amount, number) in zip(self._names, self._wanted, strict=True):
            free = has.cells[row] - used.cells[row] - imagined.get(number, 0)
            found.append(AskedAmount(name, amount, int(free)))
        tables, others = self._tables, 0 if simulation is None else simulation.pods
        found.append(AskedAmount(PODS, 1, int(tables.pod_limit.cells[row] - tables.pod_count.cells[row] - others)))
        return found

    def score(self, rows: Rows) -> Ints:
        return self._score.score(rows)

    def score_row(self, row: int) -> int:
        return self._score.score_row(row)


def _ignored(name: str, args: NodeResourcesFitArgs) -> bool:
    extended = "/" in name and "kubernetes.io/" not in name
    return extended and (name in args.ignored_resources or name.split("/")[0] in args.ignored_resource_groups)


def _room_made(pod: Pod, old: Any, new: Any) -> bool:
    if new is None:
        return bool(old.spec.node_name or old.status.nominated_node_name)
    if pod.metadata.uid == new.metadata.uid:
        return True
    if not new.spec.node_name:
        return False
    before, after = requests(old), requests(new)
    return any(amount and before.get(name, 0) > after.get(name, 0) for name, amount in requests(pod).items())


def _class_serves(pod: Pod, old: Any, new: Any) -> bool:
    """Whether a new or changed device class may serve a resource that the pod requests."""
    now = (new.get("spec") or {}).get("extendedResourceName")
    wanted = requests(pod)
    if old is None:
        return f"{IMPLICIT_PREFIX}{new['metadata']['name']}" in wanted or now in wanted
    return (old.get("spec") or {}).get("extendedResourceName") != now and now in wanted


def _node_has_room(pod: Pod, old: Any, new: Any, handled: frozenset[str], classes: DeviceClasses) -> bool:
    wanted = {
        name: amount
        for name, amount in requests(pod).items()
        if amount and name not in handled and (name in _ORDER or is_scalar(name) or is_unqualified(name))
    }
    has = _allocatable(new)
    by_devices = {name for name in wanted if not has.get(name) and classes.serving(name) is not None}
    wanted = {name: amount for name, amount in wanted.items() if name not in by_devices}
    if has.get(PODS, 0) < 1 or any(has.get(name, 0) < amount for name, amount in wanted.items()):
        return False
    if old is None or by_devices:
        return True
    had = _allocatable(old)
    return has.get(PODS, 0) > had.get(PODS, 0) or any(has[name] > had.get(name, 0) for name in wanted)


def _hands_over(handler: Plugin, hint: Hint | None, pod: Pod, old: Any, new: Any) -> bool:
    """Whether the handler decides on a resource of the pod, and would try the pod again."""
    wanted = requests(pod)
    return any(name in wanted for name in handler.handled_resources()) and (hint is None or hint(pod, old, new))


def _allocatable(node: Node) -> dict[str, int]:
    return {
        name: milli_value(quantity) if name == CPU else value(quantity)
        for name, quantity in node.status.allocatable.items()
    }


plugins = (NodeResourcesFit,)
