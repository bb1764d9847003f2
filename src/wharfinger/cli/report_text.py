"""A SimulationReport as a person wants to read it: where pods run, what waits and why, what each system decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from wharfinger.api.conditions import find_condition
from wharfinger.api.wording import counted, listed
from wharfinger.cli.output import paint, table

Document = dict[str, Any]
_MANY = 40  # rows of a section before it is summed up
_NAMED, _NAMED_PENDING = 6, 3  # pods in a cell


def render(report: Document, *, everything: bool = False) -> str:
    """All sections that have something to say, separated by blank lines."""
    objects: list[Document] = report["objects"]
    limit = None if everything else _MANY
    sections = (
        _nodes(objects, limit),
        _pending(report["unscheduled"], limit),
        _reservations(objects, limit),
        _units(objects, limit),
        _placements(objects, limit),
        _refused(report["rejections"], limit),
        _expectations(report["expectations"]),
    )
    return "\n\n".join(section for section in sections if section)


def _of(objects: Iterable[Document], kind: str) -> list[Document]:
    return [document for document in objects if document.get("kind") == kind]


def _name(document: Document) -> str:
    metadata = document.get("metadata") or {}
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata.get('name')}" if namespace else str(metadata.get("name"))


def _section(title: str, header: tuple[str, ...], rows: list[tuple[Any, ...]], limit: int | None) -> str:
    if not rows:
        return ""
    shown = rows if limit is None else rows[:limit]
    text = f"{paint(title, 'cyan', bold=True)}\n{table(header, shown)}"
    if len(shown) < len(rows):
        text += f"\n{left_out(len(rows) - len(shown))}"
    return text


def _nodes(objects: list[Document], limit: int | None) -> str:
    by_node: dict[str, list[Document]] = {node["metadata"]["name"]: [] for node in _of(objects, "Node")}
    elsewhere: list[Document] = []
    for pod in _of(objects, "Pod"):
        by_node.setdefault((pod.get("spec") or {}).get("nodeName") or "", []).append(pod)
    elsewhere = by_node.pop("", [])
    total = sum(len(pods) for pods in by_node.values())
    rows = [(node, _phases(pods), _pod_names(pods)) for node, pods in by_node.items()]
    if limit is not None and len(rows) > limit:
        rows = [row for row in rows if by_node[row[0]]] or rows
    title = f"Pods on nodes: {total} on {counted(len(by_node), 'node')}"
    if elsewhere:
        title += f", {len(elsewhere)} on none"
    return _section(title, ("node", "state", "pods"), rows, limit)


def _phases(pods: list[Document]) -> str:
    counted = Counter(_phase(pod) for pod in pods)
    return ", ".join(f"{count} {phase}" for phase, count in sorted(counted.items())) or "empty"


def _phase(pod: Document) -> str:
    if (pod.get("metadata") or {}).get("deletionTimestamp"):
        return "Terminating"
    return str((pod.get("status") or {}).get("phase") or "Pending")


def _pod_names(pods: list[Document]) -> str:
    return listed((_name(pod) for pod in pods), _NAMED)


def _pending(unscheduled: list[Document], limit: int | None) -> str:
    """Pods that wait for the same reason share a row, unless every row is wanted."""
    by_reason: dict[tuple[str, str], list[str]] = {}
    for each in unscheduled:
        name, why = f"{each['namespace']}/{each['name']}", each["message"] or "not tried yet"
        by_reason.setdefault((why, name if limit is None else ""), []).append(name)
    rows = [(listed(names, _NAMED_PENDING), why) for (why, _), names in by_reason.items()]
    return _section(f"Pending: {counted(len(unscheduled), 'pod')}", ("pod", "why"), rows, limit)


def _reservations(objects: list[Document], limit: int | None) -> str:
    rows = []
    for document in _of(objects, "Reservation"):
        status = document.get("status") or {}
        owners = ", ".join(
            f"{owner.get('namespace')}/{owner.get('name')}" for owner in status.get("currentOwners") or ()
        )
        rows.append((_name(document), status.get("phase") or "Pending", status.get("nodeName"), owners))
    return _section("Reservations", ("name", "phase", "node", "owners"), rows, limit)


def _units(objects: list[Document], limit: int | None) -> str:
    rows: list[tuple[Any, ...]] = []
    for document in _of(objects, "ResourcePolicy"):
        counts = {unit.get("name"): unit.get("count", 0) for unit in (document.get("status") or {}).get("units") or ()}
        for index, unit in enumerate((document.get("spec") or {}).get("units") or ()):
            name = unit.get("name") or f"unit-{index}"
            most = unit.get("maxCount")
            rows.append(
                (
                    _name(document),
                    name,
                    unit.get("priority", 0),
                    counts.get(name, 0),
                    "unlimited" if most is None else most,
                )
            )
    return _section("Resource policies", ("policy", "unit", "priority", "pods", "max"), rows, limit)


def _placements(objects: list[Document], limit: int | None) -> str:
    decided: dict[str, list[str]] = {}
    for document in _of(objects, "PlacementDecision"):
        metadata = document["metadata"]
        placement = (metadata.get("labels") or {}).get("cluster.open-cluster-management.io/placement", "")
        clusters = [each.get("clusterName", "") for each in (document.get("status") or {}).get("decisions") or ()]
        decided.setdefault(f"{metadata.get('namespace')}/{placement}", []).extend(clusters)
    rows: list[tuple[Any, ...]] = []
    for document in _of(objects, "Placement"):
        conditions = (document.get("status") or {}).get("conditions") or ()
        satisfied = find_condition(conditions, "PlacementSatisfied") or {}
        clusters = decided.get(_name(document), [])
        rows.append((_name(document), satisfied.get("reason"), listed(clusters, 10)))
    return _section("Placements", ("placement", "state", "clusters"), rows, limit)


def _refused(rejections: list[Document], limit: int | None) -> str:
    rows = [
        (
            f"{each['kind']} {each['namespace'] + '/' if each['namespace'] else ''}{each['name']}",
            each["user"],
            each["message"],
        )
        for each in rejections
    ]
    return _section("Refused", ("request", "by", "why"), rows, limit)


def _expectations(expectations: list[Document]) -> str:
    if not expectations:
        return ""
    failed = [each for each in expectations if not each["ok"]]
    if not failed:
        all_hold = f"All {len(expectations)} expectations hold." if len(expectations) > 1 else "The expectation holds."
        return paint(all_hold, "green", bold=True)
    lines = [paint(f"{len(failed)} of {counted(len(expectations), 'expectation')} failed:", "red", bold=True)]
    for each in failed:
        lines += failure(each)
    return "\n".join(lines)


def left_out(number: int) -> str:
    return f"… and {number} more (--all shows them)"


def failure(each: Document) -> Iterator[str]:
    head = f"  {each['step']}"
    if each.get("expect"):
        head += f" ({each['expect']})"
    yield head
    for problem in each.get("problems") or ():
        yield from (f"    {line}" for line in str(problem).splitlines())
    for line in str(each.get("explanation") or "").splitlines():
        yield f"    {line}"
