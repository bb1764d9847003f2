"""The packing policies as plugins: they score nodes, and through device scores choose the devices of a node.

All are off by default. Devices are those that ResourceSlices publish. What a share takes is a capacity of the device, named
by `capacity`; devices without it are taken as a whole.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, ClassVar

import msgspec
import numpy as np

from wharfinger.api.fields import FieldError, invalid
from wharfinger.api.keys import ObjectKey
from wharfinger.api.kubernetes_version import KubernetesVersion
from wharfinger.api.quantity import BadQuantity, milli_value
from wharfinger.devices.claims import DeviceRequest
from wharfinger.devices.pools import CandidateDevice
from wharfinger.framework.columns import Ints, Rows
from wharfinger.framework.device_scoring import DeviceScorer
from wharfinger.framework.plugin import Args, Plugin, Prepared, Scope
from wharfinger.framework.shapes import Shape
from wharfinger.framework.status import Status
from wharfinger.framework.tables import PodOnNode, Tables
from wharfinger.plugins.device_packing.devices import CPU, AskedDevices, DeviceSupply, PackedDevices
from wharfinger.plugins.device_packing.fragmentation import MOST_ASKED, WorkloadShape
from wharfinger.plugins.device_packing.policies import MAX_SCORE, GpuClustering, PackingPolicy
from wharfinger.plugins.device_packing.registry import POLICIES
from wharfinger.plugins.device_packing.rooms import WHOLE, ModelNumbers, PodDemand
from wharfinger.plugins.dynamic_resources.catalogue import KINDS, SLICE


class PackingArgs(Args, frozen=True):
    driver: str = ""  # whose devices count; empty: all
    capacity: str = "milli"  # of devices, which shares take
    model: str = "model"  # the attribute of devices that names their model
    seed: int = 0  # for policies that draw


class WorkloadShapeArgs(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Pods that ask for the same, and how many there are of them."""

    cpu: str
    devices: int = 0
    milli: int = WHOLE  # of each device
    models: tuple[str, ...] = ()
    weight: int = 1

    def faults(self, path: str) -> list[FieldError]:
        found = []
        try:
            milli_value(self.cpu)
        except BadQuantity as bad:
            found.append(invalid(f"{path}.cpu", self.cpu, str(bad)))
        for name, given, least, most in (
            ("devices", self.devices, 0, MOST_ASKED),
            ("milli", self.milli, 1, WHOLE),
            ("weight", self.weight, 1, 1 << 31),
        ):
            if not least <= given <= most:
                found.append(invalid(f"{path}.{name}", given, f"must be between {least} and {most}"))
        if self.devices > 1 and self.milli < WHOLE:
            found.append(invalid(f"{path}.milli", self.milli, "must be 1000 where several devices are asked for"))
        return found

    def shape(self) -> WorkloadShape:
        cpu = milli_value(self.cpu)
        demand = PodDemand(cpu, self.devices, self.milli, frozenset(self.models)) if self.devices else PodDemand(cpu)
        return WorkloadShape(demand, self.weight)


class WorkloadPackingArgs(PackingArgs, frozen=True):
    workload: tuple[WorkloadShapeArgs, ...] = ()  # the pods that usually come

    def faults(self, kubernetes: KubernetesVersion) -> list[FieldError]:
        return [fault for index, each in enumerate(self.workload) for fault in each.faults(f"workload[{index}]")]


