"""The overview: what the cluster does at a glance."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from wharfinger.api.keys import ObjectKey
from wharfinger.api.kinds.builtin import NAMESPACES
from wharfinger.api.registry import Document
from wharfinger.dashboard.state import Visible
from wharfinger.dashboard.views.nodes import totals
from wharfinger.dashboard.views.objects import event_row
from wharfinger.dashboard.views.waiting import causes

EVENTS_SHOWN = 12
REFUSED_SHOWN = 50
REFUSALS = frozenset(("FailedCreate", "FailedAdmission", "Rejected", "PolicyViolation", "Forbidden"))
_REFUSED = re.compile("forbidden|not allowed", re.IGNORECASE)
_PREEMPTOR = re.compile(r"^Preempted by pod (\S+)")
PREEMPTIONS = frozenset(("Preempted", "Evicted", "TaintManagerEviction", "Preempting", "EvictedByMigration"))


def overview(
    visible: Visible, waiting: Sequence[Document], screens: Mapping[str, Mapping[str, Sequence[Document]]]
) -> Document:
    """`screens` are the views of the systems, by screen."""
    usage = visible.usage()
    events = latest(visible.events(REFUSALS | PREEMPTIONS), EVENTS_SHOWN)
    return {
        "counts": counts(visible),
        "totals": totals(visible.nodes(), usage),
        "causes": causes(waiting),
        "promises": _promises(screens),
        "events": _with_preemptors(events, usage.by_uid),
    }


def counts(visible: Visible) -> Document:
    """How many there are of what."""
    usage, nodes = visible.usage(), visible.nodes()
    return {
        "nodes": len(nodes),
        "nodesReady": sum(row.ready for row in nodes.rows),
        "pods": usage.present,
        "running": usage.running,
        "waiting": len(usage.waiting),
        "namespaces": len(visible.objects(NAMESPACES)),
    }


def latest(events: Iterable[Document], most: int) -> list[Document]:
    """The latest of these events; of each object and reason only the last."""
    rows = sorted(map(event_row, events), key=lambda row: -row["time"])
    seen: dict[tuple[str, str, str, str], Document] = {}
    for row in rows:
        seen.setdefault((row["kind"], row["namespace"], row["name"], row["reason"]), row)
        if len(seen) >= most:
            break
    return list(seen.values())


def refused_requests(visible: Visible) -> list[Document]:
    """The latest requests that a policy or a quota refused, such as pods of a workload."""
    refused = (each for each in visible.events(REFUSALS) if _REFUSED.search(str(each.get("message") or "")))
    return latest(refused, REFUSED_SHOWN)


def _with_preemptors(rows: list[Document], pods: Mapping[str, ObjectKey]) -> list[Document]:
    """The scheduler names the pod that preempts by its uid; people know its name."""
    for row in rows:
        told = _PREEMPTOR.search(row["message"])
        if told and told[1] in pods:
            row["message"] = row["message"].replace(told[1], "/".join(pods[told[1]]))
    return rows


def _promises(screens: Mapping[str, Mapping[str, Sequence[Document]]]) -> list[Document]:
    """One line for each promise that somebody made: how much of it is used."""
    lines: list[Document] = []
    promised, units = screens.get("promises", {}), screens.get("units", {})
    for row in promised.get("reservations", ()):
        lines.append(
            {
                "kind": "Reservation",
                "name": row["name"],
                "screen": "promises",
                "used": row["usedPercent"],
                "text": row["summary"],
                "problem": row["problem"],
            }
        )
    for row in units.get("policies", ()):
        for unit in row["units"]:
            lines.append(
                {
                    "kind": "Unit",
                    "name": f"{row['namespace']}/{row['name']}: {unit['name']}",
                    "screen": "units",
                    "used": unit["percent"],
                    "text": unit["summary"],
                    "problem": ", ".join(row["problems"]),
                }
            )
    for row in promised.get("quotas", ()):
        lines.append(
            {
                "kind": "Quota",
                "name": f"{row['namespace']}/{row['name']}: {row['resource']}",
                "screen": "promises",
                "used": row["percent"],
                "text": row["text"],
                "problem": "",
            }
        )
    return lines
