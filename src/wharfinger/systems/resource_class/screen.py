"""Devices on the dashboard: classes with what is free, and the devices of each node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from wharfinger.api.kinds.builtin import NODES, PODS
from wharfinger.api.registry import Document, Resource
from wharfinger.api.validation.resources import is_device
from wharfinger.api.views import Node, Pod
from wharfinger.api.views.base import readable_views
from wharfinger.systems.resource_class.kinds.names import NODE_COMPUTE_RESOURCES, RESOURCE_CLASSES
from wharfinger.systems.resource_class.kinds.views import NodeComputeResources, ResourceClass
from wharfinger.systems.resource_class.plugin.report import ClassLine, report

T = TypeVar("T")

Objects = Callable[[Resource], Sequence[Document]]


def classes(objects: Objects, now: float) -> dict[str, list[Document]]:
    """Each class and raw resource with its devices, used and free."""
    return {
        "classes": [
            {
                "name": line.name,
                "isClass": line.is_class,
                "resource": line.raw,
                "devices": line.devices,
                "used": line.used,
                "free": line.free,
                "nodes": len(line.nodes),
            }
            for line in _lines(objects)
        ]
    }


def devices_of_nodes(objects: Objects) -> dict[str, dict[str, Any]]:
    """By node: its groups of devices, and how many of each are used."""
    found: dict[str, dict[str, Any]] = {}
    for line in _lines(objects):
        if line.is_class:
            continue  # classes are views of the raw devices
        for node in line.nodes:
            groups = found.setdefault(node.node, {"devices": []})["devices"]
            for each in node.resources:
                groups.append(
                    {
                        "name": each.name,
                        "resource": line.raw or line.name,
                        "count": each.devices,
                        "used": each.devices - each.free,
                        "properties": dict(each.properties),
                    }
                )
    return found


def _lines(objects: Objects) -> list[ClassLine]:
    known, groups = objects(RESOURCE_CLASSES), objects(NODE_COMPUTE_RESOURCES)
    if not known and not groups:
        return []
    return report(
        readable_views(known, ResourceClass),
        readable_views(objects(NODES), Node),
        readable_views(groups, NodeComputeResources),
        readable_views(_with_devices(objects(PODS)), Pod),
    )


def _with_devices(pods: Sequence[Document]) -> Iterator[Document]:
    """Pods that may hold devices. Views are slow to make, and in most clusters most pods ask for none."""
    known: dict[int, bool] = {}  # by identity: pods of a workload often share the list
    for pod in pods:
        spec = pod.get("spec") or {}
        for containers in (spec.get("containers"), spec.get("initContainers")):
            if containers and id(containers) not in known:
                known[id(containers)] = any(map(_asks_for_devices, containers))
        if known.get(id(spec.get("containers"))) or known.get(id(spec.get("initContainers"))):
            yield pod


def _asks_for_devices(container: Document) -> bool:
    resources = container.get("resources") or {}
    return any(is_device(name) for part in ("limits", "requests") for name in resources.get(part) or ())
