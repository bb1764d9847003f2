"""Explanations as text that fits on a screen: refused nodes grouped by reason, the best nodes with each plugin's score."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from wharfinger.api.wording import counted, listed
from wharfinger.cli.output import paint, table
from wharfinger.cli.report_text import left_out

if TYPE_CHECKING:
    from wharfinger.simulate.explaining import PodExplanation
    from wharfinger.systems.placement.rules.explain import Explanation as ClusterStory

_BEST = 10
_NAMED = 5


def pod_text(explained: PodExplanation, *, everything: bool) -> str:
    metadata = explained.pod.metadata
    lines = [f"Pod {metadata.namespace}/{metadata.name}: {_verdict(explained)}"]
    lines += [f"Note: {note}." for note in explained.notes]
    found = explained.explanation
    if found.pre_filter is not None:
        lines.append(f"No node was looked at: {found.pre_filter.plugin} says {found.pre_filter.message}")
    if found.refused:
        groups: dict[tuple[str, str], list[str]] = {}
        for name, status in found.refused.items():
            groups.setdefault((status.plugin, "; ".join(status.reasons)), []).append(name)
        ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
        rows = [(len(names), plugin, reason or "-", _names(names, everything)) for (plugin, reason), names in ordered]
        lines += ["", paint(f"Refused: {counted(len(found.refused), 'node')}", "cyan", bold=True)]
        lines.append(table(("nodes", "plugin", "reason", "which"), rows))
    if found.scores:
        best = sorted(found.scores, key=lambda name: (-found.total(name), name != explained.choice, name))
        shown = best if everything else best[:_BEST]
        plugins = sorted({plugin for scores in found.scores.values() for plugin in scores})
        scored = [
            (name, found.total(name), *(found.scores[name].get(plugin, "-") for plugin in plugins)) for name in shown
        ]
        lines += [
            "",
            paint(f"Feasible: {counted(len(best), 'node')}", "cyan", bold=True),
            table(("node", "total", *plugins), scored),
        ]
        if len(shown) < len(best):
            lines.append(left_out(len(best) - len(shown)))
    return "\n".join(lines)


def _verdict(explained: PodExplanation) -> str:
    if explained.choice:
        ties = [
            name
            for name in explained.explanation.scores
            if explained.explanation.total(name) == explained.explanation.total(explained.choice)
        ]
        shared = f" (one of {len(ties)} equally good)" if len(ties) > 1 else ""
        return paint(f"goes to {explained.choice}{shared}", "green", bold=True)
    return paint(f"fits nowhere: {explained.message or 'there are no nodes'}", "red", bold=True)


def placement_text(story: ClusterStory, *, everything: bool) -> str:
    chosen = listed(story.selected, _BEST)
    lines = [
        f"Placement {story.namespace}/{story.name}: {paint(chosen or 'selects nothing', 'green' if chosen else 'red', bold=True)}"
    ]
    if story.message:
        lines.append(f"{story.status}: {story.message}")
    ranked = sorted((each for each in story.clusters if each.total is not None), key=lambda each: each.rank or 0)
    if ranked:
        shown = ranked if everything else ranked[: max(_BEST, len(story.selected))]
        parts = list(dict.fromkeys(part.prioritizer for each in ranked for part in each.parts))
        rows = []
        for each in shown:
            scores = {
                part.prioritizer: f"{part.score if part.score is not None else 'none'}×{part.weight}"
                for part in each.parts
            }
            rows.append(
                (
                    each.rank,
                    each.name,
                    "yes" if each.selected else each.reason or "no",
                    each.total,
                    *(scores.get(name, "-") for name in parts),
                )
            )
        lines += ["", paint(f"Feasible: {counted(len(ranked), 'cluster')}", "cyan", bold=True)]
        lines.append(table(("rank", "cluster", "selected", "total", *parts), rows))
        if len(shown) < len(ranked):
            lines.append(left_out(len(ranked) - len(shown)))
    groups: dict[tuple[str, str], list[str]] = {}
    for each in story.clusters:
        if each.total is None and each.plugin:
            groups.setdefault((each.plugin, each.reason), []).append(each.name)
    if groups:
        ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
        lines += ["", paint("Refused", "cyan", bold=True)]
        lines.append(
            table(
                ("clusters", "filter", "reason", "which"),
                [(len(names), plugin, reason, _names(names, everything)) for (plugin, reason), names in ordered],
            )
        )
    return "\n".join(lines)


def _names(names: Iterable[str], everything: bool) -> str:
    ordered = sorted(names)
    return listed(ordered, len(ordered) if everything else _NAMED)
