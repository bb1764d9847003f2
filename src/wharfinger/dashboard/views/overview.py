"""The overview: what the cluster does at a glance."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from wharfinger.api.kinds.builtin import EVENTS, NAMESPACES, NODES, PODS
from wharfinger.api.registry import Document
from wharfinger.dashboard.state import Visible
from wharfinger.dashboard.usage import allocatable, is_over
from wharfinger.dashboard.views.nodes import is_ready, totals
from wharfinger.dashboard.views.objects import event_row, place
from wharfinger.dashboard.views.waiting import causes

EVENTS_SHOWN = 12
REFUSALS = frozenset(
    ("FailedCreate", "FailedAdmission", "Rejected", "PolicyViolation", "Forbidden", "FailedScheduling")
)
_PREEMPTOR = re.compile(r"^Preempted by pod (\S+)")
PREEMPTIONS = frozenset(("Preempted", "Evicted", "TaintManagerEviction", "Preempting", "EvictedByMigration"))


def overview(
    visible: Visible, waiting: Sequence[Document], screens: Mapping[str, Mapping[str, Sequence[Document]]]
) -> Document:
    """`screens` are the views of the systems, by screen."""
    nodes, pods = visible.objects(NODES), visible.objects(PODS)
    usage = visible.usage()
    running = sum(1 for pod in pods if (pod.get("status") or {}).get("phase") == "Running")
    names = [node["metadata"]["name"] for node in nodes]
    return {
        "counts": {
            "nodes": len(nodes),
            "nodesReady": sum(map(is_ready, nodes)),
            "pods": sum(1 for pod in pods if not is_over(pod)),
            "running": running,
            "waiting": len(waiting),
            "namespaces": len(visible.objects(NAMESPACES)),
        },
        "totals": totals(map(allocatable, nodes), (usage.requested.get(name, {}) for name in names)),
        "causes": causes(waiting),
        "promises": _promises(screens),
        "events": _with_preemptors(latest(visible.objects(EVENTS), REFUSALS | PREEMPTIONS, EVENTS_SHOWN), pods),
    }


def latest(events: Iterable[Document], reasons: frozenset[str], most: int) -> list[Document]:
    """The latest events of these reasons; of each object and reason only the last."""
    rows = sorted((event_row(each) for each in events if each.get("reason") in reasons), key=lambda row: -row["time"])
    seen: dict[tuple[str, str, str, str], Document] = {}
    for row in rows:
        seen.setdefault((row["kind"], row["namespace"], row["name"], row["reason"]), row)
        if len(seen) >= most:
            break
    return list(seen.values())


def _with_preemptors(rows: list[Document], pods: Iterable[Document]) -> list[Document]:
    """The scheduler names the pod that preempts by its uid; people know its name."""
    found = {id(row): told[1] for row in rows if (told := _PREEMPTOR.search(row["message"]))}
    wanted = set(found.values())
    names = {
        pod["metadata"]["uid"]: "{namespace}/{name}".format(**place(pod))
        for pod in (pods if wanted else ())
        if pod["metadata"]["uid"] in wanted
    }
    for row in rows:
        uid = found.get(id(row), "")
        if uid in names:
            row["message"] = row["message"].replace(uid, names[uid])
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
