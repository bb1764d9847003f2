"""Explanations as text: rejected nodes grouped by reason, and the best nodes with the score from each plugin."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from wharfinger.api.wording import counted, listed
from wharfinger.cli.output import paint, table
from wharfinger.cli.report_text import left_out

if TYPE_CHECKING:
    from wharfinger.simulate.explaining import PodExplanation

BEST = 10
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
        rows = [
            (len(names), plugin, reason or "-", sorted_names(names, everything)) for (plugin, reason), names in ordered
        ]
        lines += ["", paint(f"Refused: {counted(len(found.refused), 'node')}", "cyan", bold=True)]
        lines.append(table(("nodes", "plugin", "reason", "which"), rows))
    if found.scores:
        best = sorted(found.scores, key=lambda name: (-found.total(name), name != explained.choice, name))
        shown = best if everything else best[:BEST]
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


def sorted_names(names: Iterable[str], everything: bool) -> str:
    """Sorted names in one cell; unless `everything` is shown, only the first few."""
    ordered = sorted(names)
    return listed(ordered, len(ordered) if everything else _NAMED)
