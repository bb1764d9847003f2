"""Builds the SimulationReport, the outcome of a simulation as plain data; the command line formats it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from wharfinger.api.conditions import find_condition
from wharfinger.api.registry import Document
from wharfinger.api.times import format_time
from wharfinger.scenario.runner import Results
from wharfinger.simulate.utilisation import PoolUse


def build(
    *,
    now: float,
    objects: Sequence[Document],
    events: Sequence[Document],
    unscheduled: Sequence[Document],
    used: Sequence[PoolUse],
    results: Results,
) -> Document:
    """`objects` and `events` are in the order of the report; `unscheduled` are pods without a node, see `why_pending`."""
    return {
        "kind": "SimulationReport",
        "apiVersion": "wharfinger.dev/v1alpha1",
        "time": format_time(now),
        "objects": objects,
        "rejections": [
            {
                "kind": each.kind,
                "namespace": each.namespace,
                "name": each.name,
                "user": each.user,
                "message": each.message,
            }
            for each in results.rejections
        ],
        "unscheduled": unscheduled,
        "utilisation": [each.document() for each in used],
        "events": events,
        "expectations": expectations(results),
    }


def expectations(results: Results) -> list[Document]:
    """The outcome of each expectation, and the steps that did not go as stated."""
    return [
        *(
            {
                "step": where,
                "expect": outcome.expectation.describe(),
                "ok": outcome.ok,
                **({"problems": list(outcome.problems)} if outcome.problems else {}),
                **({"explanation": "\n".join(outcome.explanation)} if outcome.explanation else {}),
            }
            for where, outcome in results.outcomes
        ),
        *({"step": where, "ok": False, "problems": [problem]} for where, problem in results.failures),
    ]


def why_pending(document: Document, counted: Mapping[str, int], schedulers: Collection[str]) -> Document | None:
    """Why a pod waits for a node; None if it does not. `counted` says how many nodes were rejected for each reason,
    `schedulers` are the names that are served."""
    spec, status = document.get("spec") or {}, document.get("status") or {}
    if spec.get("nodeName") or status.get("phase", "Pending") != "Pending":
        return None
    metadata = document["metadata"]
    message = (find_condition(status.get("conditions") or (), "PodScheduled") or {}).get("message", "")
    scheduler = document["spec"].get("schedulerName")
    if not message and scheduler not in schedulers:
        message = f"waits for the scheduler {scheduler}, which does not run here"
    return {
        "namespace": metadata.get("namespace", ""),
        "name": metadata["name"],
        "message": message,
        "reasons": dict(sorted(counted.items(), key=lambda item: (-item[1], item[0]))),
    }
