"""Random clusters for the tests of repacking."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

from wharfinger.api.kinds import registry
from wharfinger.simulate.inputs import Inputs, read_inputs

Amounts = tuple[int, int]  # milli cpu, MiB


def node(name: str, cpu: int, memory: int, **labels: str) -> dict[str, Any]:
    size = {"cpu": f"{cpu}m", "memory": f"{memory}Mi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels},
        "status": {"allocatable": size, "capacity": size, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def pod(name: str, where: str, cpu: int, memory: int, *, owner: str = "", **spec: Any) -> dict[str, Any]:
    requests = {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}
    container = {"name": "c", "image": "x", "resources": {"requests": requests}}
    metadata: dict[str, Any] = {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": {"app": name}}
    if owner:
        metadata["labels"] = {"app": owner}
        reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": f"uid-{owner}"}
        metadata["ownerReferences"] = [{**reference, "controller": True}]
    found: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [container], **spec},
    }
    if where:
        found["spec"]["nodeName"] = where
        conditions = [{"type": kind, "status": "True"} for kind in ("Ready", "PodScheduled")]
        found["status"] = {"phase": "Running", "conditions": conditions}
    return found


def replica_set(name: str, replicas: int, cpu: int, memory: int) -> dict[str, Any]:
    template = pod(name, "", cpu, memory)
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": template["spec"]},
        },
        "status": {"replicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas},
    }


def budget(app: str, available: int | str) -> dict[str, Any]:
    """A PodDisruptionBudget of the pods of a ReplicaSet."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": app, "namespace": "default", "uid": f"uid-budget-{app}"},
        "spec": {"minAvailable": available, "selector": {"matchLabels": {"app": app}}},
    }


def random_cluster(seed: int, nodes: int, load: float) -> list[dict[str, Any]]:
    """Nodes of three sizes, filled at random up to the load."""
    source = random.Random(seed)
    free: dict[str, list[int]] = {}
    objects = []
    for index in range(nodes):
        cpu = source.choice((4000, 8000, 16000))
        free[f"n{index}"] = [cpu, cpu * 4]
        objects.append(node(f"n{index}", cpu, cpu * 4))
    left = load * sum(cpu for cpu, _ in free.values())
    for number in range(10_000):
        if left <= 0:
            break
        cpu = source.choice((250, 500, 1000, 2000, 3000))
        memory, where = cpu * source.choice((1, 2, 4, 6)), source.choice(sorted(free))
        room = free[where]
        if cpu <= room[0] and memory <= room[1]:
            room[0], room[1], left = room[0] - cpu, room[1] - memory, left - cpu
            name = f"w{number}"
            objects += [replica_set(name, 1, cpu, memory), pod(f"{name}-0", where, cpu, memory, owner=name)]
    return objects


def inputs(objects: Sequence[dict[str, Any]]) -> Inputs:
    data = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}).encode()
    return read_inputs([("cluster.json", data)], registry())


def sizes(objects: Sequence[dict[str, Any]]) -> tuple[dict[str, Amounts], dict[str, tuple[str, Amounts]]]:
    """What a plain reading of the objects gives: nodes with their sizes, pods with their nodes and requests."""
    nodes, pods = dict[str, Amounts](), dict[str, tuple[str, Amounts]]()
    for each in objects:
        if each["kind"] == "Node":
            nodes[each["metadata"]["name"]] = _amounts(each["status"]["allocatable"])
        elif each["kind"] == "Pod" and "nodeName" in each["spec"]:
            requests = each["spec"]["containers"][0]["resources"]["requests"]
            pods[f"default/{each['metadata']['name']}"] = (each["spec"]["nodeName"], _amounts(requests))
    return nodes, pods


def _amounts(resources: dict[str, str]) -> Amounts:
    return int(resources["cpu"].removesuffix("m")), int(resources["memory"].removesuffix("Mi"))
