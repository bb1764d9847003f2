"""What score producers and the agents of clusters may do, and the manifests that give an agent its rights.

An agent reads and writes its own ManagedCluster and the lease and scores in its own namespace; it sees nothing of other
clusters. On its member it only reads what the scheduler reads.
"""

from __future__ import annotations

import wharfinger
from wharfinger.api.registry import Document, Registry
from wharfinger.api.rights import AUTOUPDATE, LEASES, RBAC, READ
from wharfinger.contributions import RoleRule
from wharfinger.engine import Engine
from wharfinger.scheduler import profiles
from wharfinger.scheduler.feed import OTHERS
from wharfinger.systems.placement.kinds.names import MANAGED_CLUSTERS, OCM

MANAGED_BY = {"app.kubernetes.io/managed-by": "wharfinger"}
PRODUCER, AGENT = "system:wharfinger:score-producer", "system:wharfinger:cluster-agent"
MEMBER = "system:wharfinger:member"  # of the agents on their member, which may be the hub itself
ACCOUNT = "wharfinger-cluster-agent"
HUB_SECRET, NODE_GROUPS = "wharfinger-hub", "wharfinger-node-groups"
LEASE = "managed-cluster-lease"
IMAGE = f"wharfinger:{wharfinger.__version__}"

_SCORES = (
    RoleRule(OCM, "addonplacementscores", f"create patch {READ}"),
    RoleRule(OCM, "addonplacementscores/status", "patch"),
)
_PRODUCER_RULES = (*_SCORES, RoleRule(OCM, "managedclusters", "get"))
_AGENT_RULES = (*_SCORES, RoleRule(LEASES, "leases", "get patch", (LEASE,)))


def shared_roles() -> tuple[Document, ...]:
    """Roles that no cluster is named in: for producers on the hub, and for agents in the namespace of their cluster."""
    return _cluster_role(PRODUCER, _PRODUCER_RULES, shared=True), _cluster_role(AGENT, _AGENT_RULES, shared=True)


def hub_manifests(cluster: str) -> list[Document]:
    """Accepts a cluster, and gives its agent an account with the rights that it needs on the hub."""
    account = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": cluster}
    own = f"{AGENT}:{cluster}"
    rules = (
        RoleRule(OCM, "managedclusters", READ, (cluster,)),
        RoleRule(OCM, "managedclusters/status", "patch", (cluster,)),
    )
    return [
        # First: the hub creates the namespace of an accepted cluster, too.
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": cluster, "labels": {"open-cluster-management.io/cluster-name": cluster}},
        },
        {
            "apiVersion": MANAGED_CLUSTERS.api_version,
            "kind": MANAGED_CLUSTERS.kind,
            "metadata": {"name": cluster},
            "spec": {"hubAcceptsClient": True},
        },
        _account(cluster),
        shared_roles()[1],
        _cluster_role(own, rules),
        _binding("ClusterRoleBinding", {"name": own}, own, account),
        _binding("RoleBinding", {"name": ACCOUNT, "namespace": cluster}, AGENT, account),
    ]


def member_manifests(
    cluster: str, registry: Registry, *, namespace: str = "wharfinger-system", image: str = IMAGE
) -> list[Document]:
    """Runs the agent of a cluster on it. A kubeconfig for the hub is expected in the Secret `wharfinger-hub`; the
    ConfigMap `wharfinger-node-groups` may hold node groups."""
    account = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": MANAGED_BY}},
        _account(namespace),
        _cluster_role(MEMBER, member_rules(registry)),
        _binding("ClusterRoleBinding", {"name": MEMBER}, MEMBER, account),
        _deployment(cluster, namespace, image),
    ]


def member_rules(registry: Registry) -> tuple[RoleRule, ...]:
    """What the engine follows, and the namespace that identifies a cluster."""
    engine = Engine(profiles.load({}).profiles)
    observed = {
        kind for profile in engine.profiles.values() for plugin in profile.plugins.values() for kind in plugin.kinds
    }
    groups: dict[str, set[str]] = {}
    for name in {*observed, *OTHERS, "Node", "Pod"}:
        kind = registry.find(name)
        assert kind is not None
        groups.setdefault(kind.group, set()).add(kind.plural)
    return tuple(RoleRule(group, " ".join(sorted(plurals)), READ) for group, plurals in sorted(groups.items()))


def _account(namespace: str) -> Document:
    metadata = {"name": ACCOUNT, "namespace": namespace, "labels": MANAGED_BY}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}


def _cluster_role(name: str, rules: tuple[RoleRule, ...], *, shared: bool = False) -> Document:
    metadata: Document = {"name": name, "labels": MANAGED_BY}
    if shared:
        metadata["annotations"] = {AUTOUPDATE: "true"}
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": metadata,
        "rules": [rule.document() for rule in rules],
    }


def _binding(kind: str, metadata: Document, role: str, account: Document) -> Document:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": kind,
        "metadata": {**metadata, "labels": MANAGED_BY},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [account],
    }


def _deployment(cluster: str, namespace: str, image: str) -> Document:
    labels = {"app.kubernetes.io/name": "wharfinger", "app.kubernetes.io/component": "cluster-agent"}
    hub = ["--cluster-name", cluster, "--hub-kubeconfig", "/etc/wharfinger/hub/kubeconfig"]
    mounts = [{"name": "hub", "mountPath": "/etc/wharfinger/hub", "readOnly": True}]
    groups = {"name": "node-groups", "mountPath": "/etc/wharfinger/node-groups", "readOnly": True}
    containers = [
        _container("agent", image, ["score", "agent", *hub], mounts),
        _container(
            "capacity", image, ["score", "capacity", *hub, "--node-group", groups["mountPath"]], [*mounts, groups]
        ),
    ]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": ACCOUNT, "namespace": namespace, "labels": {**labels, **MANAGED_BY}},
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": {**labels, **MANAGED_BY}},
                "spec": {
                    "serviceAccountName": ACCOUNT,
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": 65532,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": containers,
                    "volumes": [
                        {"name": "hub", "secret": {"secretName": HUB_SECRET}},
                        {"name": "node-groups", "configMap": {"name": NODE_GROUPS, "optional": True}},
                    ],
                },
            },
        },
    }


def _container(name: str, image: str, arguments: list[object], mounts: list[Document]) -> Document:
    return {
        "name": name,
        "image": image,
        "args": arguments,
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }
