"""The service account of each program, with its cluster-wide and namespaced roles, and its share of the API server."""

from __future__ import annotations

from collections.abc import Sequence

from wharfinger.api.registry import Document
from wharfinger.api.rights import LEASES, RBAC
from wharfinger.contributions import RoleRule
from wharfinger.install.components import system_processes
from wharfinger.install.options import NAME, InstallOptions, full_name, labelled
from wharfinger.install.roles import cluster_rules

LEASE_NAMESPACE = "kube-system"


def access(process: str, options: InstallOptions) -> list[Document]:
    name = full_name(process)
    account = {"kind": "ServiceAccount", "name": name, "namespace": options.namespace}
    made: list[Document] = [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": options.namespace},
            "automountServiceAccountToken": False,  # only in the pods of the program, which ask for it
        },
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": f"system:{NAME}:{process}"},
            "rules": cluster_rules(process, options.components, NAME),
        },
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": f"system:{NAME}:{process}"},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": f"system:{NAME}:{process}"},
            "subjects": [account],
        },
    ]
    if process == "webhook":
        if not options.issuer:
            rules = (RoleRule("", "secrets", "create"), RoleRule("", "secrets", "get patch update", (name,)))
            made += _local_role(name, options.namespace, rules, account)
    elif lease := lease_of(process):
        rules = (RoleRule(LEASES, "leases", "create"), RoleRule(LEASES, "leases", "get patch update", (lease,)))
        made += _local_role(name, LEASE_NAMESPACE, rules, account)
    return [labelled(document) for document in made]


def lease_of(process: str) -> str:
    """The name of the lease with which a program elects a leader; empty if it elects none."""
    if process in ("webhook", "dashboard"):
        return ""
    own = system_processes().get(process)
    return own.lease if own is not None else full_name(process)


def _local_role(name: str, namespace: str, rules: Sequence[RoleRule], account: Document) -> list[Document]:
    metadata = {"name": name, "namespace": namespace}
    reference = {"apiGroup": RBAC, "kind": "Role", "name": name}
    return [
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "Role",
            "metadata": metadata,
            "rules": [each.document() for each in rules],
        },
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": reference,
            "subjects": [account],
        },
    ]


def flow_schemas(options: InstallOptions) -> list[Document]:
    """Without them, accounts outside kube-system share a low priority level, and a busy tenant would starve the
    scheduler."""
    subjects = [
        {"kind": "ServiceAccount", "serviceAccount": {"name": full_name(process), "namespace": options.namespace}}
        for process in options.processes
    ]
    leases = {"apiGroups": [LEASES], "resources": ["leases"], "verbs": ["create", "get", "patch", "update"]}
    everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"], "clusterScope": True}
    return [
        _flow_schema(f"{NAME}-leader-election", "leader-election", 190, subjects, leases),
        _flow_schema(NAME, "workload-high", 790, subjects, everything),
    ]


def _flow_schema(name: str, level: str, precedence: int, subjects: list[Document], rules: Document) -> Document:
    return labelled(
        {
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
            "kind": "FlowSchema",
            "metadata": {"name": name},
            "spec": {
                "distinguisherMethod": {"type": "ByUser"},
                "matchingPrecedence": precedence,
                "priorityLevelConfiguration": {"name": level},
                "rules": [{"subjects": subjects, "resourceRules": [{**rules, "namespaces": ["*"]}]}],
            },
        }
    )
