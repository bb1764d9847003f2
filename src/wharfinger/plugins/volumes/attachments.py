"""The CSI volumes on each node: those that its pods use, and those that VolumeAttachments name.

Counts and limits of each driver are columns, updated as pods come and go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from wharfinger.api.keys import ObjectKey
from wharfinger.api.views import CSINode, PersistentVolume, PersistentVolumeClaim, Pod, VolumeAttachment
from wharfinger.api.views.pods import InTreeSources
from wharfinger.framework.columns import IntColumn
from wharfinger.framework.shapes import Shape
from wharfinger.framework.stand_ins import mounts_volumes
from wharfinger.framework.tables import PodOnNode, Tables
from wharfinger.plugins.volumes.catalogue import ATTACHMENT, CLAIM, CLASS, CSI_NODE, VOLUME, catalogue_of
from wharfinger.plugins.volumes.migration import NotTranslatable, csi_driver, csi_volume
from wharfinger.plugins.volumes.rules import claim_name, class_of_claim, not_created_for

UNLIMITED = 1 << 40

CsiVolume = tuple[str, str]
"""Driver and handle."""


class UncountedVolume(NamedTuple):
    """A volume of a pod of which no CSI volume is known."""

    missing: str = ""  # the name of a claim that does not exist
    fault: str = ""  # why counting the volumes of the pod fails
    inline: bool = False  # whether that is so only on nodes that have a CSINode


class Attachments:
    """Shared by the plugins of all profiles: see `attachments_of`."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._catalogue = catalogue_of(tables)
        self._pods: dict[ObjectKey, tuple[int, list[CsiVolume]]] = {}  # the row of a pod, and the volumes it uses
        self.used: dict[int, dict[CsiVolume, int]] = {}  # by row: volumes in use, with the number of pods
        self.rows_of: dict[CsiVolume, set[int]] = {}  # rows on which pods use a volume
        self._attachments: dict[str, dict[str, VolumeAttachment]] = {}  # by node and name
        self._attached_to: dict[str, set[tuple[str, str]]] = {}  # by volume: node and name of its attachments
        self._stated: dict[str, frozenset[CsiVolume]] = {}  # by node: volumes that VolumeAttachments name
        self._counts: dict[str, IntColumn] = {}
        self._limits: dict[str, IntColumn] = {}
        self._limited: dict[str, int] = {}  # drivers with a limit on some node, with the number of such nodes
        self._installed: dict[str, IntColumn] = {}  # by driver: 1 where the node's CSINode lists it
        self._registered = IntColumn(tables.capacity)  # 1 where the node has a CSINode
        self._faults: dict[int, dict[ObjectKey, str]] = {}  # by row: pods whose volumes cannot be counted, and why
        self._claims: dict[str, set[ObjectKey]] = {}  # by the volume they are bound to
        self._node_position = 0
        self._catalogue.watchers.append(self._changed)
        tables.listen(self)

    # -- reading

    def limited(self, driver: str) -> bool:
        """Whether some node has a limit for the driver."""
        return driver in self._limited

    def count(self, driver: str) -> IntColumn:
        self._catch_up()
        return self._column(self._counts, driver, 0)

    def limit(self, driver: str) -> IntColumn:
        self._catch_up()
        return self._column(self._limits, driver, UNLIMITED)

    def stated(self, row: int) -> frozenset[CsiVolume]:
        node = self._tables.nodes[row] if self._stated else None
        return frozenset() if node is None else self._stated.get(node.metadata.name, frozenset())

    def installed(self, driver: str) -> IntColumn:
        """1 on rows whose CSINode lists the driver."""
        self._catch_up()
        return self._column(self._installed, driver, 0)

    @property
    def registered(self) -> IntColumn:
        """1 on rows that have a CSINode."""
        self._catch_up()
        if len(self._registered.cells) < self._tables.capacity:
            self._registered.grow(self._tables.capacity, 0)
        return self._registered

    def limits_anything(self, row: int) -> bool:
        """Whether the row has a limit for any driver."""
        node = self._tables.nodes[row]
        return bool(limits_of(None if node is None else self._catalogue.csi_nodes.get(node.metadata.name)))

    @property
    def faulty_rows(self) -> Collection[int]:
        """Rows with pods whose volumes cannot be counted."""
        return self._faults.keys()

    def faults_on(self, row: int) -> Mapping[ObjectKey, str]:
        """Why volumes of pods on the row cannot be counted, in the order of the pods."""
        found = self._faults.get(row, {})
        return {key: found[key] for key in self._tables.pods_on[row] if key in found} if found else {}

    def volumes_of(self, pod: Pod) -> Iterator[CsiVolume]:
        """The CSI volumes that a pod uses, as far as they are known."""
        return counted(self.used_by(pod))

    def fault_of(self, pod: Pod) -> str:
        """Why the volumes of a pod on a node cannot be counted; empty if they can."""
        return _first_fault(self.used_by(pod))

    def used_by(self, pod: Pod) -> Iterator[CsiVolume | UncountedVolume]:
        """The CSI volumes that a pod uses, in the order of its volumes, and why others are not known."""
        for volume in pod.spec.volumes:
            name = claim_name(pod, volume)
            if name is None:
                try:
                    inline = csi_volume(volume)
                except NotTranslatable as fault:
                    text = f"converting volume({volume.name}) from inline to csi: {fault}"
                    yield UncountedVolume(fault=text, inline=True)
                    continue
                if inline is not None:
                    yield inline
                continue
            claim = self._catalogue.claims.get((pod.metadata.namespace, name))
            if claim is None:
                yield UncountedVolume(missing=name)
                continue
            foreign = not_created_for(pod, claim) if volume.persistent_volume_claim is None else ""
            if foreign:
                yield UncountedVolume(fault=foreign)
                continue
            found = self._behind(claim)
            if found is not None:
                yield found

    def native_drivers(self, pod: Pod) -> set[str]:
        """The drivers of volumes that were not translated from in-tree ones. These count on nodes without CSINode, too."""
        found = set()
        for volume in pod.spec.volumes:
            name = claim_name(pod, volume)
            claim = None if name is None else self._catalogue.claims.get((pod.metadata.namespace, name))
            if claim is None:
                continue
            bound = self._catalogue.volumes.get(claim.spec.volume_name) if claim.spec.volume_name else None
            if bound is not None:
                if bound.spec.csi is not None and bound.spec.csi.volume_handle:
                    found.add(bound.spec.csi.driver)
                continue
            storage_class = self._catalogue.classes.get(class_of_claim(claim))
            if storage_class is not None and csi_driver(storage_class.provisioner) == storage_class.provisioner:
                found.add(storage_class.provisioner)
        return found

    def nominated(self) -> set[CsiVolume]:
        """The CSI volumes of nominated pods."""
        waiting = (each.pod for pods in self._tables.nominated.values() for each in pods.values())
        return {volume for pod in waiting if pod.spec.volumes for volume in self.volumes_of(pod)}

    def _behind(self, claim: PersistentVolumeClaim) -> CsiVolume | None:
        volume = self._catalogue.volumes.get(claim.spec.volume_name) if claim.spec.volume_name else None
        if volume is not None:
            source = volume.spec.csi
            if source is None:
                return _translated(volume.spec, volume)
            return (source.driver, source.volume_handle) if source.driver and source.volume_handle else None
        # Not bound yet, or bound to a volume that does not exist: it counts for the driver of its class.
        storage_class = self._catalogue.classes.get(class_of_claim(claim))
        driver = "" if storage_class is None else csi_driver(storage_class.provisioner)
        return (driver, f"claim {claim.metadata.namespace}/{claim.metadata.name}") if driver else None

    # -- pods on nodes

    def concerned(self, shape: Shape) -> bool:
        return bool(shape.pod.spec.volumes)

    def pod_added(self, pod: PodOnNode) -> None:
        if mounts_volumes(pod.pod):
            used = list(dict.fromkeys(self.used_by(pod.pod)))
            volumes = [found for found in used if not isinstance(found, UncountedVolume)]
            self._use(pod.key, pod.row, volumes)
            if len(volumes) < len(used):
                self._set_fault(pod.key, pod.row, _first_fault(used))

    def pod_removed(self, pod: PodOnNode) -> None:
        if pod.pod.spec.volumes:
            self._unuse(pod.key)
            self._set_fault(pod.key, pod.row, "")

    def pod_replaced(self, pod: PodOnNode) -> None:
        """A pod's volumes cannot change."""

    def _set_fault(self, key: ObjectKey, row: int, fault: str) -> None:
        faults = self._faults.get(row, {})
        if faults.get(key, "") == fault:
            return
        any_before = bool(self._faults)
        if fault:
            self._faults.setdefault(row, {})[key] = fault
        else:
            del faults[key]
            if not faults:
                del self._faults[row]
        if bool(self._faults) != any_before:
            self._tables.changed(keys=True)

    def _use(self, key: ObjectKey, row: int, volumes: list[CsiVolume]) -> None:
        if not volumes:
            return
        self._pods[key] = (row, volumes)
        used = self.used.setdefault(row, {})
        stated = self.stated(row)
        for volume in volumes:
            users = used[volume] = used.get(volume, 0) + 1
            if users == 1:
                rows = self.rows_of.setdefault(volume, set())
                if not rows:
                    self._tables.changed(keys=True)
                rows.add(row)
                if volume not in stated:
                    self._column(self._counts, volume[0], 0).cells[row] += 1

    def _unuse(self, key: ObjectKey) -> None:
        row, volumes = self._pods.pop(key, (-1, []))
        if not volumes:
            return
        used = self.used[row]
        stated = self.stated(row)
        for volume in volumes:
            used[volume] -= 1
            if not used[volume]:
                del used[volume]
                rows = self.rows_of[volume]
                rows.discard(row)
                if not rows:
                    del self.rows_of[volume]
                    self._tables.changed(keys=True)
                if volume not in stated:
                    self._column(self._counts, volume[0], 0).cells[row] -= 1
        if not used:
            del self.used[row]

    # -- other objects

    def _changed(self, kind: str, old: Any, new: Any) -> None:
        if kind == CLAIM:
            self._claim_changed(old, new)
        elif kind == VOLUME:
            present = new if new is not None else old
            for claim in self._claims.get(present.metadata.name, ()):
                self._read_again(claim)
            for node_name in {node for node, _ in self._attached_to.get(present.metadata.name, ())}:
                self._read_attachments(node_name)
        elif kind == CLASS:
            for claim in list(self._catalogue.users):
                self._read_again(claim)
        elif kind == CSI_NODE:
            self._limits_changed(old, new)
        elif kind == ATTACHMENT:
            self._attachment_changed(old, new)

    def _claim_changed(self, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None) -> None:
        for claim, present in ((old, False), (new, True)):
            if claim is not None and claim.spec.volume_name:
                bound = self._claims.setdefault(claim.spec.volume_name, set())
                (bound.add if present else bound.discard)(claim.metadata.key)
                if not bound:
                    del self._claims[claim.spec.volume_name]
        known = new if new is not None else old
        assert known is not None
        self._read_again(known.metadata.key)

    def _read_again(self, claim: ObjectKey) -> None:
        """Updates the pods that use the claim; they may use another volume now."""
        users = self._catalogue.users.get(claim)
        for pod in [] if users is None else list(users.values()):
            volumes = list(dict.fromkeys(self.volumes_of(pod.pod)))
            fault = self.fault_of(pod.pod)
            if self._faults.get(pod.row, {}).get(pod.key, "") != fault:
                self._set_fault(pod.key, pod.row, fault)
                self._tables.changed(rows=(pod.row,))
            if self._pods.get(pod.key, (-1, []))[1] != volumes:
                self._unuse(pod.key)
                self._use(pod.key, pod.row, volumes)
                self._tables.changed(rows=(pod.row,))

    def _attachment_changed(self, old: VolumeAttachment | None, new: VolumeAttachment | None) -> None:
        for each, present in ((old, False), (new, True)):
            if each is None:
                continue
            node_name, name = each.spec.node_name, each.metadata.name
            volume_name = each.spec.source.persistent_volume_name or ""
            on_node = self._attachments.setdefault(node_name, {})
            of_volume = self._attached_to.setdefault(volume_name, set())
            if present:
                on_node[name] = each
                of_volume.add((node_name, name))
            else:
                on_node.pop(name, None)
                of_volume.discard((node_name, name))
            if not on_node:
                del self._attachments[node_name]
            if not of_volume:
                del self._attached_to[volume_name]
        for node_name in {each.spec.node_name for each in (old, new) if each is not None}:
            self._read_attachments(node_name)

    def _read_attachments(self, node_name: str) -> None:
        found = {self._attached(each) for each in self._attachments.get(node_name, {}).values()}
        stated = frozenset(each for each in found if each is not None)
        if self._stated.get(node_name, frozenset()) == stated:
            return
        self._stated.pop(node_name, None)
        if stated:
            self._stated[node_name] = stated
        row = self._tables.row_of.get(node_name)
        if row is not None:
            self._recount(row)
            self._tables.changed(rows=(row,))

    def _attached(self, attachment: VolumeAttachment) -> CsiVolume | None:
        spec = attachment.spec
        volume = self._catalogue.volumes.get(spec.source.persistent_volume_name or "")
        if not spec.attacher or volume is None or volume.spec.csi is None:
            return None
        return spec.attacher, volume.spec.csi.volume_handle

    def _limits_changed(self, old: CSINode | None, new: CSINode | None) -> None:
        for driver in limits_of(old):
            self._limited[driver] -= 1
            if not self._limited[driver]:
                del self._limited[driver]
        for driver in limits_of(new):
            self._limited[driver] = self._limited.get(driver, 0) + 1
        known = new if new is not None else old
        assert known is not None
        row = self._tables.row_of.get(known.metadata.name)
        if row is not None:
            self._set_limits(row)
            self._tables.changed(rows=(row,))

    def _catch_up(self) -> None:
        """Updates rows whose node changed, since limits and attachments belong to the node."""
        log = self._tables.node_log
        if log.position == self._node_position:
            return
        rows = log.since(self._node_position)
        self._node_position = log.position
        for row in self._tables.rows.tolist() if rows is None else set(rows):
            self._set_limits(row)
            self._recount(row)

    def _set_limits(self, row: int) -> None:
        node = self._tables.nodes[row]
        csi_node = None if node is None else self._catalogue.csi_nodes.get(node.metadata.name)
        self._column({"": self._registered}, "", 0).cells[row] = csi_node is not None
        listed = {driver.name for driver in csi_node.spec.drivers} if csi_node is not None else set()
        for driver in set(self._installed) | listed:
            self._column(self._installed, driver, 0).cells[row] = driver in listed
        limits = limits_of(csi_node)
        for driver in set(self._limits) | set(limits):
            self._column(self._limits, driver, UNLIMITED).cells[row] = limits.get(driver, UNLIMITED)

    def _recount(self, row: int) -> None:
        attached = set(self.used.get(row, ())) | self.stated(row)
        counts: dict[str, int] = {}
        for driver, _ in attached:
            counts[driver] = counts.get(driver, 0) + 1
        for driver in set(self._counts) | set(counts):
            self._column(self._counts, driver, 0).cells[row] = counts.get(driver, 0)

    def _column(self, columns: dict[str, IntColumn], driver: str, fill: int) -> IntColumn:
        column = columns.get(driver)
        if column is None:
            column = columns[driver] = IntColumn(self._tables.capacity, fill)
        elif len(column.cells) < self._tables.capacity:
            column.grow(self._tables.capacity, fill)
        return column


def counted(used: Iterable[CsiVolume | UncountedVolume]) -> Iterator[CsiVolume]:
    """The volumes that are known."""
    return (found for found in used if not isinstance(found, UncountedVolume))


def _first_fault(used: Iterable[CsiVolume | UncountedVolume]) -> str:
    return next((found.fault for found in used if isinstance(found, UncountedVolume) and found.fault), "")


def _translated(sources: InTreeSources, volume: PersistentVolume | None = None) -> CsiVolume | None:
    """The CSI volume for an in-tree volume; None if it is none, or if its CSI driver cannot serve it."""
    try:
        found = csi_volume(sources, volume)
    except NotTranslatable:
        return None
    return found if found is not None and found[1] else None


def limits_of(csi_node: CSINode | None) -> Mapping[str, int]:
    """The number of volumes that each driver can attach to a node; other drivers have no limit."""
    if csi_node is None:
        return {}
    return {
        driver.name: driver.allocatable.count
        for driver in csi_node.spec.drivers
        if driver.allocatable is not None and driver.allocatable.count is not None
    }


def attachments_of(tables: Tables) -> Attachments:
    found: Attachments | None = tables.shared.get("attachments")
    if found is None:
        found = tables.shared["attachments"] = Attachments(tables)
    return found
