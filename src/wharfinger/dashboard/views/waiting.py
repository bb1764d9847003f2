"""The waiting screen: each pod without a node, whether it can ever start, and why not yet."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from wharfinger.api.errors import ApiError
from wharfinger.api.registry import Document
from wharfinger.api.resources import CPU, MEMORY
from wharfinger.dashboard.usage import NodeRequests, is_waiting
from wharfinger.dashboard.views.objects import created, place, scheduling_message, workload

JUDGED = 100  # pods that are judged anew for one answer; the others show what the scheduler last said
Judge = Callable[[str, str], Document]

_COUNT = re.compile(r"\b\d+ (?=[A-Z]|node\(s\))")
_OF = re.compile(r"^\d+/\d+ nodes are available: ")


def waiting_pods(pods: Iterable[Document], usage: NodeRequests, judge: Judge | None) -> list[Document]:
    """In the order of the queue: by priority, then by age."""
    found = sorted(filter(is_waiting, pods), key=_order)
    rows = []
    shapes: dict[tuple[str, str], Document] = {}
    for position, pod in enumerate(found):
        message = scheduling_message(pod)
        judged: Document | None = None
        if judge is not None:
            # Pods of one workload that got the same message have the same needs: one of them is judged.
            key = (
                f"{pod['metadata'].get('namespace')}/{workload(pod)}" if workload(pod) else pod["metadata"]["uid"],
                message,
            )
            judged = shapes.get(key)
            if judged is None and len(shapes) < JUDGED:
                judged = shapes[key] = _judged(judge, pod)
        amounts = usage.amounts.get((pod["metadata"].get("namespace", ""), pod["metadata"]["name"]), {})
        rows.append(
            {
                **place(pod),
                "workload": workload(pod),
                "priority": int((pod.get("spec") or {}).get("priority") or 0),
                "since": created(pod),
                "position": position + 1,
                "message": message,
                "cpu": amounts.get(CPU, 0),
                "memory": amounts.get(MEMORY, 0),
                **(judged or _told(message)),
            }
        )
    return rows


def _judged(judge: Judge, pod: Document) -> Document:
    try:
        return judge(pod["metadata"].get("namespace", ""), pod["metadata"]["name"])
    except ApiError:  # it was bound or deleted meanwhile
        return _told(scheduling_message(pod))


def _told(message: str) -> Document:
    """What is known without judging: only what the scheduler said."""
    return {"verdict": "waiting", "because": cause_of(message) or "the scheduler has not tried it yet", "reasons": []}


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
