"""Defaults of core kinds other than pods."""

from __future__ import annotations

import base64

from wharfinger.api.defaults.pods import default_template, default_template_of
from wharfinger.api.defaults.walk import canonical_quantities, child, children, fill, fill_text, made_child, restore
from wharfinger.api.registry import Document


def default_node(document: Document) -> None:
    made_child(document, "spec")
    status = child(document, "status")
    canonical_quantities(status, "capacity", "allocatable")
    if "allocatable" not in status and child(status, "capacity"):
        status["allocatable"] = dict(status["capacity"])


def default_namespace(document: Document) -> None:
    metadata = child(document, "metadata")
    if isinstance(metadata.get("name"), str) and metadata["name"]:
        labels = made_child(metadata, "labels")
        labels["kubernetes.io/metadata.name"] = metadata["name"]
    fill_text(made_child(document, "status"), phase="Active")


NAMESPACE_FINALIZER = "kubernetes"


def prepare_namespace(document: Document) -> None:
    """A new namespace is active, and has the finalizer that the namespace controller removes."""
    document["status"] = {"phase": "Active"}
    spec = document["spec"] = dict(child(document, "spec"))
    given = spec.get("finalizers") or []
    if isinstance(given, list):
        spec["finalizers"] = given if NAMESPACE_FINALIZER in given else [*given, NAMESPACE_FINALIZER]


def keep_namespace_finalizers(new: Document, old: Document) -> None:
    """Finalizers of a namespace are written through its `finalize` subresource only."""
    restore(new, old, "spec", "finalizers")


def default_service(document: Document) -> None:
    spec = made_child(document, "spec")
    fill_text(spec, sessionAffinity="None", type="ClusterIP")
    if spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    elif spec["sessionAffinity"] == "ClientIP":
        fill(made_child(made_child(spec, "sessionAffinityConfig"), "clientIP"), timeoutSeconds=10800)
    for port in children(spec, "ports"):
        fill_text(port, protocol="TCP")
        if port.get("targetPort") in (None, 0, "") and "port" in port:
            port["targetPort"] = port["port"]
    kind = spec["type"]
    if kind in ("NodePort", "LoadBalancer"):
        fill_text(spec, externalTrafficPolicy="Cluster")
    if kind in ("ClusterIP", "NodePort", "LoadBalancer"):
        fill(spec, internalTrafficPolicy="Cluster")
    if kind == "LoadBalancer":
        fill(spec, allocateLoadBalancerNodePorts=True)
    fill(document, status={"loadBalancer": {}})


def default_secret(document: Document) -> None:
    fill_text(document, type="Opaque")
    plain = document.get("stringData")
    if isinstance(plain, dict) and all(isinstance(value, str) for value in plain.values()):
        # stringData is write-only: it is merged into data.
        data = made_child(document, "data")
        data.update({key: base64.b64encode(value.encode()).decode() for key, value in plain.items()})
        del document["stringData"]


def default_replication_controller(document: Document) -> None:
    spec = made_child(document, "spec")
    labels = child(child(child(spec, "template"), "metadata"), "labels")
    if labels:
        if not spec.get("selector"):
            spec["selector"] = dict(labels)
        metadata = child(document, "metadata")
        if not metadata.get("labels"):
            metadata["labels"] = dict(labels)
    fill(spec, replicas=1)
    default_template_of(spec)


def default_pod_template(document: Document) -> None:
    if child(document, "template"):
        default_template(child(document, "template"))


def default_quota(document: Document) -> None:
    canonical_quantities(child(document, "spec"), "hard")
    canonical_quantities(child(document, "status"), "hard", "used")


def default_limit_range(document: Document) -> None:
    for item in children(child(document, "spec"), "limits"):
        names = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
        canonical_quantities(item, *names)
        if item.get("type") == "Container":
            limits, requests = made_child(item, "default"), made_child(item, "defaultRequest")
            for name, quantity in child(item, "max").items():
                limits.setdefault(name, quantity)
            for source in (limits, child(item, "min")):
                for name, quantity in source.items():
                    requests.setdefault(name, quantity)


def default_endpoints(document: Document) -> None:
    for subset in children(document, "subsets"):
        for port in children(subset, "ports"):
            fill_text(port, protocol="TCP")


def default_volume(document: Document) -> None:
    spec = made_child(document, "spec")
    fill_text(spec, persistentVolumeReclaimPolicy="Retain")
    fill(spec, volumeMode="Filesystem")
    canonical_quantities(spec, "capacity")
    if isinstance(spec.get("hostPath"), dict):
        fill(spec["hostPath"], type="")
    fill_text(made_child(document, "status"), phase="Pending")


def default_claim(document: Document) -> None:
    spec = made_child(document, "spec")
    default_claim_spec(spec)
    status = made_child(document, "status")
    fill_text(status, phase="Pending")
    canonical_quantities(status, "capacity", "allocatedResources")


def default_claim_spec(spec: Document) -> None:
    fill(spec, volumeMode="Filesystem")
    canonical_quantities(child(spec, "resources"), "requests", "limits")


def default_event(document: Document) -> None:
    """Readers of events expect `source` and the reporter to be present."""
    fill(document, source={}, reportingComponent="", reportingInstance="")
