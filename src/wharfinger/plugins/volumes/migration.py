"""Translation of in-tree volumes to their CSI drivers, like upstream's csi-translation-lib: the driver, the volume handle
and the nodes on which the driver can use the volume."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from wharfinger.api.selectors import NodeSelector, NodeSelectorTerm, SelectorExpression
from wharfinger.api.views import CSINode, PersistentVolume
from wharfinger.api.views.pods import InTreeSources

MIGRATED_PLUGINS = "storage.alpha.kubernetes.io/migrated-plugins"

EBS, GCE_PD, CINDER = "kubernetes.io/aws-ebs", "kubernetes.io/gce-pd", "kubernetes.io/cinder"
AZURE_DISK, PORTWORX = "kubernetes.io/azure-disk", "kubernetes.io/portworx-volume"
MIGRATED = {
    EBS: "ebs.csi.aws.com",
    GCE_PD: "pd.csi.storage.gke.io",
    CINDER: "cinder.csi.openstack.org",
    AZURE_DISK: "disk.csi.azure.com",
    PORTWORX: "pxd.portworx.com",
}
"""In-tree plugin name, as in storage classes, to CSI driver."""

UNCOUNTED = frozenset({"kubernetes.io/azure-file", "kubernetes.io/vsphere-volume"})
"""In-tree plugins whose volumes do not count towards node limits."""

_TOPOLOGY = {
    EBS: "topology.ebs.csi.aws.com/zone",
    GCE_PD: "topology.gke.io/zone",
    CINDER: "topology.cinder.csi.openstack.org/zone",
}
"""The topology label of a driver; for other drivers the volume's own labels apply."""

_ZONE, _BETA_ZONE = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"
_REGION, _BETA_REGION = "topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"
_EBS_URL = re.compile(r"aws://[^/]*/*(vol-[^/]*)/*")


class NotTranslatable(ValueError):
    """An in-tree volume that its CSI driver cannot serve."""


def csi_driver(provisioner: str) -> str:
    """The CSI driver for the provisioner of a class; empty if its volumes do not count towards node limits."""
    return "" if provisioner in UNCOUNTED else MIGRATED.get(provisioner, provisioner)


def in_tree_plugin(sources: InTreeSources) -> str:
    """The in-tree plugin for a volume; empty for other volumes."""
    if sources.aws_elastic_block_store is not None:
        return EBS
    if sources.gce_persistent_disk is not None:
        return GCE_PD
    if sources.azure_disk is not None:
        return AZURE_DISK
    if sources.cinder is not None:
        return CINDER
    return PORTWORX if sources.portworx_volume is not None else ""


def migrated_plugins(csi_node: CSINode | None) -> frozenset[str]:
    """The in-tree plugins that a node has migrated to their CSI drivers."""
    text = "" if csi_node is None else csi_node.metadata.annotations.get(MIGRATED_PLUGINS, "")
    return frozenset(text.split(",")) if text else frozenset()


def csi_volume(sources: InTreeSources, volume: PersistentVolume | None = None) -> tuple[str, str] | None:
    """The driver and handle of an in-tree volume of a pod, or of a PersistentVolume if given; None for other volumes.
    Raises NotTranslatable."""
    plugin = in_tree_plugin(sources)
    return (MIGRATED[plugin], _handle(sources, volume)) if plugin else None


def _handle(sources: InTreeSources, volume: PersistentVolume | None) -> str:
    if sources.aws_elastic_block_store is not None:
        return _ebs_volume(sources.aws_elastic_block_store.volume_id)
    if sources.gce_persistent_disk is not None:
        return _disk(sources.gce_persistent_disk.pd_name, {} if volume is None else volume.metadata.labels)
    if sources.azure_disk is not None:
        kind = sources.azure_disk.kind
        if kind.lower() not in ("", "managed"):
            raise NotTranslatable(f"kind({kind}) is not supported in csi migration")
        return sources.azure_disk.disk_uri
    if sources.cinder is not None:
        return sources.cinder.volume_id
    return sources.portworx_volume.volume_id if sources.portworx_volume is not None else ""


