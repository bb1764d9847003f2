"""What the volume plugins know about the cluster: claims, volumes, classes and drivers, and which pods use them.

One catalogue serves the plugins of all profiles. It also holds what the scheduler assumes: that a volume will be bound to
a claim, or that a claim will be provisioned for a node. A newer state of the object from the API server replaces that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from wharfinger.api.keys import ObjectKey
from wharfinger.api.node_affinity import NodeTerms
from wharfinger.api.views import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    StorageClass,
    VolumeAttachment,
)
from wharfinger.api.views.core import ObjectReference
from wharfinger.framework.columns import Bools, Rows
from wharfinger.framework.shapes import Shape
from wharfinger.framework.stand_ins import mounts_volumes
from wharfinger.framework.tables import PodOnNode, Tables
from wharfinger.plugins.volumes.migration import (
    NotTranslatable,
    in_tree_plugin,
    migrated_plugins,
    translated_affinity,
)
from wharfinger.plugins.volumes.rules import (
    READ_WRITE_ONCE_POD,
    SELECTED_NODE,
    affinity_terms,
    claim_name,
    class_of_volume,
    on_labels,
    on_rows,
    refers_to,
)
from wharfinger.plugins.volumes.supply import ClaimKind, Supply

CLAIM = "PersistentVolumeClaim"
VOLUME = "PersistentVolume"
CLASS = "StorageClass"
CSI_NODE = "CSINode"
DRIVER = "CSIDriver"
CAPACITY = "CSIStorageCapacity"
ATTACHMENT = "VolumeAttachment"

NARROW = 64  # if at most this many nodes can use a volume, only their rows are evaluated again

Watcher = Callable[[str, Any, Any], None]
"""Called with the kind, the old and the new object."""


class Bound(NamedTuple):
    """Where a bound volume can be used. On nodes that have migrated its in-tree plugin to a CSI driver, the translated
    node affinity applies."""

    affinity: int  # number of the node affinity
    plugin: str = ""  # the in-tree plugin, if translating it makes a difference
    translated: int = 0
    fault: str = ""  # why the CSI driver cannot serve it


class BindingPlan(NamedTuple):
    """What is reserved for a pod: volumes with the claims they are for, and claims to be provisioned for its node."""

    bindings: tuple[tuple[str, PersistentVolumeClaim], ...]
    provisions: tuple[PersistentVolumeClaim, ...]


class VolumeCatalogue:
    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.claims: dict[ObjectKey, PersistentVolumeClaim] = {}
        self.volumes: dict[str, PersistentVolume] = {}
        self.classes: dict[str, StorageClass] = {}
        self.csi_nodes: dict[str, CSINode] = {}
        self.drivers: dict[str, CSIDriver] = {}
        self.capacities: dict[ObjectKey, CSIStorageCapacity] = {}
        self.attachments: dict[str, VolumeAttachment] = {}
        self.users: dict[ObjectKey, dict[ObjectKey, PodOnNode]] = {}  # claim to the pods on nodes that use it
        self.named: dict[ObjectKey, set[ObjectKey]] = {}  # claim to the pods on nodes that name it; not ephemeral ones
        self.plans: dict[ObjectKey, BindingPlan] = {}  # by assumed pod
        self.watchers: list[Watcher] = []
        self.provision_version = 0  # moves with classes, drivers and capacities
        self.exclusive_version = 0  # moves when a ReadWriteOncePod claim gets or loses its user
        self._held: dict[str, dict[Any, Any]] = {
            CLAIM: self.claims,
            VOLUME: self.volumes,
            CLASS: self.classes,
            CSI_NODE: self.csi_nodes,
            DRIVER: self.drivers,
            CAPACITY: self.capacities,
            ATTACHMENT: self.attachments,
        }
        self._assumed_nodes: dict[ObjectKey, str] = {}
        self._assumed_claims: dict[str, ObjectReference] = {}  # by volume
        self._referring: dict[
            ObjectKey, set[str]
        ] = {}  # claim to the volumes whose claimRef names it, assumed ones included
        self._affinities: list[NodeTerms | None] = [None]
        self._affinity_numbers: dict[NodeTerms | None, int] = {None: 0}
        self._of_class: dict[str, set[str]] = {}
        self._supplies: dict[ClaimKind, Supply] = {}
        tables.listen(self)

    # -- objects

    def observe(self, kind: str, old: Any, new: Any) -> None:
        """Takes in a change; several plugins report the same one, only the first has an effect."""
        held = self._held[kind]
        present = new if new is not None else old
        key: Any = present.metadata.key if kind in (CLAIM, CAPACITY) else present.metadata.name
        known = held.get(key)
        if known is new:
            return
        if new is None:
            del held[key]
        else:
            held[key] = new
        if kind == CLAIM:
            if _newer(known, new):
                self._assumed_nodes.pop(key, None)
        elif kind == VOLUME:
            self._volume_changed(key, known, new)
        elif kind == CSI_NODE:
            row = self.tables.row_of.get(key)
            if row is not None and migrated_plugins(known) != migrated_plugins(new):
                self.tables.changed(nodes=(row,))  # where bound volumes can be used is of node scope
        elif kind in (CLASS, DRIVER, CAPACITY):
            self.provision_version += 1
            self.tables.changed(versions=True)
        self.tables.changed(keys=True)
        for watcher in self.watchers:
            watcher(kind, known, new)

    def _volume_changed(self, name: str, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        before = self._reference(name, old)
        if old is not None:
            self._of_class.get(class_of_volume(old), set()).discard(name)
        if new is not None:
            self._of_class.setdefault(class_of_volume(new), set()).add(name)
        if _newer(old, new):
            self._assumed_claims.pop(name, None)
        self._refer(name, before, self._reference(name, new))
        self._supply_changed(name, old, new)

    # -- pods on nodes

    def concerned(self, shape: Shape) -> bool:
        return bool(shape.pod.spec.volumes)

    def pod_added(self, pod: PodOnNode) -> None:
        for claim, named in _claims_of(pod.pod):
            self.users.setdefault(claim, {})[pod.key] = pod
            if named:
                naming = self.named.setdefault(claim, set())
                if not naming:
                    self._use_changed(claim)
                naming.add(pod.key)

    def pod_removed(self, pod: PodOnNode) -> None:
        for claim, named in _claims_of(pod.pod):
            users = self.users.get(claim)
            if users is not None and users.pop(pod.key, None) is not None and not users:
                del self.users[claim]
            naming = self.named.get(claim) if named else None
            if naming is not None:
                naming.discard(pod.key)
                if not naming:
                    del self.named[claim]
                    self._use_changed(claim)

    def pod_replaced(self, pod: PodOnNode) -> None:
        """A pod's volumes cannot change."""

    def _use_changed(self, key: ObjectKey) -> None:
        claim = self.claims.get(key)
        if claim is None or READ_WRITE_ONCE_POD in claim.spec.access_modes:
            self.exclusive_version += 1
            self.tables.changed(versions=True)

    # -- assuming

    def assume_volume(self, name: str, claim: PersistentVolumeClaim) -> None:
        """Assumes that the volume will be bound to the claim."""
        metadata = claim.metadata
        volume = self.volumes[name]
        before = self._reference(name, volume)
        self._assumed_claims[name] = ObjectReference(
            "v1", CLAIM, metadata.namespace, metadata.name, metadata.uid, metadata.resource_version
        )
        self._refer(name, before, self._assumed_claims[name])
        self._supply_changed(name, volume, volume)
        self.tables.changed(keys=True)

    def forget_volume(self, name: str, claim: ObjectKey) -> None:
        assumed = self._assumed_claims.get(name)
        if assumed is None or (assumed.namespace, assumed.name) != claim:
            return
        del self._assumed_claims[name]
        volume = self.volumes.get(name)
        self._refer(name, assumed, self._reference(name, volume))
        self._supply_changed(name, volume, volume)
        self.tables.changed(keys=True)

    def assume_node(self, claim: ObjectKey, node_name: str) -> None:
        """Assumes that the claim will be provisioned for a node."""
        self._assumed_nodes[claim] = node_name
        self.tables.changed(keys=True)

    def forget_node(self, claim: ObjectKey) -> None:
        if self._assumed_nodes.pop(claim, None) is not None:
            self.tables.changed(keys=True)

    # -- reading

    def selected_node(self, claim: PersistentVolumeClaim) -> str | None:
        return self._assumed_nodes.get(claim.metadata.key, claim.metadata.annotations.get(SELECTED_NODE))

    def reference(self, volume: PersistentVolume) -> ObjectReference | None:
        """The claim to which a volume is bound or assumed to be bound."""
        return self._reference(volume.metadata.name, volume)

    def referring(self, claim: PersistentVolumeClaim) -> Iterator[PersistentVolume]:
        """The volumes with a claimRef to the claim, ordered by name."""
        for name in sorted(self._referring.get(claim.metadata.key, ())):
            volume = self.volumes[name]
            reference = self._reference(name, volume)
            if reference is not None and refers_to(reference, claim):
                yield volume

    def affinity(self, volume: PersistentVolume) -> int:
        """The number of a volume's node affinity. Equal affinities have the same number; 0 means no restriction."""
        stated = volume.spec.node_affinity
        return self.affinity_number(affinity_terms(stated.required) if stated is not None else None)

    def bound(self, volume: PersistentVolume) -> Bound:
        plain = self.affinity(volume)
        plugin = in_tree_plugin(volume.spec) if volume.spec.csi is None else ""
        if not plugin:
            return Bound(plain)
        try:
            translated = self.affinity_number(affinity_terms(translated_affinity(volume)))
        except NotTranslatable as fault:
            return Bound(plain, plugin, fault=f"could not translate pv: {fault}")
        return Bound(plain) if translated == plain else Bound(plain, plugin, translated)

    def usable(self, volume: PersistentVolume, node: Node) -> bool:
        """Whether a bound volume can be used on a node."""
        bound = self.bound(volume)
        moved = bound.plugin in migrated_plugins(self.csi_nodes.get(node.metadata.name)) and not bound.fault
        return on_labels(self.terms(bound.translated if moved else bound.affinity), node.metadata.labels)

    def migrated(self, plugin: str, rows: Rows) -> Bools:
        """The rows whose nodes have migrated an in-tree plugin to its CSI driver."""
        leaving = [name for name, each in self.csi_nodes.items() if plugin in migrated_plugins(each)]
        row_of = self.tables.row_of
        return np.isin(rows, [row_of[name] for name in leaving if name in row_of])

    def affinity_number(self, terms: NodeTerms | None) -> int:
        number = self._affinity_numbers.get(terms)
        if number is None:
            number = self._affinity_numbers[terms] = len(self._affinities)
            self._affinities.append(terms)
        return number

    def terms(self, affinity: int) -> NodeTerms | None:
        return self._affinities[affinity]

    def supply(self, kind: ClaimKind) -> Supply:
        """The volumes that claims of a kind can take; updated until it is released."""
        found = self._supplies.get(kind)
        if found is None:
            found = self._supplies[kind] = Supply(self, kind)
            for name in self._of_class.get(kind.class_name, ()):
                found.put(self.volumes[name])
        found.holders += 1
        return found

    def release(self, supply: Supply) -> None:
        supply.holders -= 1
        if not supply.holders:
            del self._supplies[supply.kind]

    def _reference(self, name: str, volume: PersistentVolume | None) -> ObjectReference | None:
        if volume is None:
            return None
        return self._assumed_claims.get(name) or volume.spec.claim_ref

    def _refer(self, name: str, before: ObjectReference | None, after: ObjectReference | None) -> None:
        if before is not None:
            named = self._referring.get((before.namespace, before.name), set())
            named.discard(name)
            if not named:
                self._referring.pop((before.namespace, before.name), None)
        if after is not None:
            self._referring.setdefault((after.namespace, after.name), set()).add(name)

    def _supply_changed(self, name: str, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        classes = {class_of_volume(each) for each in (old, new) if each is not None}
        for supply in [each for each in self._supplies.values() if each.kind.class_name in classes]:
            left = supply.drop(name)
            come = None if new is None else supply.put(new)
            if left != come:
                self._concerned(supply, {each[0] for each in (left, come) if each is not None})

    def _concerned(self, supply: Supply, affinities: Iterable[int]) -> None:
        """Reports a change for the rows that can use volumes with these affinities; for all rows if they are many."""
        tables = self.tables
        for affinity in affinities:
            rows = tables.rows[on_rows(tables, self._affinities[affinity], tables.rows)]
            if len(rows) <= NARROW:
                tables.changed(rows=rows.tolist())
            else:
                supply.version += 1
                tables.changed(versions=True)


def catalogue_of(tables: Tables) -> VolumeCatalogue:
    found: VolumeCatalogue | None = tables.shared.get("volumes")
    if found is None:
        found = tables.shared["volumes"] = VolumeCatalogue(tables)
    return found


def _newer(old: Any, new: Any) -> bool:
    """Whether the new object has another resource version."""
    if old is None or new is None:
        return True
    before, after = old.metadata.resource_version, new.metadata.resource_version
    return not after or before != after


def _claims_of(pod: Pod) -> list[tuple[ObjectKey, bool]]:
    """The claims of a pod's volumes, and whether the pod names them. It does not name those of ephemeral volumes, which
    belong to it alone."""
    if not mounts_volumes(pod):
        return []
    namespace = pod.metadata.namespace
    return [
        ((namespace, name), volume.persistent_volume_claim is not None)
        for volume in pod.spec.volumes
        if (name := claim_name(pod, volume)) is not None
    ]
