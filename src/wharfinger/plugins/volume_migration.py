"""The drivers that were once part of Kubernetes, as the CSI drivers that took over from them (upstream's
csi-translation-lib): which driver serves a volume, and by which handle."""

from __future__ import annotations

from wharfinger.api.views import PersistentVolume
from wharfinger.api.views.pods import InTreeSources

MIGRATED = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
}
"""By the in-tree name, as storage classes give it."""

UNCOUNTED = frozenset({"kubernetes.io/azure-file", "kubernetes.io/vsphere-volume"})
"""Known in-tree names whose volumes are not counted by node limits."""

_ZONES = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
_REGIONS = ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region")


def csi_driver(provisioner: str) -> str:
    """The CSI driver behind a class' provisioner; empty where its volumes are not counted."""
    return "" if provisioner in UNCOUNTED else MIGRATED.get(provisioner, provisioner)


def csi_volume(sources: InTreeSources, volume: PersistentVolume | None = None) -> tuple[str, str] | None:
    """Driver and handle of an in-tree volume, of a pod or (when given) of a PersistentVolume; None for other volumes."""
    if sources.aws_elastic_block_store is not None:
        return MIGRATED["kubernetes.io/aws-ebs"], sources.aws_elastic_block_store.volume_id.rsplit("/", 1)[-1]
    if sources.gce_persistent_disk is not None:
        return MIGRATED["kubernetes.io/gce-pd"], _disk(sources.gce_persistent_disk.pd_name, volume)
    if sources.azure_disk is not None:
        return MIGRATED["kubernetes.io/azure-disk"], sources.azure_disk.disk_uri
    if sources.cinder is not None:
        return MIGRATED["kubernetes.io/cinder"], sources.cinder.volume_id
    if sources.portworx_volume is not None:
        return MIGRATED["kubernetes.io/portworx-volume"], sources.portworx_volume.volume_id
    return None


def _disk(name: str, volume: PersistentVolume | None) -> str:
    labels = {} if volume is None else volume.metadata.labels
    zones = next((labels[key] for key in _ZONES if key in labels), "UNSPECIFIED")
    if "__" in zones:
        region = next((labels[key] for key in _REGIONS if key in labels), zones.split("__")[0].rpartition("-")[0])
        return f"projects/UNSPECIFIED/regions/{region}/disks/{name}"
    return f"projects/UNSPECIFIED/zones/{zones}/disks/{name}"
