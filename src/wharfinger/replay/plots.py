"""The plots of a replay report, as SVG. Configurations differ by colour, dashes and markers, so that a plot can be read
without colours, and on paper."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wharfinger.api.registry import Document

if TYPE_CHECKING:
    import altair as alt

# Okabe and Ito's colours, without the yellow that is too light for lines.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
DASHES = ([1, 0], [7, 3], [2, 2], [9, 3, 2, 3], [4, 4], [12, 4], [1, 3])
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right")
WIDTH, HEIGHT = 400, 170
_MARKERS = 9  # on each line
_TIMES = [0, 1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000]  # seconds on the axis of waiting times
_FONT = "Helvetica, Arial, sans-serif"


@dataclass(frozen=True, slots=True)
class ReplayPlot:
    title: str
    note: str  # what it shows, for those who read or hear the page
    svg: str


def plots(report: Document) -> list[ReplayPlot]:
    runs: Sequence[Document] = report["runs"]
    made = [_over_time(runs, name, title, note, share) for name, title, note, share in _curves(runs)]
    made.insert(_after_queue(made), _waiting(runs))
    return [plot for plot in made if plot is not None]


def _after_queue(made: Sequence[ReplayPlot | None]) -> int:
    return next((index + 1 for index, plot in enumerate(made) if plot and plot.title == "Queue length"), len(made))


def _curves(runs: Sequence[Document]) -> list[tuple[str, str, str, bool]]:
    """Field, title, note and whether it is a share, of each plot over time."""
    names = list(dict.fromkeys(name for run in runs for point in run["samples"] for name in point))
    found = []
    for name in sorted(each for each in names if each.startswith("utilisation ")):
        resource = name.partition(" ")[2]
        found.append((name, f"Utilisation: {resource}", f"Requested {resource}, of what the nodes have.", True))
    found.append(("waiting", "Queue length", "Pods that wait for a node.", False))
    for name in sorted(each for each in names if each.startswith("fragmentation ")):
        resource = name.partition(" ")[2]
        note = f"{resource.capitalize()} that is idle where typical pods do not fit, of what the nodes have."
        found.append((name, f"Fragmentation: {resource}", note, True))
    found.append(("preemptions", "Preemptions", "Pods preempted since the start.", False))
    if any(point.get("costPerHour") for run in runs for point in run["samples"]):
        found.append(("costInUsePerHour", "Cost of nodes with pods", "Price per hour of the nodes in use.", False))
    for name in sorted(each for each in names if each.startswith(("unit ", "reservation "))):
        found.append((name, name[0].upper() + name[1:], "As told by the system.", not name.startswith("unit pods")))
    return [each for each in found if _varies(runs, each[0])]


def _varies(runs: Sequence[Document], name: str) -> bool:
    """A curve that is zero everywhere tells nothing."""
    return any(point.get(name) for run in runs for point in run["samples"])


def _over_time(runs: Sequence[Document], name: str, title: str, note: str, share: bool) -> ReplayPlot | None:
    longest = max((run["seconds"] for run in runs), default=0.0)
    unit, length = next(
        (
            (unit, length)
            for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60))
            if longest > 2 * length
        ),
        ("seconds", 1),
    )
    rows = [
        {"x": point["seconds"] / length, "y": point[name], "run": run["configuration"]}
        for run in runs
        for point in run["samples"]
        if name in point
    ]
    return _plot(rows, runs, title, note, f"{unit} since the start", share=share, step=True)


def _waiting(runs: Sequence[Document]) -> ReplayPlot | None:
    rows = [
        {"x": value, "y": share / 100, "run": run["configuration"]}
        for run in runs
        for share, value in enumerate(run["waitingQuantiles"])
    ]
    if not any(row["x"] for row in rows):
        return None
    note = "The share of the placed pods that waited at most so long."
    return _plot(rows, runs, "Waiting time", note, "seconds", share=True, step=False)


def _plot(
    rows: list[dict[str, Any]],
    runs: Sequence[Document],
    title: str,
    note: str,
    axis: str,
    *,
    share: bool,
    step: bool,
) -> ReplayPlot:
    import altair as alt

    names = [run["configuration"] for run in runs]
    number = len(names)
    colour = alt.Scale(domain=names, range=[COLOURS[index % len(COLOURS)] for index in range(number)])
    dash = alt.Scale(domain=names, range=[DASHES[index % len(DASHES)] for index in range(number)])
    shape = alt.Scale(domain=names, range=[SHAPES[index % len(SHAPES)] for index in range(number)])
    legend = alt.Legend(title=None, orient="top", symbolStrokeWidth=0, symbolSize=80, labelLimit=300)
    # Most pods wait for no time at all, and a few for long, so waiting times have a scale that shows both.
    scale = alt.Scale() if step else alt.Scale(type="symlog", constant=1)
    ticks = alt.Undefined if step else _TIMES
    x = alt.X("x:Q", title=axis, scale=scale, axis=alt.Axis(grid=False, tickCount=6, values=ticks))
    y = alt.Y(
        "y:Q", title=None, axis=alt.Axis(format="%" if share else ",.4~g", tickCount=4), scale=alt.Scale(zero=True)
    )
    lines = (
        alt.Chart({"values": rows})
        .mark_line(interpolate="step-after" if step else "linear", strokeWidth=1.8)
        .encode(
            x=x,
            y=y,
            color=alt.Color("run:N", scale=colour, legend=legend),
            strokeDash=alt.StrokeDash("run:N", scale=dash, legend=None),
        )
    )
    markers = (
        alt.Chart({"values": _marked(rows, names)})
        .mark_point(filled=True, size=38, opacity=1)
        .encode(x=x, y=y, color=alt.Color("run:N", scale=colour), shape=alt.Shape("run:N", scale=shape, legend=legend))
    )
    chart = (lines + markers).properties(width=WIDTH, height=HEIGHT)
    return ReplayPlot(title, note, _svg(_styled(chart), f"{len(rows)}-{title}"))


def _marked(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[Mapping[str, Any]]:
    """A few points of each line, at different places, so that markers of equal lines do not cover each other."""
    found: list[Mapping[str, Any]] = []
    for index, name in enumerate(names):
        own = [row for row in rows if row["run"] == name]
        step = max(1, len(own) // _MARKERS)
        found += own[step * index // max(1, len(names)) :: step]
    return found


def _styled(chart: alt.LayerChart) -> alt.LayerChart:
    styled: alt.LayerChart = (
        chart.configure(font=_FONT, background="white")
        .configure_view(stroke=None)
        .configure_axis(labelFontSize=11, titleFontSize=11, titleFontWeight="normal", gridColor="#dddddd")
        .configure_legend(labelFontSize=11)
    )
    return styled


def _svg(chart: alt.LayerChart, name: str) -> str:
    """The chart as SVG that can be put beside others into one page: its ids are made unique."""
    import vl_convert

    text: str = vl_convert.vegalite_to_svg(chart.to_dict())
    prefix = re.sub(r"\W+", "-", name).strip("-").lower()
    text = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', text)
    return re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", text)
