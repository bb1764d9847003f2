"""Kinds of the core group, with Event, which `events.k8s.io` serves too."""

from __future__ import annotations

from collections.abc import Iterator

from wharfinger.api.columns import core as columns
from wharfinger.api.columns.pods import NODE_COLUMNS, POD_COLUMNS
from wharfinger.api.defaults import core as defaults
from wharfinger.api.defaults.pods import default_pod, default_pod_status, keep_pod_status, prepare_pod
from wharfinger.api.defaults.walk import typed, with_status
from wharfinger.api.events import convert_event
from wharfinger.api.fields import FieldError
from wharfinger.api.names import dns_label
from wharfinger.api.registry import Document, Kind, Scale
from wharfinger.api.validation import core as rules
from wharfinger.api.validation import pods
from wharfinger.api.validation.common import checked
from wharfinger.api.validation.endpoints import endpoints_faults
from wharfinger.api.validation.pods import template_faults
from wharfinger.api.validation.services import service_faults
from wharfinger.api.validation.workloads import replication_controller_faults
from wharfinger.api.warnings import core as warnings
from wharfinger.api.warnings import storage as storage_warnings
from wharfinger.api.warnings import workloads as workload_warnings


def _template(document: Document, old: Document | None) -> Iterator[FieldError]:
    yield from template_faults(document.get("template") or {}, "template")


