"""Workloads with devices: every node has some, and every pod claims of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Document = dict[str, Any]

DRIVER = "gpu.example.com"
DEVICES = 8  # of a node
KINDS = 20
_MEMORY = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0'


def device_class() -> Iterator[Document]:
    selectors = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
    yield {"kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {"selectors": selectors}}


def device_slice(node: Document, count: int = DEVICES) -> Iterator[Document]:
    """The devices of a node, two on each PCIe root."""
    name = node["metadata"]["name"]
    devices = [
        {
            "name": f"gpu-{index}",
            "attributes": {
                "model": {"string": "a100"},
                "index": {"int": index},
                "uuid": {"string": f"{name}-{index}"},
                "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{index // 2:02}"},
            },
            "capacity": {"memory": {"value": "80Gi" if index % 2 else "40Gi"}},
        }
        for index in range(count)
    ]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "pool": pool, "nodeName": name, "devices": devices}
    yield {"kind": "ResourceSlice", "metadata": {"name": f"{name}-gpu"}, "spec": spec}


def claims_of(pod: Document) -> Iterator[Document]:
    """A claim with one device for each that the pod names."""
    for number, reference in enumerate(pod["spec"]["resourceClaims"]):
        yield _claim(pod, reference["resourceClaimName"], [_exactly("gpu", 1)], number)


def varied_claims_of(pod: Document) -> Iterator[Document]:
    """Claims of one of twenty kinds, by the number of the pod: counts, alternatives, selectors and constraints differ."""
    kind = int(pod["metadata"]["name"].rsplit("-", 1)[-1]) % KINDS
    root = "resource.kubernetes.io/pcieRoot"
    for number, reference in enumerate(pod["spec"]["resourceClaims"]):
        requests = [_exactly("gpu", 1 + (kind + number) % 2)]
        constraints: list[Document] = []
        if kind % 3 == 0:
            requests[0]["exactly"]["selectors"] = [{"cel": {"expression": _MEMORY}}]
        if kind % 3 == 1:
            constraints = [{"matchAttribute": root}]
        if kind % 5 == 2:
            large = {"name": "large", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}
            small = {"name": "small", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
            requests = [{"name": "gpu", "firstAvailable": [large, small]}]
        yield _claim(pod, reference["resourceClaimName"], requests, number, constraints)


def _exactly(name: str, count: int) -> Document:
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    return {"name": name, "exactly": exactly}


def _claim(
    pod: Document, name: str, requests: list[Document], number: int, constraints: list[Document] | None = None
) -> Document:
    namespace = pod["metadata"]["namespace"]
    devices: Document = {"requests": requests} | ({"constraints": constraints} if constraints else {})
    metadata = {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}", "resourceVersion": "1"}
    return {"kind": "ResourceClaim", "metadata": metadata, "spec": {"devices": devices}}


def references(name: str, count: int) -> list[Document]:
    """What a pod says about its claims."""
    return [{"name": f"r{index}", "resourceClaimName": f"{name}-r{index}"} for index in range(count)]
