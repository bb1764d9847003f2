"""Manifests that the tests of this tier apply."""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]


def namespace(name: str, **labels: str) -> Document:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def pod_spec(*, scheduler: str = "wharfinger", cpu: str = "100m", **spec: Any) -> Document:
    container = {"name": "main", "image": "pause:3.10", "resources": {"requests": {"cpu": cpu}}}
    return {
        "schedulerName": scheduler,
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
        **spec,
    }


def pod(name: str, namespace: str, **spec: Any) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": pod_spec(**spec),
    }


def deployment(name: str, namespace: str, replicas: int, **spec: Any) -> Document:
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod_spec(**spec)},
        },
    }


def reservation(name: str, ttl: str, **spec: Any) -> Document:
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": name},
        "spec": {
            "template": {"spec": pod_spec()},
            "owners": [{"labelSelector": {"matchLabels": {"app": name}}}],
            "ttl": ttl,
            **spec,
        },
    }


def condition(document: Document, type: str) -> Document:
    found = (item for item in (document.get("status") or {}).get("conditions") or () if item["type"] == type)
    return next(found, {})
