"""Builders of nodes and pods for the engine's tests."""

from __future__ import annotations

from typing import Any

from wharfinger.api.views import Node, Pod, view


def node(name: str, *, cpu: str = "4", memory: str = "8Gi", pods: int = 110, **rest: Any) -> Node:
    labels = {"kubernetes.io/hostname": name, **rest.pop("labels", {})}
    room = {"cpu": cpu, "memory": memory, "pods": str(pods), **rest.pop("resources", {})}
    status = {"allocatable": room, "images": rest.pop("images", [])}
    return view({"metadata": {"name": name, "labels": labels}, "spec": rest, "status": status}, Node)


def pod(
    name: str,
    on: str = "",
    *,
    cpu: str = "100m",
    memory: str = "128Mi",
    namespace: str = "default",
    labels: dict[str, str] | None = None,
    status: dict[str, Any] | None = None,
    deleted: bool = False,
    owner: dict[str, Any] | None = None,
    requests: dict[str, str] | None = None,
    **spec: Any,
) -> Pod:
    room = {"cpu": cpu, "memory": memory} if requests is None else requests
    room = {key: amount for key, amount in room.items() if amount}
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "uid": f"{namespace}/{name}",
        "labels": labels or {},
    }
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if owner:
        metadata["ownerReferences"] = [{"controller": True, **owner}]
    document = {
        "metadata": metadata,
        "spec": {
            "containers": [{"name": "c", "image": "app:v1", "resources": {"requests": room}}],
            "nodeName": on,
            **spec,
        },
        "status": status or {},
    }
    return view(document, Pod)
