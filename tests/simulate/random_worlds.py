"""Random clusters with objects of all five systems, as manifests that people write."""

from __future__ import annotations

import random
from typing import Any

Document = dict[str, Any]
GPU = "nvidia.com/gpu"
SIGS = "scheduling.sigs.x-k8s.io/v1alpha1"
OCM = "cluster.open-cluster-management.io"
APPS = ("web", "db", "batch")


def cluster(rng: random.Random) -> list[Document]:
    """Nodes, workloads and objects of the systems."""
    nodes = [_node(rng, f"n{index}") for index in range(rng.randint(2, 5))]
    objects: list[Document] = [*nodes, *_classes(), *_quota(rng), *_fleet(rng), *_scheduling_policy(rng)]
    objects += [_resource_policy(rng, app) for app in APPS if rng.random() < 0.5]
    objects += [_reservation(rng, f"r{index}") for index in range(rng.randint(0, 2))]
    objects += [_priority("high", 100), _priority("low", -5)]
    for app in APPS:
        objects.append(_deployment(rng, app))
        if rng.random() < 0.3:
            objects.append(_budget(app))
    objects += [pod(rng, f"single-{index}") for index in range(rng.randint(1, 4))]
    return objects


def pod(rng: random.Random, name: str) -> Document:
    app = rng.choice(APPS)
    metadata = {"name": name, "namespace": "shop", "labels": {"app": app, "team": rng.choice("ab")}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": _spec(rng, app)}


def _node(rng: random.Random, name: str) -> Document:
    size = {"cpu": str(rng.choice((2, 4, 8))), "memory": "16Gi", "pods": str(rng.choice((3, 5, 110)))}
    labels = {"kubernetes.io/hostname": name, "pool": rng.choice("ab"), "zone": rng.choice("xy")}
    spec: Document = {"unschedulable": True} if rng.random() < 0.1 else {}
    if rng.random() < 0.2:
        spec["taints"] = [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]
    status: Document = {"allocatable": size, "capacity": size}
    if rng.random() < 0.5:
        devices = [f"{name}-{index}" for index in range(rng.randint(1, 3))]
        properties = {"type": rng.choice(("p100", "k80"))}
        status["computeResources"] = [{"resourceName": GPU, "properties": properties, "devices": devices}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": status,
    }


def _spec(rng: random.Random, app: str) -> Document:
    amounts = {"cpu": f"{rng.choice((250, 500, 1000, 3000))}m", "memory": "64Mi"}
    limits: Document = {}
    if rng.random() < 0.25:
        amounts["gold"] = limits["gold"] = str(rng.randint(1, 2))
    container: Document = {"name": "c", "image": "i", "resources": {"requests": amounts, "limits": limits}}
    if rng.random() < 0.1:
        container["ports"] = [{"containerPort": 80, "hostPort": 8080}]
    spec: Document = {"containers": [container]}
    if rng.random() < 0.2:
        spec["nodeSelector"] = {"pool": rng.choice("ab")}
    if rng.random() < 0.3:
        spec["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
    if rng.random() < 0.3:
        spec["priorityClassName"] = rng.choice(("high", "low"))
    if rng.random() < 0.2:
        term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}}
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    elif rng.random() < 0.2:
        spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
        spec["topologySpreadConstraints"] = [{**spread, "labelSelector": {"matchLabels": {"app": app}}}]
    return spec


def _deployment(rng: random.Random, app: str) -> Document:
    template = {"metadata": {"labels": {"app": app, "team": rng.choice("ab")}}, "spec": _spec(rng, app)}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": app, "namespace": "shop"},
        "spec": {"replicas": rng.randint(1, 4), "selector": {"matchLabels": {"app": app}}, "template": template},
    }


def _resource_policy(rng: random.Random, app: str) -> Document:
    units: list[Document] = []
    for index, pool in enumerate("ab"):
        unit = {"name": pool, "priority": 5 - index, "nodeSelector": {"matchLabels": {"pool": pool}}}
        units.append({**unit, "maxCount": rng.randint(0, 3)} if rng.random() < 0.7 else unit)
    spec: Document = {"podSelector": {"matchLabels": {"app": app}}, "units": units}
    spec["strategy"] = rng.choice(("required", "prefer"))
    if rng.random() < 0.5:
        spec["matchLabelKeys"] = ["team"]
    return {"apiVersion": SIGS, "kind": "ResourcePolicy", "metadata": {"name": app, "namespace": "shop"}, "spec": spec}


def _classes() -> list[Document]:
    selector = [{"matchExpressions": [{"key": "type", "operator": "In", "values": ["p100"]}]}]
    spec = {"resourceName": GPU, "resourceSelector": selector}
    return [{"apiVersion": SIGS, "kind": "ResourceClass", "metadata": {"name": "gold"}, "spec": spec}]


def _reservation(rng: random.Random, name: str) -> Document:
    amounts = {"cpu": str(rng.choice((1, 2, 9)))}
    template = {
        "metadata": {"namespace": "shop"},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": amounts}}]},
    }
    owners = [{"labelSelector": {"matchLabels": {"app": rng.choice(APPS)}}}]
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": name},
        "spec": {"template": template, "owners": owners, "ttl": "0s", "allocateOnce": rng.random() < 0.5},
    }


def _priority(name: str, value: int) -> Document:
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}


def _budget(app: str) -> Document:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": app, "namespace": "shop"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}},
    }


def _quota(rng: random.Random) -> list[Document]:
    metadata = {"name": "q", "namespace": "shop"}
    hard = {"pods": str(rng.choice((5, 100)))}
    return [{"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard}}]


def _fleet(rng: random.Random) -> list[Document]:
    members: list[Document] = [
        {
            "apiVersion": f"{OCM}/v1",
            "kind": "ManagedCluster",
            "metadata": {"name": f"c{index}", "labels": {"tier": rng.choice(("prod", "test"))}},
        }
        for index in range(3)
    ]
    binding = {
        "apiVersion": f"{OCM}/v1beta2",
        "kind": "ManagedClusterSetBinding",
        "metadata": {"name": "global", "namespace": "shop"},
        "spec": {"clusterSet": "global"},
    }
    selector = {"requiredClusterSelector": {"labelSelector": {"matchLabels": {"tier": "prod"}}}}
    placement = {
        "apiVersion": f"{OCM}/v1beta1",
        "kind": "Placement",
        "metadata": {"name": "p", "namespace": "shop"},
        "spec": {"numberOfClusters": rng.randint(1, 2), "predicates": [selector]},
    }
    return [*members, binding, placement]


def _scheduling_policy(rng: random.Random) -> list[Document]:
    """Every service account may use a policy that adds a toleration to pods without one."""
    default = {"tolerations": [{"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}]}
    rbac = "rbac.authorization.k8s.io"
    rule = {"apiGroups": [SIGS.split("/")[0]], "resources": ["schedulingpolicies"], "verbs": ["use"]}
    subject = {"kind": "Group", "apiGroup": rbac, "name": "system:serviceaccounts"}
    role = {"apiGroup": rbac, "kind": "ClusterRole", "name": "own"}
    spec = {"default": default} if rng.random() < 0.5 else {}
    return [
        {"apiVersion": SIGS, "kind": "SchedulingPolicy", "metadata": {"name": "own"}, "spec": spec},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "own"},
            "rules": [{**rule, "resourceNames": ["own", "privileged"]}],
        },
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "own"},
            "roleRef": role,
            "subjects": [subject],
        },
    ]
