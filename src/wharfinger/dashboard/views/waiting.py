"""The waiting screen: each pod without a node, whether it can ever start, and why not yet."""

from __future__ import annotations

import re
from collections.abc import Sequence

from wharfinger.api.registry import Document
from wharfinger.api.resources import CPU, MEMORY
from wharfinger.dashboard.usage import NodeRequests
from wharfinger.dashboard.verdicts import Verdicts
from wharfinger.dashboard.views.objects import created, place, scheduling_message, workload

UNJUDGED = "unjudged"  # the verdict until there is one
_COUNT = re.compile(r"\b\d+ (?=[A-Z]|node\(s\))")
_OF = re.compile(r"^\d+/\d+ nodes are available: ")


def waiting_pods(usage: NodeRequests, verdicts: Verdicts | None) -> list[Document]:
    """In the order of the queue: by priority, then by age. Where there is no verdict, what the scheduler last said."""
    rows = []
    if verdicts is not None:
        verdicts.begin()
    for position, pod in enumerate(sorted(usage.waiting.values(), key=_order)):
        metadata, message, owner = pod["metadata"], scheduling_message(pod), workload(pod)
        key = (metadata.get("namespace", ""), metadata["name"])
        # Pods of one workload that got the same message have the same needs: one of them is judged.
        alike = (key[0], owner or metadata["uid"], message)
        judged = None if verdicts is None else verdicts.get(alike, key)
        amounts = usage.amounts.get(key, {})
        rows.append(
            {
                **place(pod),
                "workload": owner,
                "priority": int((pod.get("spec") or {}).get("priority") or 0),
                "since": created(pod),
                "position": position + 1,
                "message": message,
                "cpu": amounts.get(CPU, 0),
                "memory": amounts.get(MEMORY, 0),
                **(judged or (_told(message) if verdicts is None else _told(message, UNJUDGED))),
            }
        )
    if verdicts is not None:
        verdicts.end()
    return rows


def _told(message: str, verdict: str = "waiting") -> Document:
    """What is known without judging: only what the scheduler said."""
    return {"verdict": verdict, "because": cause_of(message) or "the scheduler has not tried it yet", "reasons": []}


def _order(pod: Document) -> tuple[int, float, str]:
    return -int((pod.get("spec") or {}).get("priority") or 0), created(pod) or 0.0, str(pod["metadata"]["name"])


def causes(rows: Sequence[Document]) -> list[Document]:
    """Waiting pods grouped by why they wait, the largest group first."""
    groups: dict[tuple[str, str], list[Document]] = {}
    for row in rows:
        groups.setdefault((row["verdict"], row["because"]), []).append(row)
    return [
        {
            "verdict": verdict,
            "because": because,
            "count": len(members),
            "since": min((each["since"] for each in members if each["since"]), default=None),
            "cpu": sum(each["cpu"] for each in members),
            "memory": sum(each["memory"] for each in members),
            "pods": [{"namespace": each["namespace"], "name": each["name"]} for each in members[:20]],
            "workloads": sorted({_title(each) for each in members})[:10],
        }
        for (verdict, because), members in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    ]


def _title(row: Document) -> str:
    """`Deployment sample/batch`, or the pod itself if nothing manages it."""
    kind, _, name = (row["workload"] or f"Pod/{row['name']}").partition("/")
    return f"{kind} {row['namespace']}/{name}"


def cause_of(message: str) -> str:
    """A message of the scheduler without numbers of nodes, so that equal causes are equal."""
    text = _OF.sub("", message.split(" preemption:")[0])
    return _COUNT.sub("", text).rstrip(". ")
