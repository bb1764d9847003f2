"""Builders of claims, volumes, classes and pods, and a simulated cluster with volume controllers."""

from __future__ import annotations

from typing import Any

from wharfinger.api.configuration import Configuration
from wharfinger.api.kinds.builtin import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
)
from wharfinger.api.registry import Resource
from wharfinger.scenario import applying
from wharfinger.scenario.document import ScenarioFault
from wharfinger.simulate.cluster import SimulatedCluster

Document = dict[str, Any]
START = 1767225600.0
ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
SELECTED = "volume.kubernetes.io/selected-node"


def node(name: str, zone: str = "z1") -> Document:
    room = {"cpu": "4", "memory": "32Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {HOST: name, ZONE: zone}},
        "status": {"allocatable": room, "capacity": room},
    }


def pod(name: str, *claims: str, ephemeral: str = "", **spec: Any) -> Document:
    volumes: list[Document] = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]
    if ephemeral:
        template = {"spec": claim("x", storage_class=ephemeral)["spec"]}
        volumes.append({"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i"}], "volumes": volumes, **spec},
    }


def claim(name: str, size: str = "5Gi", *, storage_class: str | None = "dynamic", **annotations: str) -> Document:
    spec: Document = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    if storage_class is not None:
        spec["storageClassName"] = storage_class
    told = {f"wharfinger.dev/{key.replace('_', '-')}": text for key, text in annotations.items()}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default", "annotations": told},
        "spec": spec,
    }


def volume(name: str, size: str = "10Gi", *, on: str = "", storage_class: str = "local", **spec: Any) -> Document:
    body: Document = {
        "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage_class,
        "hostPath": {"path": "/x"},
        **spec,
    }
    if on:
        terms = [{"matchExpressions": [{"key": HOST, "operator": "In", "values": [on]}]}]
        body["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": body}


def klass(
    name: str,
    provisioner: str = "disk.example.com",
    *,
    waits: bool = True,
    zones: list[str] | None = None,
    default: bool = False,
    **rest: Any,
) -> Document:
    found: Document = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer" if waits else "Immediate",
        **rest,
    }
    if default:
        found["metadata"]["annotations"] = {"storageclass.kubernetes.io/is-default-class": "true"}
    if zones is not None:
        found["allowedTopologies"] = [{"matchLabelExpressions": [{"key": ZONE, "values": zones}]}]
    return found


LOCAL = klass("local", "kubernetes.io/no-provisioner")
DRIVER = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "CSIDriver",
    "metadata": {"name": "disk.example.com"},
    "spec": {"storageCapacity": True},
}


def pool(zone: str, size: str) -> Document:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIStorageCapacity",
        "metadata": {"name": f"pool-{zone}", "namespace": "default"},
        "storageClassName": "dynamic",
        "nodeTopology": {"matchLabels": {ZONE: zone}},
        "capacity": size,
    }


_worlds: list[SimulatedCluster] = []


def close_worlds() -> None:
    while _worlds:
        _worlds.pop().close()


class Stage:
    """A simulated cluster with shortcuts for volumes."""

    def __init__(self, *documents: Document, **configuration: Any) -> None:
        self.world = SimulatedCluster(Configuration(**configuration), start=START)
        _worlds.append(self.world)
        self.world.start()
        self.client = self.world.client("", lambda warning: None)
        self.apply(*documents)

    def apply(self, *documents: Document) -> None:
        async def run() -> None:
            for document in documents:
                await applying.apply(self.client, document, self.world.registry)
            await self.world.settle()

        self.world.loop.complete(run())

    def start(self, *documents: Document) -> None:
        """Applies without waiting until the cluster is idle."""

        async def run() -> None:
            for document in documents:
                await applying.apply(self.client, document, self.world.registry)

        self.world.loop.complete(run())

    def patch(self, resource: Resource, name: str, change: Document, namespace: str = "default") -> None:
        async def run() -> None:
            await self.client.patch(resource, name, change, namespace)
            await self.world.settle()

        self.world.loop.complete(run())

    def delete(self, resource: Resource, name: str, namespace: str = "default") -> None:
        async def run() -> None:
            await self.client.delete(resource, name, namespace, grace_period=0)
            await self.world.settle()

        self.world.loop.complete(run())

    def fault(self, **fault: Any) -> None:
        self.world.loop.complete(self.world.fault(ScenarioFault(**fault)))

    def advance(self, seconds: float) -> None:
        async def run() -> None:
            await self.world.advance(self.world.loop.time() + seconds)
            await self.world.settle()

        self.world.loop.complete(run())

    def get(self, resource: Resource, name: str, namespace: str = "default") -> Document:
        found = self.world.store.peek(resource, name, namespace if resource.namespaced else "")
        assert found is not None, name
        return found.document()

    def node_of(self, name: str) -> str:
        return str(self.get(PODS, name)["spec"].get("nodeName", ""))

    def why(self, name: str) -> str:
        conditions = self.get(PODS, name)["status"].get("conditions", [])
        return next((each.get("message", "") for each in conditions if each["type"] == "PodScheduled"), "")

    def claim(self, name: str) -> Document:
        return self.get(PERSISTENT_VOLUME_CLAIMS, name)

    def volumes(self) -> dict[str, str]:
        """Names with their phases."""
        found = self.world.objects(PERSISTENT_VOLUMES)
        return {each["metadata"]["name"]: each["status"].get("phase", "") for each in found}

    def assumed(self) -> int:
        """What the scheduler has assumed for pods that are being bound."""
        assert self.world.scheduler is not None
        known = self.world.scheduler.engine.tables.shared["volumes"]
        return len(known.plans) + len(known._assumed_nodes) + len(known._assumed_claims)


NODES = (node("a", "z1"), node("b", "z2"))
