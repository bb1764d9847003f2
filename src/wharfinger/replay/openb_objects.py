"""A trace of the `openb` form as Kubernetes objects: GPUs are devices with a capacity that shares consume."""

from __future__ import annotations

from typing import Any

from wharfinger.plugins.device_packing.rooms import WHOLE, PodDemand
from wharfinger.replay.openb import OpenbNode, OpenbPod

Document = dict[str, Any]

DRIVER = "openb.wharfinger.dev"
DEVICE_CLASS = "openb-gpu"
CAPACITY = "milli"
MODEL = "model"
MOST_PODS = 1001  # on a node: no limit, as in the experiments with the trace


def device_class() -> Document:
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    return _object("resource.k8s.io/v1", "DeviceClass", {"name": DEVICE_CLASS}, spec={"selectors": [selector]})


def node_objects(node: OpenbNode) -> list[Document]:
    """The node, and the slice with its GPUs."""
    room = {"cpu": f"{node.cpu}m", "memory": f"{node.memory}Mi", "pods": str(MOST_PODS)}
    labels = {"kubernetes.io/hostname": node.name}
    made = [
        _object("v1", "Node", {"name": node.name, "labels": labels}, status={"capacity": room, "allocatable": room})
    ]
    if node.devices:
        devices = [
            {
                "name": f"gpu-{number}",
                "attributes": {MODEL: {"string": node.model}},
                "capacity": {CAPACITY: {"value": str(WHOLE)}},
                "allowMultipleAllocations": True,
            }
            for number in range(node.devices)
        ]
        spec = {
            "driver": DRIVER,
            "nodeName": node.name,
            "pool": {"name": node.name, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        }
        made.append(_object("resource.k8s.io/v1", "ResourceSlice", {"name": f"{node.name}-gpus"}, spec=spec))
    return made


def pod_objects(pod: OpenbPod, namespace: str = "default") -> list[Document]:
    """The pod, after the claim for its GPUs."""
    made: list[Document] = []
    requests = {"cpu": f"{pod.demand.cpu}m", "memory": f"{pod.memory}Mi"}
    container: Document = {"name": "main", "image": "openb", "resources": {"requests": requests}}
    spec: Document = {"containers": [container]}
    if pod.demand.devices:
        made.append(_claim(pod.name, pod.demand, namespace))
        spec["resourceClaims"] = [{"name": "gpus", "resourceClaimName": pod.name}]
        container["resources"]["claims"] = [{"name": "gpus"}]
    return [*made, _object("v1", "Pod", {"name": pod.name, "namespace": namespace}, spec=spec)]


def _claim(name: str, demand: PodDemand, namespace: str) -> Document:
    exactly: Document = {
        "deviceClassName": DEVICE_CLASS,
        "allocationMode": "ExactCount",
        "count": demand.devices,
        "capacity": {"requests": {CAPACITY: str(demand.milli)}},
    }
    if demand.models:
        allowed = ", ".join(f'"{model}"' for model in sorted(demand.models))
        expression = f'device.attributes["{DRIVER}"].{MODEL} in [{allowed}]'
        exactly["selectors"] = [{"cel": {"expression": expression}}]
    requests = [{"name": "gpus", "exactly": exactly}]
    metadata = {"name": name, "namespace": namespace}
    return _object("resource.k8s.io/v1", "ResourceClaim", metadata, spec={"devices": {"requests": requests}})


def _object(api_version: str, kind: str, metadata: Document, **parts: Document) -> Document:
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **parts}
