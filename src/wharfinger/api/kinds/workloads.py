"""Kinds of the apps group: deployments and what else keeps pods running."""

from __future__ import annotations

from wharfinger.api.registry import Kind, Scale

DEPLOYMENTS = Kind(
    "apps", "Deployment", "deployments", short_names=("deploy",), categories=("all",), status=True, scale=Scale()
)
REPLICA_SETS = Kind(
    "apps",
    "ReplicaSet",
    "replicasets",
    short_names=("rs",),
    categories=("all",),
    status=True,
    scale=Scale(),
    selectable=("status.replicas",),
)
DAEMON_SETS = Kind("apps", "DaemonSet", "daemonsets", short_names=("ds",), categories=("all",), status=True)
STATEFUL_SETS = Kind(
    "apps", "StatefulSet", "statefulsets", short_names=("sts",), categories=("all",), status=True, scale=Scale()
)
CONTROLLER_REVISIONS = Kind("apps", "ControllerRevision", "controllerrevisions", generation=False)

KINDS = (DEPLOYMENTS, REPLICA_SETS, DAEMON_SETS, STATEFUL_SETS, CONTROLLER_REVISIONS)
