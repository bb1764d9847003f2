"""Kinds of the apps group."""

from __future__ import annotations

from wharfinger.api.columns import workloads as columns
from wharfinger.api.defaults import workloads as defaults
from wharfinger.api.defaults.walk import typed, with_status
from wharfinger.api.registry import Kind, Scale
from wharfinger.api.validation import workloads as rules
from wharfinger.api.validation.common import checked
from wharfinger.api.warnings import workloads as warnings

# A write to the status cannot change the spec, which was defaulted and validated before.

DEPLOYMENT = Kind(
    "apps", "Deployment", "deployments", pod_template="spec.template", short_names=("deploy",), categories=("all",),
    status=True, scale=Scale(), default=typed(defaults.default_deployment), default_status=typed(),
    validate=checked("apps/v1", "Deployment", rules.deployment_faults),
    validate_subresource={"status": checked("apps/v1", "Deployment")}, columns=columns.DEPLOYMENT_COLUMNS,
    prepare_create=with_status(), annotations_in_generation=True, prepare_status=defaults.keep_labels,
    warn=warnings.named_template_warnings,
)  # fmt: skip
REPLICA_SET = Kind(
    "apps", "ReplicaSet", "replicasets", pod_template="spec.template", short_names=("rs",), categories=("all",),
    status=True, scale=Scale(), selectable=("status.replicas",),
    default=typed(defaults.default_replica_set), default_status=typed(),
    validate=checked("apps/v1", "ReplicaSet", rules.replica_set_faults),
    validate_subresource={"status": checked("apps/v1", "ReplicaSet")}, columns=columns.REPLICA_SET_COLUMNS,
    prepare_create=with_status(replicas=0), warn=warnings.named_template_warnings,
)  # fmt: skip
DAEMON_SET = Kind(
    "apps", "DaemonSet", "daemonsets", pod_template="spec.template", short_names=("ds",), categories=("all",),
    status=True, default=typed(defaults.default_daemon_set), default_status=typed(),
    validate=checked("apps/v1", "DaemonSet", rules.daemon_set_faults),
    validate_subresource={"status": checked("apps/v1", "DaemonSet")}, columns=columns.DAEMON_SET_COLUMNS,
    prepare_create=defaults.prepare_daemon_set, prepare_update=defaults.count_templates,
    warn=warnings.template_warnings,
)  # fmt: skip
STATEFUL_SET = Kind(
    "apps", "StatefulSet", "statefulsets", pod_template="spec.template", short_names=("sts",), categories=("all",),
    status=True, scale=Scale(), default=typed(defaults.default_stateful_set), default_status=typed(),
    validate=checked("apps/v1", "StatefulSet", rules.stateful_set_faults),
    validate_subresource={"status": checked("apps/v1", "StatefulSet")}, columns=columns.STATEFUL_SET_COLUMNS,
    prepare_create=with_status(replicas=0, availableReplicas=0), warn=warnings.stateful_set_warnings,
)  # fmt: skip
CONTROLLER_REVISION = Kind(
    "apps", "ControllerRevision", "controllerrevisions", generation=False,
    validate=checked("apps/v1", "ControllerRevision", rules.controller_revision_faults),
    columns=columns.CONTROLLER_REVISION_COLUMNS,
)  # fmt: skip

KINDS = (DEPLOYMENT, REPLICA_SET, DAEMON_SET, STATEFUL_SET, CONTROLLER_REVISION)