class PackingPlugin(Plugin):
    """A packing policy."""

    policy: ClassVar[type[PackingPolicy]]
    points = frozenset({"score", "deviceScore"})
    position = 900
    enabled = False
    ours = True
    args_type = PackingArgs
    kinds = KINDS

    def __init__(self, tables: Tables, args: PackingArgs) -> None:
        super().__init__(tables, args)
        models = ModelNumbers()
        workload = args.workload if isinstance(args, WorkloadPackingArgs) else ()
        self._rule = self.policy([each.shape() for each in workload], models, args.seed)
        self._devices = PackedDevices(tables, args.driver, args.capacity, args.model, models)
        self._supply = DeviceSupply(args.driver, args.model)
        self._counted: dict[ObjectKey, PodDemand] = {}  # pods on nodes, for policies that learn

    # -- changes in the cluster

    def observe(self, kind: str, old: Any, new: Any) -> None:
        self._devices.catalogue.observe(kind, old, new)
        if self._rule.learns and kind == SLICE and self._supply.changed(old, new):
            self._rule.supplied(self._supply.by_model)
            self._all_changed()

    def pod_added(self, pod: PodOnNode) -> None:
        if self._rule.draws:
            self.tables.changed(versions=True)  # another node is drawn next time
        if self._rule.learns:
            demand = self._counted[pod.key] = self._devices.demand_of(pod.pod, self._supply.samples)
            if self._rule.placed(demand):
                self._all_changed()

    def pod_removed(self, pod: PodOnNode) -> None:
        if self._rule.draws:
            self.tables.changed(versions=True)
        demand = self._counted.pop(pod.key, None)
        if demand is not None and self._rule.placed(demand, -1):
            self._all_changed()

    def _all_changed(self) -> None:
        self.tables.changed(rows=self.tables.rows.tolist())

    # -- the scheduling cycle

    def prepare(self, shape: Shape) -> Prepared | Status | None:
        return (_DrawnNodes if self._rule.draws else _PackedNodes)(self._rule, self._devices, shape)

    def device_scorer(self, shape: Shape) -> DeviceScorer | None:
        return _PackedDeviceScores(self._rule, self._devices, shape)


class _PackedNodes(Prepared):
    scope = Scope.ROW
    scores = True

    def __init__(self, rule: PackingPolicy, devices: PackedDevices, shape: Shape) -> None:
        super().__init__()
        self._rule = rule
        self._devices = devices
        self._cpu = shape.requests.get(CPU, 0)
        self._asked = devices.asked(shape)

    def score(self, rows: Rows) -> Ints:
        scores = np.zeros(len(rows), dtype=np.int64)
        sizes = self._devices.sizes(rows)
        for size in np.unique(sizes).tolist():
            alike = np.flatnonzero(sizes == size)
            demand = self._asked.demand(self._cpu, size)
            rooms = self._devices.rooms(rows[alike], kinds=isinstance(self._rule, GpuClustering))
            scores[alike] = self._rule.nodes(rooms, demand)
        return scores


class _DrawnNodes(_PackedNodes):
    """One of the feasible nodes is drawn: it gets the full score, the others none."""

    scope = Scope.CLUSTER
    normalizes = True

    @property
    def version(self) -> Hashable:
        return len(self._devices.tables.pods)

    def score(self, rows: Rows) -> Ints:
        self._rule.turn = len(self._devices.tables.pods)
        return super().score(rows)

    def normalize(self, scores: Ints, rows: Rows) -> Ints:
        return np.where(scores == scores.max(initial=0), MAX_SCORE, 0)


class _PackedDeviceScores(DeviceScorer):
    def __init__(self, rule: PackingPolicy, devices: PackedDevices, shape: Shape) -> None:
        self._rule = rule
        self._devices = devices
        self._cpu = shape.requests.get(CPU, 0)

    def scores(self, row: int, request: DeviceRequest, devices: Sequence[CandidateDevice]) -> Sequence[int]:
        rows = np.array([row])
        asked: AskedDevices = self._devices.of_request(request)
        demand = asked.demand(self._cpu, int(self._devices.sizes(rows)[0]))
        if not demand.shared:
            return [0] * len(devices)  # unused devices are alike
        self._rule.turn = len(self._devices.tables.pods)
        rooms = self._devices.rooms(rows, kinds=False)
        # The devices may be some of the row's, or more than this policy looks at.
        found = self._rule.devices(rooms, demand)[0].tolist()
        return [found[place] if (place := self._devices.place(row, each.device)) is not None else 0 for each in devices]


def _plugin(policy: type[PackingPolicy]) -> type[PackingPlugin]:
    members = {
        "name": policy.name,
        "policy": policy,
        "args_type": WorkloadPackingArgs if policy.learns else PackingArgs,
        "watches_pods": policy.draws or policy.learns,
    }
    return type(f"{policy.name}Plugin", (PackingPlugin,), members)


plugins = tuple(_plugin(each) for each in POLICIES.values())
