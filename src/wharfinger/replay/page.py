"""The report of a replay as one HTML file: tables and plots, without scripts and without anything from the network."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from wharfinger.api.registry import Document
from wharfinger.api.times import human_duration
from wharfinger.api.wording import counted
from wharfinger.replay.comparing import RECORD
from wharfinger.replay.plots import COLOURS, ReplayPlot, plots
from wharfinger.replay.wording import measures

_HOW = {
    True: "Each decision was made in the recorded state, so that one difference does not lead to others.",
    False: "A difference changes what is free, so later ones often follow from earlier ones: read the first.",
}
LISTED = 15  # differing decisions that the page shows for each comparison

_STYLE = """
:root { --ink: #1a1a1a; --soft: #595959; --line: #c8c8c8; --shade: #f4f4f2; }
* { box-sizing: border-box; }
body { font: 15px/1.45 Helvetica, Arial, sans-serif; color: var(--ink); margin: 0 auto; max-width: 1000px;
  padding: 28px 24px 60px; }
h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 19px; margin: 34px 0 8px; }
h3 { font-size: 15px; margin: 0 0 1px; }
p { margin: 6px 0; max-width: 75ch; } .soft { color: var(--soft); }
table { border-collapse: collapse; width: 100%; margin: 10px 0; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 4px 10px 4px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
thead th { border-bottom: 2px solid var(--ink); } tbody th { font-weight: normal; }
td.number, th.number { text-align: right; padding-right: 18px; white-space: nowrap; }
td.name { overflow-wrap: anywhere; min-width: 9em; } td.node { white-space: nowrap; }
.detail { color: var(--soft); font-size: 13px; overflow-wrap: anywhere; }
.plots { display: grid; grid-template-columns: 1fr 1fr; gap: 22px 26px; }
figure { margin: 0; break-inside: avoid; } figcaption { color: var(--soft); font-size: 13px; margin-bottom: 4px; }
figure svg { width: 100%; height: auto; display: block; }
.bar { display: inline-block; height: 9px; background: #0072B2; vertical-align: middle; min-width: 2px; }
.answer { background: var(--shade); border-left: 4px solid #0072B2; padding: 10px 14px; margin: 14px 0; }
.key { display: inline-block; width: 12px; height: 12px; margin-right: 6px; vertical-align: -1px; }
footer { margin-top: 40px; color: var(--soft); font-size: 13px; }
@media (max-width: 700px) { .plots { grid-template-columns: 1fr; } }
@media print {
  @page { size: A4; margin: 14mm; } body { font-size: 10.5pt; padding: 0; max-width: none; }
  h2 { break-after: avoid; } tr { break-inside: avoid; } .answer { border: 1px solid var(--ink); background: none; }
  .bar { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  .key { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""


def write_page(report: Document, path: Path) -> None:
    path.write_text(page(report), encoding="utf-8")


def page(report: Document) -> str:
    trace, runs = report["trace"], report["runs"]
    title = f"Replay of {trace['name']}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="soft">{counted(trace["pods"], "pod")} on {counted(trace["nodes"], "node")}; '
        f"{human_duration(runs[0]['seconds'])} from {trace['start']}; seed {runs[0]['seed']}.</p>",
        *(f'<p class="soft">Note: {escape(note)}</p>' for note in _notes(report)),
        _answer(report),
        "<h2>The numbers</h2>",
        _numbers(runs),
        "<h2>Over time</h2>",
        f'<div class="plots">{"".join(_figure(plot) for plot in plots(report))}</div>',
        "<h2>Decisions that differ</h2>" if report["comparisons"] else "",
        *(_comparison(each) for each in report["comparisons"]),
        _waiting(runs),
        _reading(),
    ]
    body = "\n".join(part for part in parts if part)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _notes(report: Document) -> list[str]:
    notes = [*report["trace"]["notes"], *(note for run in report["runs"] for note in run["notes"])]
    return list(dict.fromkeys(notes))


def _answer(report: Document) -> str:
    """The first thing to read: what another configuration changes, in one sentence each."""
    runs = report["runs"]
    lines = []
    for comparison in report["comparisons"]:
        total, different = comparison["same"] + comparison["different"], comparison["different"]
        beside = f"<b>{escape(comparison['other'])}</b> beside {escape(comparison['base'])}"
        if not different:
            lines.append(f"{beside}: all {counted(total, 'pod')} on the same node.")
            continue
        top = comparison["causes"][0]
        lines.append(
            f"{beside}: {different} of {counted(total, 'decision')} differ, "
            f"most often because of: {escape(top['cause'])} ({top['count']})."
        )
    for run in runs[1:]:
        lines.append(_change(runs[0], run))
    return f'<div class="answer">{"".join(f"<p>{line}</p>" for line in lines)}</div>' if lines else ""


def _change(first: Document, run: Document) -> str:
    """The main numbers of a run beside those of the first."""
    parts = []
    placed = run["pods"]["placed"] - first["pods"]["placed"]
    parts.append(
        f"{counted(abs(placed), 'pod')} {'more' if placed > 0 else 'fewer'} placed" if placed else "as many pods placed"
    )
    for name, share in run["utilisation"].items():
        change = 100 * (share - first["utilisation"].get(name, 0.0))
        if abs(change) >= 0.1:
            parts.append(f"{name} utilisation {change:+.1f} points")
    waits = (first["waitingSeconds"].get("p90"), run["waitingSeconds"].get("p90"))
    if waits[0] is not None and waits[1] is not None and abs(waits[1] - waits[0]) >= 0.1:
        parts.append(f"90 % of the pods wait at most {waits[1]:.1f} s instead of {waits[0]:.1f} s")
    preempted = run["preemptions"] - first["preemptions"]
    if preempted:
        parts.append(f"{counted(abs(preempted), 'preemption')} {'more' if preempted > 0 else 'fewer'}")
    if first["costInUse"] and abs(run["costInUse"] / first["costInUse"] - 1) >= 0.001:
        parts.append(f"cost of the nodes with pods {100 * (run['costInUse'] / first['costInUse'] - 1):+.1f} %")
    return f"<b>{escape(run['configuration'])}</b>: {escape('; '.join(parts))}."


def _numbers(runs: Sequence[Document]) -> str:
    head = "".join(
        f'<th class="number"><span class="key" style="background:{COLOURS[index % len(COLOURS)]}"></span>'
        f"{escape(run['configuration'])}</th>"
        for index, run in enumerate(runs)
    )
    rows = "".join(_number_row(name, texts) for name, texts in measures(runs))
    return f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _number_row(name: str, texts: Sequence[str]) -> str:
    cells = "".join(f'<td class="number">{escape(text)}</td>' for text in texts)
    return f"<tr><th>{escape(name)}</th>{cells}</tr>"


def _comparison(comparison: Document) -> str:
    title = f"<h3>{escape(comparison['other'])} beside {escape(comparison['base'])}</h3>"
    if not comparison["different"]:
        return f"{title}<p>All {counted(comparison['same'], 'pod')} are on the same node.</p>"
    most = comparison["causes"][0]["count"]
    causes = "".join(
        f'<tr><td class="number">{each["count"]}</td>'
        f'<td><span class="bar" style="width:{140 * each["count"] / most:.0f}px"></span></td>'
        f"<td>{escape(each['cause'])}</td></tr>"
        for each in comparison["causes"][:12]
    )
    rows = "".join(
        f'<tr><td class="name">{escape(each["pod"])}</td>'
        f'<td class="number">{each["seconds"]:.1f} s</td><td class="node">{escape(each["expected"] or "no node")}</td>'
        f'<td class="node">{escape(each["node"] or "no node")}</td><td>{escape(each["cause"])}'
        f'<div class="detail">{escape(each.get("detail", ""))}</div></td></tr>'
        for each in comparison["differences"][:LISTED]
    )
    shown = min(LISTED, comparison["different"])
    return (
        f"{title}<p>{counted(comparison['same'], 'pod')} on the same node, {comparison['different']} not. "
        f"{_HOW[comparison['base'] == RECORD]}</p>"
        '<table><thead><tr><th class="number">pods</th><th></th><th>cause</th></tr></thead>'
        f"<tbody>{causes}</tbody></table>"
        f"<p>The first {shown} in the order of the decisions:</p>"
        '<table><thead><tr><th>pod</th><th class="number">after</th>'
        f"<th>{escape(comparison['base'])}</th><th>{escape(comparison['other'])}</th><th>why not the same</th></tr>"
        f"</thead><tbody>{rows}</tbody></table>"
    )


def _waiting(runs: Sequence[Document]) -> str:
    """Why pods still wait at the end."""
    rows = "".join(
        f'<tr><td>{escape(run["configuration"])}</td><td class="number">{each["count"]}</td>'
        f'<td class="detail">{escape(each["message"])}</td></tr>'
        for run in runs
        for each in run["whyWaiting"]
    )
    if not rows:
        return ""
    return (
        "<h2>Why pods wait at the end</h2><table><thead><tr><th>configuration</th>"
        f'<th class="number">pods</th><th>message of the scheduler</th></tr></thead><tbody>{rows}</tbody></table>'
    )


def _figure(plot: ReplayPlot) -> str:
    label = escape(f"{plot.title}. {plot.note}")
    svg = plot.svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
    return f"<figure><h3>{escape(plot.title)}</h3><figcaption>{escape(plot.note)}</figcaption>{svg}</figure>"


def _reading() -> str:
    return (
        "<footer><p>Utilisation is what pods request of what nodes have. Fragmentation is what is idle on nodes where a "
        "pod of the trace that asks for it does not fit, on average over the sizes of the pods. Waiting time is from the "
        "creation of a pod until it is bound. Lines differ in colour, dashes and markers.</p>"
        "<p>Made by <code>wharf replay</code>, in virtual time, with the scheduler and controllers themselves.</p></footer>"
    )