def _ebs_volume(text: str) -> str:
    if not text.startswith("aws://"):
        return text
    found = _EBS_URL.fullmatch(text)
    if found is None:
        fault = f"Invalid format for AWS volume ({text})"
        raise NotTranslatable(f"failed to translate Kubernetes ID to EBS Volume ID {fault}")
    return found[1]


def _disk(name: str, labels: Mapping[str, str]) -> str:
    zones = (labels.get(_BETA_ZONE) or labels.get(_ZONE) or "UNSPECIFIED").split("__")
    if len(zones) == 1:
        return f"projects/UNSPECIFIED/zones/{zones[0]}/disks/{name}"
    regions = set()
    for zone in zones:
        parts = zone.split("-")
        if len(parts) != 3:
            fault = f"zone in unexpected format, expected: {{locale}}-{{region}}-{{zone}}, got: {zone}"
            raise NotTranslatable(f"failed to get region from zones: {fault}")
        regions.add("-".join(parts[:2]))
    if len(regions) != 1:
        fault = f"multiple or no regions gotten from zones, got: map[{' '.join(f'{each}:{{}}' for each in sorted(regions))}]"
        raise NotTranslatable(f"failed to get region from zones: {fault}")
    return f"projects/UNSPECIFIED/regions/{regions.pop()}/disks/{name}"


# -- node affinity


def translated_affinity(volume: PersistentVolume) -> NodeSelector | None:
    """The node affinity of an in-tree volume, translated for its CSI driver. Raises NotTranslatable."""
    _handle(volume.spec, volume)
    stated = volume.spec.node_affinity
    selector = None if stated is None else stated.required
    topology = _TOPOLOGY.get(in_tree_plugin(volume.spec))
    if topology is None:
        return selector
    beta = _uses_beta_labels(volume, selector)
    zone = _BETA_ZONE if beta else _ZONE
    if _values(selector, zone):
        selector = _renamed(selector, zone, topology)
    elif zone in volume.metadata.labels:
        selector = _with_zones(selector, topology, volume.metadata.labels[zone])
    if beta and _values(selector, _BETA_REGION):
        selector = _renamed(selector, _BETA_REGION, _REGION)
    return selector


def _uses_beta_labels(volume: PersistentVolume, selector: NodeSelector | None) -> bool:
    """Whether the volume uses the beta labels of zones and regions, in its affinity or else in its labels."""
    keys = {each.key for each in _expressions(selector)}
    for told in (keys, volume.metadata.labels):
        if _ZONE in told:
            return False
        if _BETA_ZONE in told:
            return True
    return False


def _expressions(selector: NodeSelector | None) -> list[SelectorExpression]:
    terms = () if selector is None else selector.node_selector_terms
    return [each for term in terms for each in term.match_expressions]


def _values(selector: NodeSelector | None, key: str) -> set[str]:
    return {value for each in _expressions(selector) if each.key == key for value in each.values}


def _renamed(selector: NodeSelector | None, old: str, new: str) -> NodeSelector:
    assert selector is not None
    replace = msgspec.structs.replace
    terms = [
        replace(
            term, match_expressions=tuple(replace(e, key=new) if e.key == old else e for e in term.match_expressions)
        )
        for term in selector.node_selector_terms
    ]
    return NodeSelector(tuple(terms))


def _with_zones(selector: NodeSelector | None, key: str, label: str) -> NodeSelector | None:
    """Adds the zones of the volume's label as a requirement to every term."""
    zones = sorted({zone.strip() for zone in label.split("__")} - {""})
    if not zones:
        return selector
    wanted = SelectorExpression(key, "In", tuple(zones))
    terms = (selector.node_selector_terms if selector is not None else ()) or (NodeSelectorTerm(),)
    return NodeSelector(
        tuple(msgspec.structs.replace(term, match_expressions=(*term.match_expressions, wanted)) for term in terms)
    )
