"""Kinds of the core group, the events group's Event among them (one storage under both groups)."""

from __future__ import annotations

from wharfinger.api.names import dns_label
from wharfinger.api.registry import Kind, Scale

PODS = Kind(
    "",
    "Pod",
    "pods",
    short_names=("po",),
    categories=("all",),
    status=True,
    subresources=("binding", "eviction", "ephemeralcontainers", "resize"),
    graceful=True,
    selectable=(
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
)
NODES = Kind(
    "",
    "Node",
    "nodes",
    namespaced=False,
    short_names=("no",),
    status=True,
    generation=False,
    selectable=("spec.unschedulable",),
)
NAMESPACES = Kind(
    "",
    "Namespace",
    "namespaces",
    namespaced=False,
    short_names=("ns",),
    verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
    status=True,
    subresources=("finalize",),
    generation=False,
    name_faults=dns_label,
    selectable=("status.phase",),
)
SERVICES = Kind(
    "",
    "Service",
    "services",
    short_names=("svc",),
    categories=("all",),
    status=True,
    generation=False,
    selectable=("spec.clusterIP", "spec.type"),
)
SERVICE_ACCOUNTS = Kind(
    "", "ServiceAccount", "serviceaccounts", short_names=("sa",), subresources=("token",), generation=False
)
SECRETS = Kind("", "Secret", "secrets", generation=False, selectable=("type",))
CONFIG_MAPS = Kind("", "ConfigMap", "configmaps", short_names=("cm",), generation=False)
PERSISTENT_VOLUMES = Kind(
    "",
    "PersistentVolume",
    "persistentvolumes",
    namespaced=False,
    short_names=("pv",),
    status=True,
    generation=False,
)
PERSISTENT_VOLUME_CLAIMS = Kind(
    "", "PersistentVolumeClaim", "persistentvolumeclaims", short_names=("pvc",), status=True, generation=False
)
REPLICATION_CONTROLLERS = Kind(
    "",
    "ReplicationController",
    "replicationcontrollers",
    short_names=("rc",),
    categories=("all",),
    status=True,
    scale=Scale(),
    selectable=("status.replicas",),
)
RESOURCE_QUOTAS = Kind("", "ResourceQuota", "resourcequotas", short_names=("quota",), status=True, generation=False)
LIMIT_RANGES = Kind("", "LimitRange", "limitranges", short_names=("limits",), generation=False)
ENDPOINTS = Kind("", "Endpoints", "endpoints", singular="endpoints", short_names=("ep",), generation=False)
POD_TEMPLATES = Kind("", "PodTemplate", "podtemplates")
EVENTS = Kind(
    "",
    "Event",
    "events",
    short_names=("ev",),
    generation=False,
    selectable=(
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
    alias_groups=("events.k8s.io",),
)
BINDINGS = Kind("", "Binding", "bindings", verbs=("create",), generation=False)

KINDS = (
    PODS,
    NODES,
    NAMESPACES,
    SERVICES,
    SERVICE_ACCOUNTS,
    SECRETS,
    CONFIG_MAPS,
    PERSISTENT_VOLUMES,
    PERSISTENT_VOLUME_CLAIMS,
    REPLICATION_CONTROLLERS,
    RESOURCE_QUOTAS,
    LIMIT_RANGES,
    ENDPOINTS,
    POD_TEMPLATES,
    EVENTS,
    BINDINGS,
)
