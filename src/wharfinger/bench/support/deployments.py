"""A generated cluster of Deployments: as manifests that people write, and as a snapshot in which all of their pods run."""

from __future__ import annotations

from typing import Any

import msgspec

Document = dict[str, Any]

_MADE = "2026-01-01T00:00:00Z"
_HASH = "5d4f8c7b9"
_NAMESPACES = 40
_CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")


def manifests(nodes: int, deployments: int, replicas: int) -> bytes:
    return _list([*map(_node, range(nodes)), *(_deployment(number, replicas) for number in range(deployments))])


def snapshot(nodes: int, deployments: int, replicas: int) -> bytes:
    items: list[Document] = [_stored(_node(number)) for number in range(nodes)]
    for number in range(deployments):
        deployment = _stored(_deployment(number, replicas))
        deployment["metadata"]["annotations"] = {"deployment.kubernetes.io/revision": "1"}
        counts = dict.fromkeys(("replicas", "readyReplicas", "availableReplicas"), replicas)
        deployment["status"] = {**counts, "updatedReplicas": replicas, "observedGeneration": 1}
        owner = _replica_set(deployment)
        owner["status"] = {**counts, "fullyLabeledReplicas": replicas, "observedGeneration": 1}
        items += [deployment, owner]
        items += [_pod(owner, index, (number * replicas + index) % nodes) for index in range(replicas)]
    return _list(items)


def _list(items: list[Document]) -> bytes:
    return msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items})


def _stored(document: Document) -> Document:
    metadata = document["metadata"]
    metadata["uid"] = f"{document['kind'].lower()}-{metadata['name']}"
    metadata["creationTimestamp"] = _MADE
    return document


def _node(number: int) -> Document:
    name, size = f"n{number:05}", {"cpu": "16", "memory": "64Gi", "pods": "110"}
    labels = {
        "kubernetes.io/hostname": name,
        "topology.kubernetes.io/zone": f"z{number % 3}",
        "pool": f"p{number % 7}",
    }
    status = {"capacity": size, "allocatable": size}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}


def _template(labels: Document) -> Document:
    amounts = {"requests": {"cpu": "250m", "memory": "512Mi"}, "limits": {"memory": "512Mi"}}
    container = {"name": "main", "image": "registry.local/app:1", "resources": amounts}
    return {"metadata": {"labels": labels}, "spec": {"containers": [container]}}


def _deployment(number: int, replicas: int) -> Document:
    labels = {"app": f"d{number}"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": f"d{number}", "namespace": f"team-{number % _NAMESPACES}", "labels": labels},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": _template(labels)},
    }


def _replica_set(deployment: Document) -> Document:
    metadata = deployment["metadata"]
    labels = {**metadata["labels"], "pod-template-hash": _HASH}
    replica_set = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{metadata['name']}-{_HASH}",
            "namespace": metadata["namespace"],
            "labels": labels,
            "annotations": {"deployment.kubernetes.io/revision": "1"},
            "ownerReferences": [_owner(deployment)],
        },
        "spec": {
            "replicas": deployment["spec"]["replicas"],
            "selector": {"matchLabels": labels},
            "template": _template(labels),
        },
    }
    return _stored(replica_set)


def _owner(document: Document) -> Document:
    metadata = document["metadata"]
    return {
        "apiVersion": document["apiVersion"],
        "kind": document["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _pod(owner: Document, index: int, node: int) -> Document:
    metadata, spec = owner["metadata"], owner["spec"]["template"]["spec"]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{metadata['name']}-{index:05}",
            "namespace": metadata["namespace"],
            "labels": metadata["labels"],
            "ownerReferences": [_owner(owner)],
        },
        "spec": {**spec, "nodeName": f"n{node:05}"},
        "status": {
            "phase": "Running",
            "podIP": f"10.{node >> 8 & 255}.{node & 255}.{index % 250 + 1}",
            "startTime": _MADE,
            "qosClass": "Burstable",
            "conditions": [{"type": type, "status": "True", "lastTransitionTime": _MADE} for type in _CONDITIONS],
            "containerStatuses": [
                {
                    "name": "main",
                    "image": "registry.local/app:1",
                    "imageID": "registry.local/app@sha256:0",
                    "containerID": "containerd://0",
                    "ready": True,
                    "started": True,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": _MADE}},
                }
            ],
        },
    }
    return _stored(pod)
