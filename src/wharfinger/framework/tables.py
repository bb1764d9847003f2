"""The cluster tables: a row for each node, columns of what nodes have and pods take, and the pods on each row.

Rows are stable while a node exists and are reused afterwards. Every change is logged by row, so that whoever keeps
something computed from rows recomputes only those that changed. Pods bound to nodes that are not known (yet) wait in
`orphans` and count for nothing.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from wharfinger.api.names import qualified_name
from wharfinger.api.quantity import milli_value, value
from wharfinger.api.resources import CPU, EPHEMERAL_STORAGE, MEMORY, MOST, nonzero_requests, requests
from wharfinger.api.views import Node, Pod
from wharfinger.api.views.nodes import Taint
from wharfinger.framework.columns import Bools, Column, LabelColumn, Log, Rows
from wharfinger.framework.counters import Counters
from wharfinger.framework.shapes import HostPort, Shape, Shapes
from wharfinger.framework.stand_ins import StandInUsers

Key = tuple[str, str]
"""Namespace and name of a pod."""

Charge = tuple[tuple[int, int], ...]
"""What a pod takes of its node: (resource number, amount)."""

PODS = "pods"

EVERY_NAMESPACE = "*"
"""Stands for all namespaces in `Tables.changed`."""


class PodOnNode:
    """A pod that takes room on a node: bound, or assumed to be."""

    __slots__ = ("assumed", "charge", "key", "node_name", "nonzero", "pod", "priority", "row", "shape", "terminating")

    def __init__(self, pod: Pod, shape: Shape, node_name: str, charge: Charge, nonzero: tuple[int, int]) -> None:
        self.pod = pod
        self.key: Key = (pod.metadata.namespace, pod.metadata.name)
        self.shape = shape
        self.node_name = node_name
        self.row = -1
        self.charge = charge
        self.nonzero = nonzero
        self.priority: int = pod.spec.priority or 0
        self.terminating = bool(pod.metadata.deletion_timestamp)
        self.assumed = False


@dataclass(slots=True)
class Work:
    """Counts of what was computed from the tables, to watch that it stays incremental."""

    rows: int = 0  # rows filtered or scored again
    rebuilt: int = 0  # times all rows of a shape were computed
    totals: int = 0  # times totals were put together again for all rows


class PodListener(Protocol):
    """Told of pods that come to known nodes and leave them."""

    def concerned(self, shape: Shape) -> bool:
        """Whether to be told of pods of this shape that have no annotations; pods with annotations are always reported.
        When the answer changes, call `Tables.changed(listeners=True)`."""
        ...

    def pod_added(self, pod: PodOnNode) -> None: ...
    def pod_removed(self, pod: PodOnNode) -> None: ...
    def pod_replaced(self, pod: PodOnNode) -> None: ...


class Tables:
    def __init__(self, seed: int = 0, capacity: int = 64) -> None:
        self.capacity = capacity
        self.row_of: dict[str, int] = {}
        self.nodes: list[Node | None] = [None] * capacity
        self.names: list[str] = [""] * capacity
        self._free: list[int] = list(range(capacity - 1, -1, -1))
        self.alive: Bools = np.zeros(capacity, dtype=np.bool_)
        self._rows: Rows | None = None
        self.pods_on: list[dict[Key, PodOnNode]] = [{} for _ in range(capacity)]
        self.pods: dict[Key, PodOnNode] = {}
        self.orphans: dict[str, dict[Key, PodOnNode]] = {}

        self.resources: dict[str, int] = {}  # name to number
        self.resource_names: list[str] = []
        self.allocatable: list[Column] = []  # [resource][row]
        self.requested: list[Column] = []
        for name in (CPU, MEMORY, EPHEMERAL_STORAGE):
            self.resource(name)
        self.nonzero_cpu = Column(capacity)
        self.nonzero_memory = Column(capacity)
        self.pod_count = Column(capacity)
        self.pod_limit = Column(capacity)
        self.sizes = Column(capacity)  # number of the interned allocatable resources: equal for nodes alike in them
        self._size_numbers: dict[tuple[tuple[str, Any], ...], int] = {}
        self._next_size = 0
        self.turn = Column(capacity)  # among equals the smallest goes first; a row that was taken goes to the end

        self.taints = Column(capacity)  # number of the interned list of taints
        self.taint_lists: list[tuple[Taint, ...]] = [()]
        self._taint_numbers: dict[tuple[tuple[str, str, str], ...], int] = {(): 0}
        self.unschedulable: Bools = np.zeros(capacity, dtype=np.bool_)
        self._labels: dict[str, LabelColumn] = {}
        self.images: dict[str, tuple[int, set[int]]] = {}  # name to (size, rows that have it)
        self.images_version = 0
        self.ports: dict[int, dict[HostPort, int]] = {}  # row to ports in use, with the number of users

        self.handled: frozenset[str] = frozenset()  # resources whose fit a plugin judges in place of the columns
        self.namespaces: dict[str, Mapping[str, str]] = {}
        self.nominated: dict[str, dict[Key, PodOnNode]] = {}  # node to the waiting pods that are to get its room
        self.stand_in_users = StandInUsers()
        self._listeners: list[PodListener] = []
        self._listeners_version = 0
        self.shared: dict[str, Any] = {}  # what plugins of several profiles keep together, by a name of their own
        self.shapes = Shapes()
        self.counters = Counters(self.label, lambda: self.capacity)
        self.node_log = Log()  # rows whose node changed
        self.pod_log = Log()  # rows whose pods changed
        self.keys_version = 0  # moves when plugins may give another `shape_key` for the same pod
        self.epoch = 0  # moves when everything prepared for shapes is stale
        self.renewals = 0  # moves when everything prepared for shapes of one namespace is stale
        self.renewed: dict[str, int] = {}  # namespace to its latest number in `renewals`
        self._reported = 0  # moves when a plugin reports new versions
        self._preparations = 0  # moves with `keys_version`, `epoch` and `renewals`
        self.work = Work()
        self._everywhere: dict[int, bool] = {}
        self._everywhere_at = -1
        self._turns = 0
        self._random = random.Random(seed)

    # -- reading

    @property
    def rows(self) -> Rows:
        """The rows that hold a node."""
        if self._rows is None:
            self._rows = np.flatnonzero(self.alive)
        return self._rows

    @property
    def node_count(self) -> int:
        return len(self.row_of)

    def name(self, row: int) -> str:
        return self.names[row]

    def resource(self, name: str) -> int:
        """The number of a resource; its columns are made when it is first asked for."""
        number = self.resources.get(name)
        if number is None:
            number = self.resources[name] = len(self.resource_names)
            self.resource_names.append(name)
            self.allocatable.append(Column(self.capacity))
            self.requested.append(Column(self.capacity))
        return number

    def everywhere(self, column: Column) -> bool:
        """Whether no node has zero in a column that follows from the nodes alone."""
        if self._everywhere_at != self.node_log.position:
            self._everywhere_at = self.node_log.position
            self._everywhere.clear()
        found = self._everywhere.get(id(column))
        if found is None:
            found = self._everywhere[id(column)] = bool(column.take(self.rows).all())
        return found

    def label(self, key: str) -> LabelColumn:
        """The column of a label key, made when it is first asked for."""
        column = self._labels.get(key)
        if column is None:
            column = self._labels[key] = LabelColumn(key, self.capacity)
            for row in self.row_of.values():
                node = self.nodes[row]
                if node is not None:
                    column.set(row, node.metadata.labels)
        return column

    def placed(self) -> Iterator[PodOnNode]:
        """The pods on known nodes."""
        return (pod for pod in self.pods.values() if pod.row >= 0)

    def namespace_labels(self, namespace: str) -> Mapping[str, str]:
        return self.namespaces.get(namespace, {})

    # -- nodes

    def set_node(self, node: Node) -> int:
        """Adds or replaces a node; returns its row."""
        row = self.row_of.get(node.metadata.name)
        if row is None:
            return self._add_node(node)
        old = self.nodes[row]
        assert old is not None
        if _same(old, node):
            self.nodes[row] = node
            return row
        relabelled = old.metadata.labels != node.metadata.labels
        if relabelled:
            # Counts per domain follow the node's labels: take its pods out and put them back.
            self._count_row(row, -1)
        self._forget_images(row, old)
        self._write_node(row, node)
        if relabelled:
            self._count_row(row, 1)
        self.node_log.append(row)
        return row

    def _add_node(self, node: Node) -> int:
        if not self._free:
            self._grow()
        row = self._free.pop()
        self.row_of[node.metadata.name] = row
        self.names[row] = node.metadata.name
        self.alive[row] = True
        self._rows = None
        self.turn.cells[row] = self._random.getrandbits(30) - (1 << 30)  # before all that were taken, in no order
        self._write_node(row, node)
        self.images_version += 1  # scores of images depend on the number of nodes
        for pod in self.orphans.pop(node.metadata.name, {}).values():
            self._attach(pod, row)
        self.node_log.append(row)
        return row

    def remove_node(self, name: str) -> None:
        row = self.row_of.pop(name, None)
        if row is None:
            return
        node = self.nodes[row]
        assert node is not None
        leaving = list(self.pods_on[row].values())
        for pod in leaving:
            self._detach(pod)
        if leaving:
            self.orphans[name] = {pod.key: pod for pod in leaving}
        self._forget_images(row, node)
        self.images_version += 1
        self.nodes[row] = None
        self.alive[row] = False
        self._rows = None
        self.unschedulable[row] = False
        for column in (*self.allocatable, self.pod_limit, self.taints):
            column.cells[row] = 0
        for labels in self._labels.values():
            labels.set(row, {})
        self._free.append(row)
        self.node_log.append(row)

    def _write_node(self, row: int, node: Node) -> None:
        self.nodes[row] = node
        self.unschedulable[row] = node.spec.unschedulable
        self.taints.cells[row] = self._taint_list(node.spec.taints)
        for labels in self._labels.values():
            labels.set(row, node.metadata.labels)
        for column in self.allocatable:
            column.cells[row] = 0
        self.pod_limit.cells[row] = 0
        self.sizes.cells[row] = self._size(node)
        for name, quantity in node.status.allocatable.items():
            if name == CPU:
                self.allocatable[0].cells[row] = min(milli_value(quantity), MOST)
            elif name == PODS:
                self.pod_limit.cells[row] = min(value(quantity), MOST)
            elif name in self.resources or is_scalar(name):
                self.allocatable[self.resource(name)].cells[row] = min(value(quantity), MOST)
        for image in node.status.images:
            for each in image.names:
                size, holders = self.images.get(each, (image.size_bytes, set()))
                holders.add(row)
                self.images[each] = (size, holders)
        if node.status.images:
            self.images_version += 1

    def _forget_images(self, row: int, node: Node) -> None:
        for image in node.status.images:
            for each in image.names:
                _, holders = self.images.get(each, (0, set()))
                holders.discard(row)
                if not holders:
                    self.images.pop(each, None)
        if node.status.images:
            self.images_version += 1

    def _taint_list(self, taints: tuple[Taint, ...]) -> int:
        if not taints:
            return 0
        key = tuple((taint.key, taint.value, taint.effect) for taint in taints)
        number = self._taint_numbers.get(key)
        if number is None:
            number = self._taint_numbers[key] = len(self.taint_lists)
            self.taint_lists.append(taints)
        return number

    def _size(self, node: Node) -> int:
        key = tuple(sorted(node.status.allocatable.items()))
        number = self._size_numbers.get(key)
        if number is None:
            if len(self._size_numbers) > 2 * self.capacity:
                self._size_numbers.clear()  # of nodes that are gone, for the most part; numbers are not used again
            number = self._size_numbers[key] = self._next_size
            self._next_size += 1
        return number

    def _grow(self) -> None:
        more = max(64, self.capacity // 4)
        old, self.capacity = self.capacity, self.capacity + more
        self._free = list(range(self.capacity - 1, old - 1, -1))
        self.nodes += [None] * more
        self.names += [""] * more
        self.pods_on += [{} for _ in range(more)]
        self.alive = np.concatenate((self.alive, np.zeros(more, dtype=np.bool_)))
        self.unschedulable = np.concatenate((self.unschedulable, np.zeros(more, dtype=np.bool_)))
        for column in (
            *self.allocatable,
            *self.requested,
            self.nonzero_cpu,
            self.nonzero_memory,
            self.pod_count,
            self.pod_limit,
            self.sizes,
            self.turn,
            self.taints,
        ):
            column.grow(self.capacity)
        for labels in self._labels.values():
            labels.codes.grow(self.capacity, -1)
        self.counters.grow(self.capacity)
        self.changed(namespace=EVERY_NAMESPACE)  # prepared answers may hold on to the old columns

    # -- listeners

    def listen(self, listener: PodListener, *, first: bool = False) -> None:
        """Tells a listener of pods from now on, after earlier listeners; `first` is for one whose records they read."""
        if first:
            self._listeners.insert(0, listener)
        else:
            self._listeners.append(listener)
        self.changed(listeners=True)

    def _concerned(self, pod: PodOnNode) -> list[PodListener]:
        if pod.pod.metadata.annotations:
            return self._listeners
        shape = pod.shape
        if shape.listeners_version != self._listeners_version:
            shape.listeners = [listener for listener in self._listeners if listener.concerned(shape)]
            shape.listeners_version = self._listeners_version
        return shape.listeners

    # -- pods

    def charge(self, shape: Shape) -> Charge:
        """What a pod of the shape takes, apart from one place among the node's pods."""
        charge: Charge | None = shape.charge
        if charge is None:
            charge = shape.charge = self.charge_of(shape.requests)
        return charge

    def charge_of(self, amounts: Mapping[str, int]) -> Charge:
        """Amounts by name as the tables index them."""
        return tuple(
            (self.resource(name), amount)
            for name, amount in amounts.items()
            if amount and (name in (CPU, MEMORY, EPHEMERAL_STORAGE) or is_scalar(name))
        )

    def record(self, pod: Pod, node_name: str, shape: Shape | None = None) -> PodOnNode:
        shape = shape or self.shapes.of(pod)
        status = pod.status
        if not status.container_statuses and not status.init_container_statuses and status.resources is None:
            return PodOnNode(pod, shape, node_name, self.charge(shape), shape.nonzero)
        if status.resources is not None or any(
            each.resources is not None for each in (*status.container_statuses, *status.init_container_statuses)
        ):
            # A resize in place: this very pod's status counts, not only its shape.
            return PodOnNode(pod, shape, node_name, self.charge_of(requests(pod)), nonzero_requests(pod))
        return PodOnNode(pod, shape, node_name, self.charge(shape), shape.nonzero)

    def add_pod(self, pod: PodOnNode) -> None:
        """Puts the pod on its node, in place of one of the same name."""
        if pod.key in self.pods:
            self.remove_pod(pod.key)
        self.pods[pod.key] = pod
        pod.shape.references += 1
        row = self.row_of.get(pod.node_name)
        if row is None:
            self.orphans.setdefault(pod.node_name, {})[pod.key] = pod
        else:
            self._attach(pod, row)

    def remove_pod(self, key: Key) -> PodOnNode | None:
        pod = self.pods.pop(key, None)
        if pod is None:
            return None
        pod.shape.references -= 1
        if pod.row >= 0:
            self._detach(pod)
        else:
            waiting = self.orphans.get(pod.node_name, {})
            waiting.pop(key, None)
            if not waiting:
                self.orphans.pop(pod.node_name, None)
        return pod

    def replace_pod(self, old: PodOnNode, new: PodOnNode) -> bool:
        """Takes the new object for the old where nothing counted differs; says whether that was so."""
        if (
            old.shape is not new.shape
            or old.node_name != new.node_name
            or old.charge != new.charge
            or old.nonzero != new.nonzero
            or old.terminating != new.terminating
            or old.priority != new.priority
        ):
            return False
        old.pod = new.pod
        old.assumed = new.assumed
        if old.row >= 0:
            for listener in self._concerned(old):
                listener.pod_replaced(old)
        return True

    def recharge(self, pod: PodOnNode, charge: Charge, nonzero: tuple[int, int]) -> None:
        """A pod takes more or less from now on."""
        before, pod.charge = pod.charge, charge
        before_nonzero, pod.nonzero = pod.nonzero, nonzero
        if pod.row < 0:
            return
        for sign, amounts in ((-1, before), (1, charge)):
            for number, amount in amounts:
                self.requested[number].cells[pod.row] += sign * amount
        self.nonzero_cpu.cells[pod.row] += nonzero[0] - before_nonzero[0]
        self.nonzero_memory.cells[pod.row] += nonzero[1] - before_nonzero[1]
        self.pod_log.append(pod.row)

    def nominate(self, pod: PodOnNode | None, key: Key) -> None:
        """Sets or, with None, clears the node that is being freed for a waiting pod."""
        for node_name, pods in list(self.nominated.items()):
            if key in pods:
                self.changed(keys=bool(pods[key].pod.spec.volumes))
                del pods[key]
                if not pods:
                    del self.nominated[node_name]
        if pod is not None:
            self.nominated.setdefault(pod.node_name, {})[key] = pod
            self.changed(keys=bool(pod.pod.spec.volumes))

    def take_turn(self, row: int) -> None:
        """The row was chosen: among equals it comes last now."""
        self._turns += 1
        self.turn.cells[row] = self._turns

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
        """Reports that state which a plugin keeps beside the tables changed, so that answers computed from it are stale.

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
        if versions:
            self._reported += 1
        if keys:
            self.keys_version += 1
            self._preparations += 1
        if listeners:
            self._listeners_version += 1
        if namespace is not None:
            self._preparations += 1
            if namespace == EVERY_NAMESPACE:
                self.epoch += 1
            else:
                self.renewals += 1
                self.renewed[namespace] = self.renewals

    @property
    def version(self) -> int:
        """Moves whenever the `version` of prepared answers of cluster scope may have."""
        return self.counters.version + self.node_log.position + self._reported

    @property
    def preparation_version(self) -> int:
        """Moves whenever a pod may get another shape, or its shape other answers than were prepared."""
        return self._preparations + self.node_log.position

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
        self.counters.count(pod, 1)
        self.pod_log.append(row)
        for listener in self._concerned(pod):
            listener.pod_added(pod)

    def _detach(self, pod: PodOnNode) -> None:
        row = pod.row
        for listener in self._concerned(pod):
            listener.pod_removed(pod)
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


def _same(old: Node, new: Node) -> bool:
    """Whether nothing changed that a plugin might read; heartbeats are not in the view."""
    a, b = old.metadata, new.metadata
    return (
        a.labels == b.labels
        and a.annotations == b.annotations
        and a.deletion_timestamp == b.deletion_timestamp
        and old.spec == new.spec
        and old.status == new.status
    )


@lru_cache(maxsize=4096)
def is_scalar(name: str) -> bool:
    """Extended resources, huge pages, attachable volumes and what is prefixed as Kubernetes' own."""
    if name.startswith(("hugepages-", "attachable-volumes-")) or "kubernetes.io/" in name:
        return True
    if "/" not in name or name.startswith("requests."):
        return False
    return not qualified_name(f"requests.{name}")
