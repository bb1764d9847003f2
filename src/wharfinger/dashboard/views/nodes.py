"""The nodes screen: every node as a cell, in columns so that thousands of them stay small; and one node in detail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wharfinger.api.kinds.builtin import NODES, PODS
from wharfinger.api.registry import Document
from wharfinger.api.resources import CPU, MEMORY
from wharfinger.dashboard.node_rows import NodeRows, is_ready
from wharfinger.dashboard.state import Visible
from wharfinger.dashboard.usage import NodeRequests, allocatable, is_over
from wharfinger.dashboard.views.objects import created, place, workload

_UNCOUNTED = frozenset((CPU, MEMORY, "pods", "ephemeral-storage"))


def node_columns(nodes: NodeRows, usage: NodeRequests, marks: Mapping[str, Mapping[str, Any]]) -> Document:
    """A list for each property, in the same order. Amounts are in percent of what is allocatable."""
    rows = nodes.rows
    asked = [usage.requested.get(row.name, {}) for row in rows]
    marked = [marks.get(row.name, {}) for row in rows]
    pairs = list(zip(rows, asked, strict=True))
    return {
        "names": nodes.names,
        "ready": [row.ready for row in rows],
        "cordoned": [row.cordoned for row in rows],
        "pods": [len(usage.pods.get(row.name, ())) for row in rows],
        "cpu": [_percent(used, row.room, CPU) for row, used in pairs],
        "memory": [_percent(used, row.room, MEMORY) for row, used in pairs],
        "reserved": [
            _percent(mark.get("reserved") or {}, row.room, CPU) for row, mark in zip(rows, marked, strict=True)
        ],
        "devices": [_device_share(row.room, used, mark) for (row, used), mark in zip(pairs, marked, strict=True)],
        "unit": [", ".join(mark.get("unit") or ()) for mark in marked],
        "labels": nodes.label_columns,
        "totals": totals(nodes, usage),
    }


def totals(nodes: NodeRows, usage: NodeRequests) -> Document:
    asked = [usage.requested.get(row.name, {}) for row in nodes.rows]
    return {
        resource: {
            "allocatable": sum(row.room.get(resource, 0) for row in nodes.rows),
            "requested": sum(each.get(resource, 0) for each in asked),
        }
        for resource in (CPU, MEMORY)
    }


def _percent(used: Mapping[str, int], has: Mapping[str, int], resource: str) -> int:
    """Rounded down, as `kubectl describe node` does."""
    total = has.get(resource, 0)
    return 100 * used.get(resource, 0) // total if total else 0


def _device_share(has: Mapping[str, int], used: Mapping[str, int], marks: Mapping[str, Any]) -> int:
    """Percent of the devices in use; -1 for a node without any."""
    total = taken = 0
    for name, amount in has.items():
        if amount and name not in _UNCOUNTED and not name.startswith("hugepages-"):
            total += amount
            taken += used.get(name, 0)
    for device in marks.get("devices") or ():
        total += device["count"]
        taken += device["used"]
    return 100 * taken // total if total else -1


def node_detail(name: str, visible: Visible, marks: Mapping[str, Any]) -> Document | None:
    """One node: its capacity, pods, reservations and devices."""
    node = visible.get(NODES, name)
    if node is None:
        return None
    usage = visible.usage()
    has, used = allocatable(node), usage.requested.get(name, {})
    pods: list[Document] = []
    for namespace, pod_name in sorted(usage.pods.get(name, ())):
        pod = visible.get(PODS, pod_name, namespace)
        if pod is not None and not is_over(pod):
            amounts = usage.amounts.get((namespace, pod_name), {})
            pods.append(
                {
                    **place(pod),
                    "phase": (pod.get("status") or {}).get("phase", "Pending"),
                    "workload": workload(pod),
                    "cpu": amounts.get(CPU, 0),
                    "memory": amounts.get(MEMORY, 0),
                    "since": created(pod),
                }
            )
    conditions = (node.get("status") or {}).get("conditions") or ()
    return {
        "name": name,
        "ready": is_ready(node),
        "cordoned": bool((node.get("spec") or {}).get("unschedulable")),
        "since": created(node),
        "labels": node["metadata"].get("labels") or {},
        "taints": (node.get("spec") or {}).get("taints") or [],
        "conditions": [
            {"type": each.get("type"), "status": each.get("status"), "message": each.get("message", "")}
            for each in conditions
        ],
        "resources": [
            {"name": resource, "allocatable": amount, "requested": used.get(resource, 0)}
            for resource, amount in sorted(has.items(), key=lambda item: (item[0] not in (CPU, MEMORY), item[0]))
            if resource == "pods" or amount
        ],
        "pods": pods,
        "reservations": list(marks.get("reservations") or ()),
        "devices": list(marks.get("devices") or ()),
        "unit": list(marks.get("unit") or ()),
    }
