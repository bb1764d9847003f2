"""How the numbers of replays are shown, in the terminal and on the page."""

from __future__ import annotations

from collections.abc import Sequence

from wharfinger.api.registry import Document
from wharfinger.api.times import human_duration

_UNKNOWN = "–"
_DULL = ("left without a node", "waiting at the end", "refused", "preemptions", "submitted again")  # if all are 0


def measures(runs: Sequence[Document]) -> list[tuple[str, list[str]]]:
    """The rows of the table: what a measure is called, and its text for each run."""
    rows = [
        ("pods placed", [f"{run['pods']['placed']} of {run['pods']['arrived']}" for run in runs]),
        ("left without a node", [str(run["pods"]["left"]) for run in runs]),
        ("waiting at the end", [str(run["pods"]["waiting"]) for run in runs]),
        ("refused", [str(run["pods"]["refused"]) for run in runs]),
    ]
    for name, title in (("p50", "median"), ("p90", "90 %"), ("p99", "99 %"), ("max", "longest")):
        rows.append((f"waiting time, {title}", [_seconds(run["waitingSeconds"].get(name)) for run in runs]))
    rows += [
        ("queue length, mean", [f"{run['queueLength']['mean']:.2f}" for run in runs]),
        ("preemptions", [str(run["preemptions"]) for run in runs]),
        ("submitted again", [str(run["submittedAgain"]) for run in runs]),
    ]
    for part, title in (("utilisation", "utilisation"), ("fragmentation", "fragmented")):
        # What nobody asks for is not worth a row.
        for name in dict.fromkeys(name for run in runs for name, share in run[part].items() if share):
            rows.append((f"{title}, {name}", [percent(run[part].get(name)) for run in runs]))
    if len({run["seconds"] for run in runs}) > 1:
        rows.append(("until the last pod left", [human_duration(run["seconds"]) for run in runs]))
    rows.append(("node hours", [f"{run['nodeHours']:.2f}" for run in runs]))
    if any(run["cost"] for run in runs):
        rows.append(("cost of the nodes", [f"{run['cost']:.2f}" for run in runs]))
        rows.append(("of nodes with pods", [f"{run['costInUse']:.2f}" for run in runs]))
    for name in dict.fromkeys(name for run in runs for name in run["measures"]):
        show = _number if name.startswith("unit pods") else percent
        rows.append((name, [show(run["measures"].get(name)) for run in runs]))
    return [(name, texts) for name, texts in rows if name not in _DULL or set(texts) != {"0"}]


def percent(share: float | None) -> str:
    return _UNKNOWN if share is None else f"{100 * share:.1f} %"


def _number(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:.1f}"


def _seconds(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:.1f} s" if value < 60 else human_duration(value)
