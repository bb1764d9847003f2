"""The cluster tables: nodes as rows, and the pods on each row.

Every change is logged by row, so that caches of what follows from rows recompute only rows that changed. Pods bound to
unknown nodes are kept in `orphans` and are not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from wharfinger.api.keys import ObjectKey
from wharfinger.api.kubernetes_version import REFERENCE, KubernetesVersion
from wharfinger.api.resources import CPU, EPHEMERAL_STORAGE, MEMORY, nonzero_requests, requests, requests_by_status
from wharfinger.api.views import Pod
from wharfinger.framework.changes import Log, Versions
from wharfinger.framework.columns import IntColumn
from wharfinger.framework.counters import Counters
from wharfinger.framework.listeners import ForeignPodListener, PodListener, PodListeners
from wharfinger.framework.node_table import NodeTable, is_scalar
from wharfinger.framework.shapes import HostPort, Shape, Shapes
from wharfinger.framework.stand_ins import StandInUsers

Charge = tuple[tuple[int, int], ...]
"""The resources that a pod takes on its node, as (resource number, amount)."""

EVERY_NAMESPACE = "*"
"""Stands for all namespaces in `Tables.changed`."""


class PodOnNode:
    """A pod that takes resources of a node: bound or assumed."""

    __slots__ = ("assumed", "charge", "key", "node_name", "nonzero", "pod", "priority", "row", "shape", "terminating")

    def __init__(self, pod: Pod, shape: Shape, node_name: str, charge: Charge, nonzero: tuple[int, int]) -> None:
        self.pod = pod
        self.key: ObjectKey = (pod.metadata.namespace, pod.metadata.name)
        self.shape = shape
        self.node_name = node_name
        self.row = -1  # -1: the node is not known
        self.charge = charge
        self.nonzero = nonzero
        self.priority: int = pod.spec.priority or 0
        self.terminating = bool(pod.metadata.deletion_timestamp)
        self.assumed = False


@dataclass(slots=True)
class Work:
    """Counts of what was computed from the tables, to check that it stays incremental."""

    rows: int = 0  # rows filtered or scored
    rebuilt: int = 0  # times all rows of a shape were evaluated
    totals: int = 0  # times the values of all rows were combined


class Tables(NodeTable):
    """Everybody may read all fields; each group says who writes it."""

    def __init__(self, seed: int = 0, capacity: int = 64, kubernetes: KubernetesVersion = REFERENCE) -> None:
        super().__init__(seed, capacity)
        self.kubernetes = kubernetes  # the version whose rules hold; never changes

        # Written by `add_pod`, `remove_pod`, `replace_pod` and `recharge`, and as nodes come and go.
        self.pods: dict[ObjectKey, PodOnNode] = {}
        self.pods_on: list[dict[ObjectKey, PodOnNode]] = [{} for _ in range(capacity)]  # [row]
        self.orphans: dict[str, dict[ObjectKey, PodOnNode]] = {}  # by the name of the unknown node
        self.requested: list[IntColumn] = []  # [resource][row]
        self.nonzero_cpu = IntColumn(capacity)
        self.nonzero_memory = IntColumn(capacity)
        self.pod_count = IntColumn(capacity)
        self.ports: dict[int, dict[HostPort, int]] = {}  # row to host ports in use, with the number of users
        self._by_uid: dict[str, PodOnNode] | None = None  # made when it is first needed
        self.pod_log = Log()  # rows whose pods changed, or of which a plugin reported a change

        # Written by `set_foreign_node`: labels of the nodes that are not ours. Pods on them are orphans.
        self.foreign_nodes: dict[str, Mapping[str, str]] = {}
        self._foreign_listeners: list[ForeignPodListener] = []

        # Written by `nominate`: node to the pods nominated for it.
        self.nominated: dict[str, dict[ObjectKey, PodOnNode]] = {}

        # Written by whoever owns the engine: seconds since the epoch. Without a clock nothing ever times out.
        self.clock: Callable[[], float] = lambda: 0.0

        # Written by the engine: the labels of namespaces.
        self.namespaces: dict[str, Mapping[str, str]] = {}

        # Written by plugins.
        self.handled: frozenset[str] = frozenset()  # resources whose fit a plugin decides instead of NodeResourcesFit
        self.by_devices: Collection[str] = ()  # extended resources that device classes serve where nodes have none
        self.stand_in_users = StandInUsers()
        #: Namespaces where `Plugin.shape_key` depends on nominations.
        self.nominations_matter: set[str] = set()
        self.shared: dict[str, Any] = {}  # state that plugins of several profiles share, under a name of their own

        # Written by `changed`.
        self.versions = Versions()

        # Written through their own methods.
        self.listeners = PodListeners(self.versions)
        self.shapes = Shapes()
        self.counters = Counters(self.label, lambda: self.capacity)
        self.work = Work()

        for name in (CPU, MEMORY, EPHEMERAL_STORAGE):
            self.resource(name)

    # -- reading

    def placed(self) -> Iterator[PodOnNode]:
        """The pods on known nodes."""
        return (pod for pod in self.pods.values() if pod.row >= 0)

    def pod_with_uid(self, uid: str) -> PodOnNode | None:
        if self._by_uid is None:
            self._by_uid = {pod.pod.metadata.uid: pod for pod in self.pods.values()}
        return self._by_uid.get(uid)

    def namespace_labels(self, namespace: str) -> Mapping[str, str]:
        return self.namespaces.get(namespace, {})

    @property
    def version(self) -> int:
        """Moves whenever a `Prepared.version` may have moved."""
        return self.counters.version + self.node_log.position + self.versions.cluster

    @property
    def preparation_version(self) -> int:
        """Moves whenever a pod may get another shape, or what was prepared for its shape may be stale."""
        return self.versions.preparations + self.node_log.position

    # -- reporting changes

    def changed(
        self,
        *,
        rows: Iterable[int] = (),
        nodes: Iterable[int] = (),
        versions: bool = False,
        keys: bool = False,
        listeners: bool = False,
        namespace: str | None = None,
    ) -> None:
        """Reports a change of state that a plugin keeps outside the tables, so that cached answers are recomputed.

        rows: rows whose answers of row scope, or whose overlays, are stale
        nodes: rows whose answers of every scope are stale
        versions: the `version` of some answers of cluster scope moved for a reason other than pods and nodes
        keys: `Plugin.shape_key` may give another key for the same pod
        listeners: `PodListener.concerned` may give another answer for the same shape
        namespace: everything prepared for shapes of the namespace is stale; `EVERY_NAMESPACE` means all shapes, which
            is expensive and rarely needed
        """
        for row in rows:
            self.pod_log.append(row)
        for row in nodes:
            self.node_log.append(row)
        moved = self.versions
        if versions:
            moved.cluster += 1
        if keys:
            moved.keys += 1
            moved.preparations += 1
        if listeners:
            moved.listeners += 1
        if namespace is not None:
            moved.preparations += 1
            if namespace == EVERY_NAMESPACE:
                moved.everything += 1
            else:
                moved.namespaces += 1
                moved.of_namespace[namespace] = moved.namespaces

    def listen(self, listener: PodListener, *, first: bool = False) -> None:
        """Adds a listener after earlier ones, or with `first` before them, if they read its records."""
        self.listeners.add(listener, first=first)
        self.changed(listeners=True)

    def listen_to_foreign_pods(self, listener: ForeignPodListener) -> None:
        self._foreign_listeners.append(listener)

    # -- nodes that are not ours

    def set_foreign_node(self, name: str, labels: Mapping[str, str] | None) -> None:
        """A node that is not ours was added or updated, or with None deleted or taken over."""
        before = self.foreign_nodes.get(name)
        if before == labels:
            return
        pods = list(self.orphans.get(name, {}).values())
        if before is not None:
            for pod in pods:
                self._foreign_pod_removed(pod)
            del self.foreign_nodes[name]
        if labels is not None:
            self.foreign_nodes[name] = labels
            for pod in pods:
                self._foreign_pod_added(pod)

    def _foreign_pod_added(self, pod: PodOnNode) -> None:
        labels = self.foreign_nodes.get(pod.node_name)
        if labels is not None:
            for listener in self._foreign_listeners:
                listener.foreign_pod_added(pod, labels)

    def _foreign_pod_removed(self, pod: PodOnNode) -> None:
        if pod.node_name in self.foreign_nodes:
            for listener in self._foreign_listeners:
                listener.foreign_pod_removed(pod)

    # -- pods

    def charge(self, shape: Shape) -> Charge:
        """The resources that a pod of the shape takes."""
        charge: Charge | None = shape.charge
        if charge is None:
            charge = shape.charge = self.charge_of(shape.requests)
        return charge

    def charge_of(self, amounts: Mapping[str, int]) -> Charge:
        """A charge from amounts by resource name; resources that the scheduler does not count are left out."""
        return tuple(
            (self.resource(name), amount)
            for name, amount in amounts.items()
            if amount and (name in (CPU, MEMORY, EPHEMERAL_STORAGE) or is_scalar(name))
        )

    def record(self, pod: Pod, node_name: str, shape: Shape | None = None) -> PodOnNode:
        shape = shape or self.shapes.of(pod)
        if requests_by_status(pod):
            charge = self.charge_of(requests(pod, self.kubernetes))
            return PodOnNode(pod, shape, node_name, charge, nonzero_requests(pod, self.kubernetes))
        return PodOnNode(pod, shape, node_name, self.charge(shape), shape.nonzero)

    def add_pod(self, pod: PodOnNode) -> None:
        """Adds the pod to its node, replacing one of the same name."""
        if pod.key in self.pods:
            self.remove_pod(pod.key)
        self.pods[pod.key] = pod
        if self._by_uid is not None:
            self._by_uid[pod.pod.metadata.uid] = pod
        pod.shape.references += 1
        row = self.row_of.get(pod.node_name)
        if row is None:
            self.orphans.setdefault(pod.node_name, {})[pod.key] = pod
            self._foreign_pod_added(pod)
        else:
            self._attach(pod, row)

    def remove_pod(self, key: ObjectKey) -> PodOnNode | None:
        pod = self.pods.pop(key, None)
        if pod is None:
            return None
        if self._by_uid is not None:
            self._by_uid.pop(pod.pod.metadata.uid, None)
        pod.shape.references -= 1
        if pod.row >= 0:
            self._detach(pod)
        else:
            self._foreign_pod_removed(pod)
            waiting = self.orphans.get(pod.node_name, {})
            waiting.pop(key, None)
            if not waiting:
                self.orphans.pop(pod.node_name, None)
        return pod

    def replace_pod(self, old: PodOnNode, new: PodOnNode) -> bool:
        """Replaces the object of a pod if nothing that is counted differs; returns whether it did."""
        if (
            old.shape is not new.shape
            or old.node_name != new.node_name
            or old.charge != new.charge
            or old.nonzero != new.nonzero
            or old.terminating != new.terminating
            or old.priority != new.priority
            or old.pod.metadata.uid != new.pod.metadata.uid
        ):
            return False
        old.pod = new.pod
        old.assumed = new.assumed
        if old.row >= 0:
            for listener in self.listeners.concerned(old):
                listener.pod_replaced(old)
        return True

    def recharge(self, pod: PodOnNode, charge: Charge, nonzero: tuple[int, int], *, logged: bool = False) -> None:
        """Changes what a pod takes. `logged`: a pod is coming to its row or leaving it just now, so that the row is in the log
        already."""
        before, pod.charge = pod.charge, charge
        before_nonzero, pod.nonzero = pod.nonzero, nonzero
        row, requested = pod.row, self.requested
        if row < 0:
            return
        for number, amount in before:
            requested[number].cells[row] -= amount
        for number, amount in charge:
            requested[number].cells[row] += amount
        self.nonzero_cpu.cells[row] += nonzero[0] - before_nonzero[0]
        self.nonzero_memory.cells[row] += nonzero[1] - before_nonzero[1]
        if not logged:
            self.pod_log.append(row)

    def is_by_devices(self, name: str, row: int) -> bool:
        """Whether devices serve an extended resource on a row."""
        return name in self.by_devices and not self.allocatable[self.resource(name)].cells[row]

    def nominate(self, pod: PodOnNode | None, key: ObjectKey) -> PodOnNode | None:
        """Sets the node for which a pending pod is nominated, or clears it with None. Returns the nomination before."""
        before: PodOnNode | None = None
        for node_name, pods in list(self.nominated.items()):
            if key in pods:
                before = pods.pop(key)
                if not pods:
                    del self.nominated[node_name]
                self._nomination_changed(before)
        if pod is not None:
            self.nominated.setdefault(pod.node_name, {})[key] = pod
            self._nomination_changed(pod)
        return before

    def _nomination_changed(self, pod: PodOnNode) -> None:
        self.changed(keys=bool(pod.pod.spec.volumes) or pod.key[0] in self.nominations_matter)

    def _attach(self, pod: PodOnNode, row: int) -> None:
        pod.row = row
        self.pods_on[row][pod.key] = pod
        requested = self.requested
        for number, amount in pod.charge:
            requested[number].cells[row] += amount
        cpu, memory = pod.nonzero
        self.nonzero_cpu.cells[row] += cpu
        self.nonzero_memory.cells[row] += memory
        self.pod_count.cells[row] += 1
        if pod.shape.host_ports:
            users = self.ports.setdefault(row, {})
            for port in pod.shape.host_ports:
                users[port] = users.get(port, 0) + 1
        placed = pod.shape.placed
        placed.add(pod)
        if len(placed) == 1:
            self.counters.first_placed(pod.shape)
        self.counters.count(pod, 1)
        self.pod_log.append(row)
        for listener in self.listeners.concerned(pod):
            listener.pod_added(pod)

    def _detach(self, pod: PodOnNode) -> None:
        row = pod.row
        for listener in self.listeners.concerned(pod):
            listener.pod_removed(pod)
        placed = pod.shape.placed
        placed.discard(pod)
        if not placed:
            self.counters.last_removed(pod.shape)
        self.counters.count(pod, -1)
        del self.pods_on[row][pod.key]
        for number, amount in pod.charge:
            self.requested[number].cells[row] -= amount
        cpu, memory = pod.nonzero
        self.nonzero_cpu.cells[row] -= cpu
        self.nonzero_memory.cells[row] -= memory
        self.pod_count.cells[row] -= 1
        if pod.shape.host_ports:
            users = self.ports[row]
            for port in pod.shape.host_ports:
                users[port] -= 1
                if not users[port]:
                    del users[port]
            if not users:
                del self.ports[row]
        pod.row = -1
        self.pod_log.append(row)

    def _count_row(self, row: int, amount: int) -> None:
        for pod in self.pods_on[row].values():
            self.counters.count(pod, amount)

    # -- following the nodes

    def _before_relabelling(self, row: int) -> None:
        # Counts per topology domain depend on the node's labels: remove its pods and add them again.
        self._count_row(row, -1)

    def _after_relabelling(self, row: int) -> None:
        self._count_row(row, 1)

    def _after_addition(self, row: int) -> None:
        self.set_foreign_node(self.names[row], None)
        for pod in self.orphans.pop(self.names[row], {}).values():
            self._attach(pod, row)

    def _before_removal(self, row: int) -> None:
        leaving = list(self.pods_on[row].values())
        for pod in leaving:
            self._detach(pod)
        if leaving:
            self.orphans[self.names[row]] = {pod.key: pod for pod in leaving}

    def _add_resource(self) -> None:
        super()._add_resource()
        self.requested.append(IntColumn(self.capacity))

    def _columns(self) -> Iterable[IntColumn]:
        return (*super()._columns(), *self.requested, self.nonzero_cpu, self.nonzero_memory, self.pod_count)

    def _grow(self) -> None:
        super()._grow()
        self.pods_on += [{} for _ in range(self.capacity - len(self.pods_on))]
        self.counters.grow(self.capacity)
        self.changed(namespace=EVERY_NAMESPACE)  # prepared answers may hold on to the old columns
