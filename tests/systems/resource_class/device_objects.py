"""Objects for tests of devices: few words for nodes, classes and pods."""

from __future__ import annotations

from typing import Any

from wharfinger.api.views import Node, Pod, view

Document = dict[str, Any]
GPU = "nvidia.com/gpu"


def resource(name: str, count: int, raw: str = GPU, healthy: int | None = None, **properties: str) -> Document:
    ids = [f"{name}-{index}" for index in range(count)]
    made: Document = {"name": name, "resourceName": raw, "properties": properties, "devices": ids}
    return made if healthy is None else {**made, "allocatableDevices": ids[:healthy]}


def machine(name: str, *resources: Document, classic: int = 0) -> Document:
    room = {"cpu": "64", "memory": "256Gi", "pods": "110", **({GPU: str(classic)} if classic else {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": name},
        "status": {"allocatable": room, "capacity": room, "computeResources": list(resources)},
    }


def expression(key: str, operator: str, *values: str) -> Document:
    made: Document = {"key": key, "operator": operator}
    return {**made, "values": list(values)} if values else made


def klass(name: str, *expressions: Document, raw: str = GPU, **spec: Any) -> Document:
    selector = [{"matchExpressions": list(expressions)}] if expressions else []
    return {
        "apiVersion": "scheduling.sigs.x-k8s.io/v1alpha1",
        "kind": "ResourceClass",
        "metadata": {"name": name},
        "spec": {"resourceName": raw, "resourceSelector": selector, **spec},
    }


def pod(name: str, devices: dict[str, int] | None = None, *, priority: int | None = None, **more: Any) -> Document:
    """A pod of one container `c`; `node`, `annotations`, `init` (devices of an init container), `spec`."""
    limits = {key: str(amount) for key, amount in (devices or {}).items()}
    spec: Document = {"containers": [{"name": "c", "image": "i", "resources": {"limits": limits, "requests": limits}}]}
    if "init" in more:
        amounts = {key: str(amount) for key, amount in more["init"].items()}
        spec["initContainers"] = [{"name": "i", "image": "i", "resources": {"limits": amounts, "requests": amounts}}]
    if priority is not None:
        spec["priority"] = priority
    if "node" in more:
        spec["nodeName"] = more["node"]
    metadata: Document = {"name": name, "namespace": "default", "uid": name}
    if "annotations" in more:
        metadata["annotations"] = more["annotations"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**spec, **more.get("spec", {})}}


def as_node(document: Document) -> Node:
    return view(document, Node)


def as_pod(document: Document) -> Pod:
    return view(document, Pod)
