"""Builds the SimulationReport, the outcome of a simulation as plain data; the command line formats it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from wharfinger.api.conditions import find_condition
from wharfinger.api.registry import Document
from wharfinger.api.times import format_time
from wharfinger.scenario.runner import Results
from wharfinger.simulate.utilisation import utilisation


def build(
    *,
    now: float,
    objects: Sequence[Document],
    events: Sequence[Document],
    reasons: Mapping[tuple[str, str], Mapping[str, int]],
    schedulers: Collection[str],
    results: Results,
) -> Document:
    """`reasons`: for each pending pod, how many nodes were rejected for each reason; `schedulers`: the names that are
    served."""
    return {
        "kind": "SimulationReport",
        "apiVersion": "wharfinger.dev/v1alpha1",
        "time": format_time(now),
        "objects": sorted(objects, key=_order),
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
        "unscheduled": list(_unscheduled(objects, reasons, schedulers)),
        "utilisation": [each.document() for each in utilisation(objects)],
        "events": sorted(events, key=_event_order),
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


def _unscheduled(
    objects: Iterable[Document],
    reasons: Mapping[tuple[str, str], Mapping[str, int]],
    schedulers: Collection[str],
) -> Iterable[dict[str, Any]]:
    for document in sorted(objects, key=_order):
        if document.get("kind") != "Pod" or (document.get("spec") or {}).get("nodeName"):
            continue
        if (document.get("status") or {}).get("phase", "Pending") != "Pending":
            continue
        metadata = document["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        conditions = (document.get("status") or {}).get("conditions") or ()
        message = (find_condition(conditions, "PodScheduled") or {}).get("message", "")
        scheduler = document["spec"].get("schedulerName")
        if not message and scheduler not in schedulers:
            message = f"waits for the scheduler {scheduler}, which does not run here"
        counted = reasons.get(key, {})
        yield {
            "namespace": key[0],
            "name": key[1],
            "message": message,
            "reasons": dict(sorted(counted.items(), key=lambda item: (-item[1], item[0]))),
        }


def _order(document: Document) -> tuple[str, str, str, str]:
    metadata = document.get("metadata") or {}
    group = str(document.get("apiVersion", "")).rpartition("/")[0]
    return group, str(document.get("kind")), str(metadata.get("namespace") or ""), str(metadata.get("name"))


def _event_order(event: Document) -> tuple[str, str, str]:
    metadata = event.get("metadata") or {}
    when = event.get("lastTimestamp") or event.get("eventTime") or metadata.get("creationTimestamp") or ""
    return str(when), str(metadata.get("namespace") or ""), str(metadata.get("name"))
