"""Compares the replays of one trace: the numbers of each side by side, and which decisions differ and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from wharfinger.api.keys import ObjectKey
from wharfinger.api.registry import Document
from wharfinger.api.times import format_time
from wharfinger.replay.decisions import DecisionDifference
from wharfinger.replay.measuring import percentiles
from wharfinger.replay.runs import ReplayRun
from wharfinger.replay.trace import Trace

RECORD = "the record"
MOST_LISTED = 1000  # differences in a report
NOT_EXPLAINED = "not explained: too many decisions differ"


@dataclass(slots=True)
class ReplayComparison:
    """The decisions of one replay beside those of another, or of the record."""

    base: str
    other: str
    same: int = 0
    differences: list[DecisionDifference] = field(default_factory=list)  # in the order of the decisions

    def causes(self) -> list[tuple[str, int]]:
        """The reasons, most frequent first."""
        counted = Counter(each.cause for each in self.differences)
        return sorted(counted.items(), key=lambda item: (-item[1], item[0]))

    def document(self) -> Document:
        first = self.differences[0].document() if self.differences else None
        return {
            "base": self.base,
            "other": self.other,
            "same": self.same,
            "different": len(self.differences),
            "firstDifference": first,
            "causes": [{"cause": cause, "count": number} for cause, number in self.causes()],
            "differences": [each.document() for each in self.differences[:MOST_LISTED]],
        }


def compare(expected: Mapping[ObjectKey, str], run: ReplayRun, base: str) -> ReplayComparison:
    """`run` must have been played with the same expectations, so that its differences are explained."""
    found = ReplayComparison(base, run.name)
    keys = [key for key in expected if key in run.lives]
    keys += [key for key, life in run.lives.items() if key not in expected and life.node and base != RECORD]
    order = run.watch.order
    keys.sort(key=lambda key: (order.get(key, len(order)), key))
    for key in keys:
        wanted, life = expected.get(key, ""), run.lives[key]
        node = run.watch.choices.get(key, life.node)
        if node == wanted:
            found.same += 1
            continue
        cause = run.watch.causes.get(key)
        text, detail = (NOT_EXPLAINED, "") if cause is None else (cause.cause, cause.detail)
        if life.refused:
            text, detail = "refused by the API server", life.refused
        elif not wanted:
            text, detail = f"has a node only with {run.name}", ""
        elif not life.node and life.gone is not None:
            text, detail = "it left before it got a node", detail
        elif not life.node and not detail:
            detail = life.message
        when = (life.arrival if life.bound is None else life.bound) - run.start
        found.differences.append(DecisionDifference("/".join(key), when, wanted, node, text, detail))
    return found


def report(trace: Trace, runs: Sequence[ReplayRun], comparisons: Sequence[ReplayComparison]) -> Document:
    """Everything as data: kind ReplayReport."""
    return {
        "kind": "ReplayReport",
        "trace": {
            "name": trace.name,
            "start": format_time(trace.start),
            "nodes": len({period.name for period in trace.nodes}),
            "pods": len(trace.pods),
            "notes": trace.notes,
        },
        "runs": [run_document(run) for run in runs],
        "comparisons": [each.document() for each in comparisons],
    }


def run_document(run: ReplayRun) -> Document:
    lives = run.lives.values()
    waits = [life.bound - life.arrival for life in lives if life.bound is not None]
    placed = sum(1 for life in lives if life.node)
    meter = run.meter
    samples = meter.samples
    fragmentation = {
        name.removeprefix("fragmentation "): round(sum(each.get(name, 0.0) for each in samples) / len(samples), 6)
        for name in sorted({name for each in samples for name in each if name.startswith("fragmentation ")})
    }
    hours = meter.elapsed / 3600
    return {
        "configuration": run.name,
        "seed": run.seed,
        "seconds": round(meter.elapsed, 3),
        "pods": {
            "arrived": len(run.lives),
            "placed": placed,
            "left": sum(1 for life in lives if not life.node and life.gone is not None and not life.refused),
            "waiting": sum(1 for life in lives if not life.node and life.gone is None and not life.refused),
            "refused": sum(1 for life in lives if life.refused),
        },
        "waitingSeconds": {name: round(value, 3) for name, value in percentiles(waits).items()},
        "waitingQuantiles": _quantiles(waits),
        "queueLength": {
            "mean": round(meter.total("waiting") / meter.elapsed, 4) if meter.elapsed else 0.0,
            "max": int(max((each["waiting"] for each in samples), default=0)),
        },
        "preemptions": run.preemptions,
        "submittedAgain": sum(life.resubmissions for life in lives),
        "utilisation": {name: round(share, 6) for name, share in sorted(meter.averages().items())},
        "fragmentation": fragmentation,
        "nodeHours": round(meter.total("nodes"), 4),
        "meanNodes": round(meter.total("nodes") / hours, 3) if hours else 0.0,
        "cost": round(meter.total("cost"), 4),
        "costInUse": round(meter.total("cost in use"), 4),
        "whyWaiting": _why_waiting(run),
        "measures": _last_measures(samples),
        "notes": run.notes,
        "samples": [{name: round(value, 6) for name, value in each.items()} for each in samples],
    }


def _quantiles(waits: Sequence[float]) -> list[float]:
    """The waiting times that 0, 1, …, 100 % of the placed pods did not exceed."""
    ordered = sorted(waits)
    return [round(ordered[max(0, -(-len(ordered) * share // 100) - 1)], 3) for share in range(101)] if ordered else []


def _why_waiting(run: ReplayRun) -> list[Document]:
    counted = Counter(life.message for life in run.lives.values() if life.message and not life.node)
    return [{"message": message, "count": number} for message, number in counted.most_common(10)]


def _last_measures(samples: Sequence[Mapping[str, float]]) -> Document:
    """The mean of what systems measure, such as how full units are."""
    names = sorted({name for each in samples for name in each if name.startswith(("unit ", "reservation "))})
    return {
        name: round(sum(each[name] for each in samples if name in each) / sum(name in each for each in samples), 6)
        for name in names
    }