POD = Kind(
    "", "Pod", "pods", short_names=("po",), categories=("all",), status=True,
    subresources=("binding", "eviction", "ephemeralcontainers", "resize", "log", "exec", "attach", "portforward", "proxy"),
    graceful=True,
    selectable=(
        "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork",
        "status.phase", "status.podIP", "status.nominatedNodeName",
    ),
    indexed=("spec.nodeName",),
    default=default_pod, default_status=default_pod_status, prepare_create=prepare_pod,
    validate=pods.pod_validator(),
    validate_subresource={
        "status": pods.pod_status_validator(), "resize": pods.pod_resize_validator(),
        "ephemeralcontainers": pods.pod_ephemeral_validator(),
    },
    columns=POD_COLUMNS, returns_deleted=True, prepare_status=keep_pod_status, warn=workload_warnings.pod_warnings,
)  # fmt: skip
NODE = Kind(
    "", "Node", "nodes", namespaced=False, short_names=("no",), status=True, subresources=("proxy",), generation=False,
    selectable=("spec.unschedulable",), default=typed(defaults.default_node),
    validate=checked("v1", "Node", rules.node_faults), columns=NODE_COLUMNS, status_on_create=True,
    warn=warnings.node_warnings,
)  # fmt: skip
NAMESPACE = Kind(
    "", "Namespace", "namespaces", namespaced=False, short_names=("ns",),
    verbs=("create", "delete", "get", "list", "patch", "update", "watch"), status=True, subresources=("finalize",),
    generation=False, name_faults=dns_label, selectable=("status.phase",), default=typed(defaults.default_namespace),
    validate=checked("v1", "Namespace", rules.namespace_faults), columns=columns.NAMESPACE_COLUMNS,
    returns_deleted=True, prepare_create=defaults.prepare_namespace,
    prepare_update=defaults.keep_namespace_finalizers,
)  # fmt: skip
SERVICE = Kind(
    "", "Service", "services", short_names=("svc",), categories=("all",), status=True, subresources=("proxy",),
    generation=False, selectable=("spec.clusterIP", "spec.type"), default=typed(defaults.default_service),
    validate=checked("v1", "Service", service_faults), columns=columns.SERVICE_COLUMNS, create_on_update=True,
    returns_deleted=True, warn=warnings.service_warnings,
)  # fmt: skip
SERVICE_ACCOUNT = Kind(
    "", "ServiceAccount", "serviceaccounts", short_names=("sa",), subresources=("token",), generation=False,
    default=typed(), validate=checked("v1", "ServiceAccount"), columns=columns.SERVICE_ACCOUNT_COLUMNS,
    returns_deleted=True, warn=warnings.service_account_warnings,
)  # fmt: skip
SECRET = Kind(
    "", "Secret", "secrets", generation=False, selectable=("type",), default=typed(defaults.default_secret),
    validate=checked("v1", "Secret", rules.secret_faults), columns=columns.SECRET_COLUMNS,
    warn=warnings.secret_warnings,
    in_snapshots=False,
)  # fmt: skip
CONFIG_MAP = Kind(
    "", "ConfigMap", "configmaps", short_names=("cm",), generation=False, default=typed(),
    validate=checked("v1", "ConfigMap", rules.config_map_faults), columns=columns.CONFIG_MAP_COLUMNS,
    in_snapshots=False,
)  # fmt: skip
PERSISTENT_VOLUME = Kind(
    "", "PersistentVolume", "persistentvolumes", namespaced=False, short_names=("pv",), status=True,
    generation=False, default=typed(defaults.default_volume),
    validate=checked("v1", "PersistentVolume", rules.volume_faults), columns=columns.VOLUME_COLUMNS,
    returns_deleted=True, warn=storage_warnings.volume_warnings,
)  # fmt: skip
PERSISTENT_VOLUME_CLAIM = Kind(
    "", "PersistentVolumeClaim", "persistentvolumeclaims", short_names=("pvc",), status=True, generation=False,
    default=typed(defaults.default_claim), validate=checked("v1", "PersistentVolumeClaim", rules.claim_faults),
    columns=columns.CLAIM_COLUMNS, returns_deleted=True, warn=storage_warnings.claim_warnings,
)  # fmt: skip
REPLICATION_CONTROLLER = Kind(
    "", "ReplicationController", "replicationcontrollers", pod_template="spec.template", short_names=("rc",),
    categories=("all",), status=True, scale=Scale(), selectable=("status.replicas",),
    default=typed(defaults.default_replication_controller),
    validate=checked("v1", "ReplicationController", replication_controller_faults),
    columns=columns.REPLICATION_CONTROLLER_COLUMNS, prepare_create=with_status(replicas=0),
    warn=workload_warnings.named_template_warnings, orphans=True,
)  # fmt: skip
RESOURCE_QUOTA = Kind(
    "", "ResourceQuota", "resourcequotas", short_names=("quota",), status=True, generation=False,
    default=typed(defaults.default_quota), validate=rules.quota_validator(), columns=columns.QUOTA_COLUMNS,
    returns_deleted=True, warn=warnings.quota_warnings,
)  # fmt: skip
LIMIT_RANGE = Kind(
    "", "LimitRange", "limitranges", short_names=("limits",), generation=False,
    default=typed(defaults.default_limit_range), validate=checked("v1", "LimitRange", rules.limit_range_faults),
    columns=columns.LIMIT_RANGE_COLUMNS, create_on_update=True,
)  # fmt: skip
ENDPOINTS_KIND = Kind(
    "", "Endpoints", "endpoints", singular="endpoints", short_names=("ep",), generation=False,
    default=typed(defaults.default_endpoints), validate=checked("v1", "Endpoints", endpoints_faults),
    columns=columns.ENDPOINTS_COLUMNS, create_on_update=True,
    deprecated="v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
    in_snapshots=False,
)  # fmt: skip
POD_TEMPLATE = Kind(
    "", "PodTemplate", "podtemplates", pod_template="template", default=typed(defaults.default_pod_template),
    validate=checked("v1", "PodTemplate", _template), columns=columns.POD_TEMPLATE_COLUMNS, returns_deleted=True,
    warn=workload_warnings.pod_template_warnings,
    in_snapshots=False,
)  # fmt: skip
EVENT = Kind(
    "", "Event", "events", short_names=("ev",), generation=False,
    selectable=(
        "involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
        "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath",
        "reason", "reportingComponent", "source", "type",
    ),
    alias_groups=("events.k8s.io",), convert_group=convert_event, default=typed(defaults.default_event),
    validate=checked("v1", "Event", rules.event_faults), columns=columns.EVENT_COLUMNS, create_on_update=True,
    in_snapshots=False,
)  # fmt: skip
BINDING = Kind(
    "", "Binding", "bindings", verbs=("create",), generation=False, default=typed(),
    validate=checked("v1", "Binding"),
)  # fmt: skip

KINDS = (
    POD,
    NODE,
    NAMESPACE,
    SERVICE,
    SERVICE_ACCOUNT,
    SECRET,
    CONFIG_MAP,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    REPLICATION_CONTROLLER,
    RESOURCE_QUOTA,
    LIMIT_RANGE,
    ENDPOINTS_KIND,
    POD_TEMPLATE,
    EVENT,
    BINDING,
)
