"""Builders of claims, volumes and classes for the tests of the volume plugins."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from wharfinger.api.views import Node, Pod, view
from wharfinger.engine import Engine

Document = dict[str, Any]

HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
SELECTED = "volume.kubernetes.io/selected-node"
COMPLETED = "pv.kubernetes.io/bind-completed"


def node(name: str, **labels: str) -> Node:
    """`named` are labels: `zone` stands for the zone label, everything else for itself."""
    named = {ZONE if key == "zone" else key: value for key, value in labels.items()}
    room = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    return view({"metadata": {"name": name, "labels": {HOST: name, **named}}, "status": {"allocatable": room}}, Node)


def volume(
    name: str,
    size: str = "10Gi",
    *,
    storage_class: str = "",
    only: dict[str, list[str]] | None = None,
    modes: Iterable[str] = ("ReadWriteOnce",),
    claim: str = "",
    uid: str = "",
    phase: str = "Available",
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> Document:
    """`only` are the node labels of its node affinity; `claim` is its claimRef, as namespace/name."""
    body: Document = {
        "capacity": {"storage": size},
        "accessModes": list(modes),
        "storageClassName": storage_class,
        "csi": {"driver": "disk.example.com", "volumeHandle": name},
        **spec,
    }
    if only is not None:
        terms = [{"key": key, "operator": "In", "values": values} for key, values in only.items()]
        body["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": terms}]}}
    if claim:
        namespace, _, own = claim.partition("/")
        body["claimRef"] = {"namespace": namespace, "name": own, **({"uid": uid} if uid else {})}
    return {
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": body,
        "status": {"phase": phase},
    }


def claim(
    name: str,
    size: str = "5Gi",
    *,
    storage_class: str | None = "local",
    bound: str = "",
    modes: Iterable[str] = ("ReadWriteOnce",),
    selected: str = "",
    namespace: str = "default",
    phase: str = "Pending",
    deleted: bool = False,
    owner: str = "",
    **spec: Any,
) -> Document:
    annotations = ({COMPLETED: "yes"} if bound else {}) | ({SELECTED: selected} if selected else {})
    metadata: Document = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{name}",
        "annotations": annotations,
    }
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if owner:
        metadata["ownerReferences"] = [{"kind": "Pod", "name": "p", "uid": owner, "controller": True}]
    body: Document = {
        "accessModes": list(modes),
        "resources": {"requests": {"storage": size}},
        **({"storageClassName": storage_class} if storage_class is not None else {}),
        **({"volumeName": bound} if bound else {}),
        **spec,
    }
    return {
        "kind": "PersistentVolumeClaim",
        "metadata": metadata,
        "spec": body,
        "status": {"phase": "Bound" if bound else phase},
    }


def storage_class(
    name: str,
    provisioner: str = "kubernetes.io/no-provisioner",
    *,
    waits: bool = True,
    topologies: list[dict[str, list[str]]] | None = None,
) -> Document:
    found: Document = {
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer" if waits else "Immediate",
    }
    if topologies is not None:
        found["allowedTopologies"] = [
            {"matchLabelExpressions": [{"key": key, "values": values} for key, values in term.items()]}
            for term in topologies
        ]
    return found


def driver(name: str = "disk.example.com", *, capacity: bool = True) -> Document:
    return {"kind": "CSIDriver", "metadata": {"name": name}, "spec": {"storageCapacity": capacity}}


def pool(name: str, size: str | None, zone: str, *, storage_class: str = "dynamic", largest: str = "") -> Document:
    found: Document = {
        "kind": "CSIStorageCapacity",
        "metadata": {"name": name, "namespace": "kube-system"},
        "storageClassName": storage_class,
        "nodeTopology": {"matchLabels": {ZONE: zone}},
    }
    if size is not None:
        found["capacity"] = size
    if largest:
        found["maximumVolumeSize"] = largest
    return found


def csi_node(name: str, count: int | None, csi_driver: str = "disk.example.com") -> Document:
    allocatable = {} if count is None else {"allocatable": {"count": count}}
    return {
        "kind": "CSINode",
        "metadata": {"name": name},
        "spec": {"drivers": [{"name": csi_driver, "nodeID": name, **allocatable}]},
    }


def attachment(name: str, on: str, volume_name: str, attacher: str = "disk.example.com") -> Document:
    spec = {"attacher": attacher, "nodeName": on, "source": {"persistentVolumeName": volume_name}}
    return {"kind": "VolumeAttachment", "metadata": {"name": name}, "spec": spec}


def pod(
    name: str,
    *claims: str,
    on: str = "",
    priority: int = 0,
    namespace: str = "default",
    ephemeral: Iterable[str] = (),
    volumes: Iterable[Document] = (),
) -> Pod:
    mounted = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]
    mounted += [{"name": each, "ephemeral": {}} for each in ephemeral]
    mounted += [{"name": f"inline-{index}", **each} for index, each in enumerate(volumes)]
    return view(
        {
            "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}"},
            "spec": {
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}],
                "volumes": mounted,
                "nodeName": on,
                "priority": priority,
            },
        },
        Pod,
    )


def engine_with(*objects: Node | Pod | Document) -> Engine:
    engine = Engine()
    for each in objects:
        tell(engine, each)
    return engine


def tell(engine: Engine, *objects: Node | Pod | Document) -> None:
    for each in objects:
        if isinstance(each, Node):
            engine.set_node(each)
        elif isinstance(each, Pod):
            engine.set_pod(each)
        else:
            engine.apply(each["kind"], each)


def place(engine: Engine, asking: Pod) -> str | None:
    """The node for the pod, which is assumed there."""
    decision = engine.schedule(asking)
    if decision.node is not None:
        status = engine.assume(asking, decision.node)
        assert status.ok, status
    return decision.node


def refused(engine: Engine, asking: Pod) -> dict[str, tuple[str, str, tuple[str, ...]]]:
    """Plugin, code and reasons by node."""
    found = engine.explain(asking)
    assert found.pre_filter is None, found.pre_filter
    return {name: (status.plugin, status.code.value, status.reasons) for name, status in found.refused.items()}


def whole(engine: Engine, asking: Pod) -> tuple[str, str, str]:
    """Plugin, code and message of a refusal of the pod as a whole."""
    found = engine.explain(asking).pre_filter
    assert found is not None
    return found.plugin, found.code.value, found.message
