"""Resource policies on the dashboard: the units in order, how full they are, and which pods leave first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from wharfinger.api.kinds.builtin import NODES, PODS
from wharfinger.api.registry import Document, Resource
from wharfinger.api.selectors import BadSelector, compile_label_selector, matches
from wharfinger.api.views import view
from wharfinger.controllers.scale_in import DELETION_COST
from wharfinger.systems.resource_policy.kinds.names import RESOURCE_POLICIES
from wharfinger.systems.resource_policy.kinds.views import ResourcePolicy, Unit
from wharfinger.systems.resource_policy.rules.costs import POLICY
from wharfinger.systems.resource_policy.rules.wording import maximum

LISTED = 100  # pods of a policy that are listed

Objects = Callable[[Resource], Sequence[Document]]


def units_view(objects: Objects, now: float) -> dict[str, list[Document]]:
    """Each policy with its units, best first, and its pods in the order in which scaling in removes them."""
    nodes, pods = objects(NODES), objects(PODS)
    rows = []
    for document in objects(RESOURCE_POLICIES):
        spec, status = document.get("spec") or {}, document.get("status") or {}
        counts = {unit.get("name"): unit for unit in status.get("units") or ()}
        policy = _read(document)
        units = [
            _unit(unit, counts.get(unit.name) or {}, nodes, grouped=bool(spec.get("matchLabelKeys")))
            for unit in (sorted(policy.spec.units, key=lambda unit: -unit.priority) if policy is not None else ())
        ]
        rows.append(
            {
                "namespace": document["metadata"]["namespace"],
                "name": document["metadata"]["name"],
                "strategy": spec.get("strategy", "required"),
                "selector": _selector_text(spec.get("podSelector") or {}),
                "keys": spec.get("matchLabelKeys") or [],
                "units": units,
                "problems": _problems(status),
                "pods": _leaving(document, pods),
            }
        )
    return {"policies": rows}


def units_of_nodes(objects: Objects) -> dict[str, dict[str, Any]]:
    """By node: the units that it belongs to, as `namespace/policy: unit`."""
    found: dict[str, dict[str, Any]] = {}
    nodes = objects(NODES)
    for document in objects(RESOURCE_POLICIES):
        policy = _read(document)
        for unit in policy.spec.units if policy is not None else ():
            title = f"{document['metadata']['namespace']}/{document['metadata']['name']}: {unit.name}"
            for name in _nodes_of(unit, nodes):
                found.setdefault(name, {"unit": []})["unit"].append(title)
    return found


def _read(document: Document) -> ResourcePolicy | None:
    try:
        return view(document, ResourcePolicy)
    except msgspec.ValidationError:
        return None  # its condition Valid says what is wrong


def _nodes_of(unit: Unit, nodes: Sequence[Document]) -> list[str]:
    try:
        wanted = compile_label_selector(unit.node_selector)
    except BadSelector:
        return []
    return [each["metadata"]["name"] for each in nodes if matches(wanted, each["metadata"].get("labels") or {})]


def _unit(unit: Unit, status: Document, nodes: Sequence[Document], *, grouped: bool) -> Document:
    count = int(status.get("count", 0))
    groups = status.get("groups") or []
    most = maximum(unit.max_count, unit.max_percent, unit.max_resources)
    largest = max((int(each.get("count", 0)) for each in groups), default=count) if grouped else count
    percent = round(100 * largest / unit.max_count) if unit.max_count else (100 if unit.max_count == 0 else None)
    names = _nodes_of(unit, nodes)
    full = unit.max_count is not None and largest >= unit.max_count
    limit = f" of {most}{' per group' if grouped else ''}" if most else ", no limit"
    return {
        "name": unit.name,
        "priority": unit.priority,
        "count": count,
        "max": most,
        "percent": percent,
        "full": full,
        "nodes": len(names),
        "nodeNames": sorted(names)[:50],
        "groups": [{"labels": each.get("labels") or {}, "count": each.get("count", 0)} for each in groups],
        "summary": f"{count}{limit}{', full' if full else ''}",
    }


def _leaving(policy: Document, pods: Sequence[Document]) -> list[Document]:
    """Governed pods with a deletion cost, those that leave first in front."""
    metadata = policy["metadata"]
    found = []
    for pod in pods:
        annotations = pod["metadata"].get("annotations") or {}
        if pod["metadata"].get("namespace") != metadata["namespace"] or annotations.get(POLICY) != metadata["name"]:
            continue
        cost = annotations.get(DELETION_COST, "0")
        found.append(
            {
                "name": pod["metadata"]["name"],
                "node": (pod.get("spec") or {}).get("nodeName") or "",
                "cost": int(cost) if cost.lstrip("-").isdigit() else 0,
            }
        )
    return sorted(found, key=lambda each: (each["cost"], each["name"]))[:LISTED]


def _problems(status: Document) -> list[str]:
    wrong = {("Valid", "False"), ("Conflicting", "True"), ("Overlapping", "True")}
    return [
        str(each.get("message") or each.get("reason") or each.get("type"))
        for each in status.get("conditions") or ()
        if (each.get("type"), each.get("status")) in wrong
    ]


def _selector_text(selector: Document) -> str:
    parts = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for each in selector.get("matchExpressions") or ():
        values = ",".join(each.get("values") or ())
        parts.append(f"{each.get('key')} {each.get('operator')}{f' ({values})' if values else ''}")
    return ", ".join(parts) or "every pod of the namespace"
