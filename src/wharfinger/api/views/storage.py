"""Views of volumes, claims, storage classes and CSI."""

from __future__ import annotations

from msgspec import field

from wharfinger.api.selectors import LabelSelector, NodeSelector
from wharfinger.api.views.base import View
from wharfinger.api.views.core import ObjectReference
from wharfinger.api.views.meta import ObjectView
from wharfinger.api.views.pods import InTreeSources, Quantities, ResourceRequirements


class VolumeNodeAffinity(View, frozen=True):
    required: NodeSelector | None = None


class CsiVolumeSource(View, frozen=True):
    driver: str = ""
    volume_handle: str = ""


class PersistentVolumeSpec(InTreeSources, frozen=True):
    capacity: Quantities = field(default_factory=dict)
    access_modes: tuple[str, ...] = ()
    claim_ref: ObjectReference | None = None
    persistent_volume_reclaim_policy: str = "Retain"
    storage_class_name: str = ""
    volume_mode: str = "Filesystem"
    node_affinity: VolumeNodeAffinity | None = None
    csi: CsiVolumeSource | None = None
    volume_attributes_class_name: str = ""


class PersistentVolumeStatus(View, frozen=True):
    phase: str = ""


class PersistentVolume(ObjectView, frozen=True):
    spec: PersistentVolumeSpec = field(default_factory=PersistentVolumeSpec)
    status: PersistentVolumeStatus = field(default_factory=PersistentVolumeStatus)


class PersistentVolumeClaimSpec(View, frozen=True):
    access_modes: tuple[str, ...] = ()
    selector: LabelSelector | None = None
    resources: ResourceRequirements = field(default_factory=ResourceRequirements)
    volume_name: str = ""
    storage_class_name: str | None = None  # absent: the default class; empty: no class
    volume_mode: str = "Filesystem"
    volume_attributes_class_name: str = ""


class PersistentVolumeClaimStatus(View, frozen=True):
    phase: str = ""
    capacity: Quantities = field(default_factory=dict)


class PersistentVolumeClaim(ObjectView, frozen=True):
    spec: PersistentVolumeClaimSpec = field(default_factory=PersistentVolumeClaimSpec)
    status: PersistentVolumeClaimStatus = field(default_factory=PersistentVolumeClaimStatus)


class TopologyExpression(View, frozen=True):
    key: str = ""
    values: tuple[str, ...] = ()


class TopologyTerm(View, frozen=True):
    match_label_expressions: tuple[TopologyExpression, ...] = ()


class StorageClass(ObjectView, frozen=True):
    provisioner: str = ""
    reclaim_policy: str = "Delete"
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[TopologyTerm, ...] = ()


class VolumeNodeResources(View, frozen=True):
    count: int | None = None


class CsiNodeDriver(View, frozen=True):
    name: str = ""
    topology_keys: tuple[str, ...] = ()
    allocatable: VolumeNodeResources | None = None


class CsiNodeSpec(View, frozen=True):
    drivers: tuple[CsiNodeDriver, ...] = ()


class CSINode(ObjectView, frozen=True):
    spec: CsiNodeSpec = field(default_factory=CsiNodeSpec)


class CsiDriverSpec(View, frozen=True):
    storage_capacity: bool = False
    prevent_pod_scheduling_if_missing: bool = False


class CSIDriver(ObjectView, frozen=True):
    spec: CsiDriverSpec = field(default_factory=CsiDriverSpec)


class CSIStorageCapacity(ObjectView, frozen=True):
    node_topology: LabelSelector | None = None
    storage_class_name: str = ""
    capacity: str | int | float | None = None
    maximum_volume_size: str | int | float | None = None


class VolumeAttachmentSource(View, frozen=True):
    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(View, frozen=True):
    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = field(default_factory=VolumeAttachmentSource)


class VolumeAttachment(ObjectView, frozen=True):
    spec: VolumeAttachmentSpec = field(default_factory=VolumeAttachmentSpec)
