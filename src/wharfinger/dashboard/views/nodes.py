"""The nodes screen: every node as a cell, in columns so that thousands of them stay small; and one node in detail."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from wharfinger.api.conditions import find_condition
from wharfinger.api.kinds.builtin import NODES, PODS
from wharfinger.api.registry import Document
from wharfinger.api.resources import CPU, MEMORY
from wharfinger.dashboard.state import Visible
from wharfinger.dashboard.usage import NodeRequests, allocatable, is_over
from wharfinger.dashboard.views.objects import created, place, workload

_UNCOUNTED = frozenset((CPU, MEMORY, "pods", "ephemeral-storage"))
GROUPED_LABELS = 40  # labels offered for grouping
_VALUES = 200  # values of a label beyond which it does not group anything


def node_columns(nodes: Sequence[Document], usage: NodeRequests, marks: Mapping[str, Mapping[str, Any]]) -> Document:
    """A list for each property, in the same order. Amounts are in percent of what is allocatable."""
    ordered = sorted(nodes, key=lambda node: str(node["metadata"]["name"]))
    room = [allocatable(node) for node in ordered]
    names = [node["metadata"]["name"] for node in ordered]
    asked = [usage.requested.get(name, {}) for name in names]
    devices = [
        _device_share(has, used, marks.get(name, {})) for name, has, used in zip(names, room, asked, strict=True)
    ]
    return {
        "names": names,
        "ready": [is_ready(node) for node in ordered],
        "cordoned": [bool((node.get("spec") or {}).get("unschedulable")) for node in ordered],
        "pods": [len(usage.pods.get(name, ())) for name in names],
        "cpu": [_percent(used, has, CPU) for used, has in zip(asked, room, strict=True)],
        "memory": [_percent(used, has, MEMORY) for used, has in zip(asked, room, strict=True)],
        "reserved": [
            _percent(marks.get(name, {}).get("reserved") or {}, has, CPU) for name, has in zip(names, room, strict=True)
        ],
        "devices": devices,
        "unit": [", ".join(marks.get(name, {}).get("unit") or ()) for name in names],
        "labels": _labels(ordered),
        "totals": totals(room, asked),
    }


def totals(room: Iterable[Mapping[str, int]], asked: Iterable[Mapping[str, int]]) -> Document:
    has, used = list(room), list(asked)
    return {
        resource: {
            "allocatable": sum(each.get(resource, 0) for each in has),
            "requested": sum(each.get(resource, 0) for each in used),
        }
        for resource in (CPU, MEMORY)
    }


def is_ready(node: Document) -> bool:
    condition = find_condition((node.get("status") or {}).get("conditions") or (), "Ready") or {}
    return condition.get("status") == "True"


def _percent(used: Mapping[str, int], has: Mapping[str, int], resource: str) -> int:
    total = has.get(resource, 0)
    return round(100 * used.get(resource, 0) / total) if total else 0


def _device_share(has: Mapping[str, int], used: Mapping[str, int], marks: Mapping[str, Any]) -> int:
    """Percent of the devices in use; -1 for a node without any."""
    counted = [name for name in has if name not in _UNCOUNTED and not name.startswith("hugepages-") and has[name]]
    total = sum(has[name] for name in counted)
    taken = sum(used.get(name, 0) for name in counted)
    for device in marks.get("devices") or ():
        total += device["count"]
        taken += device["used"]
    return round(100 * taken / total) if total else -1


def _labels(nodes: Sequence[Document]) -> dict[str, Document]:
    """Labels that group nodes: their values, and for each node the position of its value, or -1."""
    counts: dict[str, dict[str, int]] = {}
    for node in nodes:
        for name, value in (node["metadata"].get("labels") or {}).items():
            counts.setdefault(name, {})[value] = counts.get(name, {}).get(value, 0) + 1
    useful = [
        name
        for name, values in counts.items()
        if len(values) <= _VALUES
        and (len(values) < len(nodes) or name.startswith("topology."))
        and name != "kubernetes.io/hostname"
    ]
    found: dict[str, Document] = {}
    for name in sorted(useful, key=lambda each: (not each.startswith("topology."), each))[:GROUPED_LABELS]:
        values = sorted(counts[name])
        index = {value: position for position, value in enumerate(values)}
        labels = ((node["metadata"].get("labels") or {}).get(name) for node in nodes)
        found[name] = {"values": values, "of": [-1 if value is None else index[value] for value in labels]}
    return found


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
