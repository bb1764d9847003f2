"""Kinds of the apps group: deployments and what else keeps pods running."""

from __future__ import annotations

from wharfinger.api.columns import workloads as columns
from wharfinger.api.defaults import workloads as defaults
from wharfinger.api.defaults.walk import typed, with_status
from wharfinger.api.registry import Kind, Scale
from wharfinger.api.validation import workloads as rules
from wharfinger.api.validation.common import checked

DEPLOYMENTS = Kind(
    "apps",
    "Deployment",
    "deployments",
    pod_template="spec.template",
    short_names=("deploy",),
    categories=("all",),
    status=True,
    scale=Scale(),
    default=typed(defaults.default_deployment),
    validate=checked("apps/v1", "Deployment", rules.deployment_faults),
    columns=columns.DEPLOYMENT_COLUMNS,
    prepare_create=with_status(),
)
REPLICA_SETS = Kind(
    "apps",
    "ReplicaSet",
    "replicasets",
    pod_template="spec.template",
    short_names=("rs",),
    categories=("all",),
    status=True,
    scale=Scale(),
    selectable=("status.replicas",),
    default=typed(defaults.default_replica_set),
    validate=checked("apps/v1", "ReplicaSet", rules.replica_set_faults),
    columns=columns.REPLICA_SET_COLUMNS,
    prepare_create=with_status(replicas=0),
)
DAEMON_SETS = Kind(
    "apps",
    "DaemonSet",
    "daemonsets",
    pod_template="spec.template",
    short_names=("ds",),
    categories=("all",),
    status=True,
    default=typed(defaults.default_daemon_set),
    validate=checked("apps/v1", "DaemonSet", rules.daemon_set_faults),
    columns=columns.DAEMON_SET_COLUMNS,
    prepare_create=with_status(currentNumberScheduled=0, numberMisscheduled=0, desiredNumberScheduled=0, numberReady=0),
)
STATEFUL_SETS = Kind(
    "apps",
    "StatefulSet",
    "statefulsets",
    pod_template="spec.template",
    short_names=("sts",),
    categories=("all",),
    status=True,
    scale=Scale(),
    default=typed(defaults.default_stateful_set),
    validate=checked("apps/v1", "StatefulSet", rules.stateful_set_faults),
    columns=columns.STATEFUL_SET_COLUMNS,
    prepare_create=with_status(replicas=0, availableReplicas=0),
)
CONTROLLER_REVISIONS = Kind(
    "apps",
    "ControllerRevision",
    "controllerrevisions",
    generation=False,
    validate=checked("apps/v1", "ControllerRevision", rules.controller_revision_faults),
    columns=columns.CONTROLLER_REVISION_COLUMNS,
)

KINDS = (DEPLOYMENTS, REPLICA_SETS, DAEMON_SETS, STATEFUL_SETS, CONTROLLER_REVISIONS)
