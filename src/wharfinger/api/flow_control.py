"""The FlowSchemas and PriorityLevelConfigurations that every cluster has, as kube-apiserver makes them."""

from __future__ import annotations

from functools import cache
from typing import Any

from wharfinger.api.registry import Document

VERSION = "flowcontrol.apiserver.k8s.io/v1"
AUTO_UPDATE = "apf.kubernetes.io/autoupdate-spec"
MANDATORY = ("exempt", "catch-all")
"""The names of the objects of either kind that must exist with a fixed spec; the others are suggestions."""

_ALL_RESOURCES: Document = {
    "verbs": ["*"],
    "apiGroups": ["*"],
    "resources": ["*"],
    "clusterScope": True,
    "namespaces": ["*"],
}
_ALL_PATHS: Document = {"verbs": ["*"], "nonResourceURLs": ["*"]}
_LEASES: Document = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "namespaces": ["*"]}
_NODES: Document = {**_ALL_RESOURCES, "apiGroups": [""], "resources": ["nodes", "nodes/status"]}
_PROBES: Document = {"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]}


@cache
def priority_levels() -> tuple[Document, ...]:
    """All PriorityLevelConfigurations."""
    exempt = {"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}}
    return (
        _object("PriorityLevelConfiguration", "exempt", exempt),
        _limited("catch-all", 5, 0, None),
        _limited("system", 30, 33, (64, 6)),
        _limited("node-high", 40, 25, (64, 6)),
        _limited("leader-election", 10, 0, (16, 4)),
        _limited("workload-high", 40, 50, (128, 6)),
        _limited("workload-low", 100, 90, (128, 6)),
        _limited("global-default", 20, 50, (128, 6)),
    )


@cache
def flow_schemas() -> tuple[Document, ...]:
    """All FlowSchemas."""
    everybody = (*_groups("system:unauthenticated"), *_groups("system:authenticated"))
    system_accounts = ({"kind": "ServiceAccount", "serviceAccount": {"namespace": "kube-system", "name": "*"}},)
    nodes = _groups("system:nodes")
    manager, scheduler = _users("system:kube-controller-manager"), _users("system:kube-scheduler")
    leases = {"verbs": ["get", "create", "update"], **_LEASES}
    node_rules = [_NODES, {"verbs": ["*"], **_LEASES}]
    return (
        _schema("exempt", "exempt", 1, "", _groups("system:masters")),
        _schema("catch-all", "catch-all", 10000, "ByUser", everybody),
        _schema("probes", "exempt", 2, "", everybody, resources=[], paths=[_PROBES]),
        _schema(
            "system-leader-election",
            "leader-election",
            100,
            "ByUser",
            (*manager, *scheduler, *system_accounts),
            resources=[leases],
            paths=[],
        ),
        _schema("system-node-high", "node-high", 400, "ByUser", nodes, resources=node_rules, paths=[]),
        _schema("system-nodes", "system", 500, "ByUser", nodes),
        _schema("kube-controller-manager", "workload-high", 800, "ByNamespace", manager),
        _schema("kube-scheduler", "workload-high", 800, "ByNamespace", scheduler),
        _schema("kube-system-service-accounts", "workload-high", 900, "ByNamespace", system_accounts),
        _schema("service-accounts", "workload-low", 9000, "ByUser", _groups("system:serviceaccounts")),
        _schema("global-default", "global-default", 9900, "ByUser", everybody),
    )


def _object(kind: str, name: str, spec: Document) -> Document:
    metadata = {"name": name, "annotations": {AUTO_UPDATE: "true"}}
    return {"apiVersion": VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def _limited(name: str, shares: int, lendable: int, queues: tuple[int, int] | None) -> Document:
    """`queues` are their number and the hand size; None rejects what is too much at once."""
    response: Document = {"type": "Reject"}
    if queues is not None:
        number, hand = queues
        response = {"type": "Queue", "queuing": {"queues": number, "handSize": hand, "queueLengthLimit": 50}}
    limited = {"nominalConcurrencyShares": shares, "limitResponse": response, "lendablePercent": lendable}
    return _object("PriorityLevelConfiguration", name, {"type": "Limited", "limited": limited})


def _schema(
    name: str,
    level: str,
    precedence: int,
    distinguisher: str,
    subjects: tuple[Document, ...],
    *,
    resources: list[Document] | None = None,
    paths: list[Document] | None = None,
) -> Document:
    rule: dict[str, Any] = {"subjects": list(subjects)}
    if resources := [_ALL_RESOURCES] if resources is None else resources:
        rule["resourceRules"] = resources
    if paths := [_ALL_PATHS] if paths is None else paths:
        rule["nonResourceRules"] = paths
    spec: Document = {"priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence}
    if distinguisher:
        spec["distinguisherMethod"] = {"type": distinguisher}
    return _object("FlowSchema", name, {**spec, "rules": [rule]})


def _groups(name: str) -> tuple[Document, ...]:
    return ({"kind": "Group", "group": {"name": name}},)


def _users(name: str) -> tuple[Document, ...]:
    return ({"kind": "User", "user": {"name": name}},)
