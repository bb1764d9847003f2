"""`wharf replay TRACE`: replays of a trace by the control plane, as text and as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from wharfinger.api.registry import Document
from wharfinger.api.times import human_duration
from wharfinger.api.wording import counted
from wharfinger.cli.output import emit, paint, table, terminal_width
from wharfinger.replay.wording import measures

CAUSES = 5  # that the summary shows for each comparison


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """The arguments of the command."""

    trace: Path
    format: str | None
    configs: Sequence[str]
    until: str | None
    seed: int
    ties: str
    report: Path | None
    save: Path | None
    output: str


def replay_trace(request: TraceRequest) -> None:
    from wharfinger.cli.progress import progress
    from wharfinger.cli.simulating import bad_input, progressing, quiet
    from wharfinger.replay.extras import require_extra
    from wharfinger.replay.importing import read_trace
    from wharfinger.replay.running import read_configurations, replay_report
    from wharfinger.replay.runs import ReplayOptions
    from wharfinger.replay.writing import write_trace

    quiet()
    with bad_input():
        require_extra("polars", *(("altair", "vl_convert") if request.report is not None else ()))
        trace = read_trace(request.trace, request.format)
        if request.save is not None:
            write_trace(trace, request.save)
            click.echo(f"{request.save}: {counted(len(trace.pods), 'pod')}", err=True)
            return
        until = None if request.until is None else duration(request.until, "--until")
        configurations = read_configurations(request.configs, trace)
    with bad_input(), progressing(), progress() as told:
        options = ReplayOptions(request.seed, until, not request.configs, request.ties == "recorded", told)
        report = replay_report(trace, configurations, options)
    if request.report is not None:
        from wharfinger.replay.page import write_page

        write_page(report, request.report)
    if request.output == "table":
        click.echo(summary(report))
        if request.report is not None:
            click.echo(f"\nWrote {request.report}.")
    else:
        emit(report, request.output)


def duration(text: str, option: str) -> float:
    """A duration as elsewhere, or a number of days."""
    from wharfinger.cli.simulating import seconds

    if text.endswith("d") and text[:-1].replace(".", "", 1).isdigit():
        return float(text[:-1]) * 86400
    return seconds(text, option)


def summary(report: Document) -> str:
    """What a person reads first: the numbers side by side, then the decisions that differ."""
    trace, runs = report["trace"], report["runs"]
    lines = [
        f"Trace {trace['name']}: {counted(trace['pods'], 'pod')} on {counted(trace['nodes'], 'node')}, "
        f"{human_duration(runs[0]['seconds'])} from {trace['start']}."
    ]
    lines += [f"Note: {note}" for note in [*trace["notes"], *(note for run in runs for note in run["notes"])]]
    rows = [[name, *texts] for name, texts in measures(runs)]
    names = [" ", *(run["configuration"] for run in runs)]
    lines += ["", table([""] * len(names), [names, *rows]).partition("\n")[2]]  # names keep their case
    for comparison in report["comparisons"]:
        lines += ["", *_comparison(comparison)]
    for run in runs:
        for each in run["whyWaiting"][:CAUSES]:
            lines.append(f"{run['configuration']}: {counted(each['count'], 'pod')} waiting: {each['message']}")
    return "\n".join(lines)


def _comparison(comparison: Document) -> list[str]:
    same, different = comparison["same"], comparison["different"]
    title = f"{comparison['other']} beside {comparison['base']}"
    if not different:
        return [paint(f"{title}: all {counted(same, 'pod')} are on the same node.", "green")]
    first: dict[str, Any] = comparison["firstDifference"]
    lines = [
        f"{title}: {counted(same, 'pod')} on the same node, {different} not.",
        f"  First: {first['pod']} after {first['seconds']:.1f} s: "
        f"{first['expected'] or 'no node'} there, {first['node'] or 'no node'} here; {first['cause']}"
        + (f" ({first['detail']})" if first.get("detail") else ""),
    ]
    causes = [(each["count"], each["cause"]) for each in comparison["causes"][:CAUSES]]
    return [*lines, table(["pods", "cause"], causes, indent="  ", width=terminal_width())]
