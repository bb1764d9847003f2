"""Explanations as text: rejected nodes grouped by reason, the nodes that come nearest, what would help, and the best
nodes with the score from each plugin."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from wharfinger.api.resources import amount_text
from wharfinger.api.wording import counted, listed
from wharfinger.cli.output import paint, table
from wharfinger.cli.report_text import left_out

if TYPE_CHECKING:
    from wharfinger.framework.explaining import AskedAmount
    from wharfinger.simulate.explaining import PodExplanation
    from wharfinger.simulate.obstacles import NearNode, RefusedGroup
    from wharfinger.simulate.remedies import PodRemedy
    from wharfinger.simulate.workloads import WorkloadExplanation

BEST = 10
_NEAREST = 3
_NAMED = 5
_IN_CELL = 8


def pod_text(explained: PodExplanation, *, everything: bool) -> str:
    metadata = explained.pod.metadata
    lines = [f"Pod {metadata.namespace}/{metadata.name}: {_verdict(explained)}"]
    if explained.asked:
        lines.append(f"Asks for: {', '.join(_amount(*each) for each in explained.asked.items())}")
    lines += [f"Note: {note}." for note in explained.notes if note not in explained.message]
    return "\n".join([*lines, *node_lines(explained, everything=everything)])


def workload_text(explained: WorkloadExplanation, *, everything: bool) -> str:
    on_nodes, fitting = sum(explained.on_nodes.values()), sum(explained.fitting.values())
    parts = [f"{explained.wanted} wanted", f"{on_nodes} on nodes ({explained.ready} ready)"]
    if fitting:
        parts.append(paint(f"{fitting} {'fits' if fitting == 1 else 'fit'} now", "green", bold=True))
    if explained.waits:
        parts.append(paint(f"{explained.waits} {'waits' if explained.waits == 1 else 'wait'}", "red", bold=True))
    if explained.refusal:
        parts.append(paint(f"{explained.missing} refused", "red", bold=True))
    lines = [f"{explained.kind} {explained.namespace}/{explained.name}: {', '.join(parts)}"]
    for title, by_node in (("On nodes", explained.on_nodes), ("Would go to", explained.fitting)):
        if by_node:
            named = [f"{node} ({number})" for node, number in by_node.items()]
            lines.append(f"{title}: {listed(named, len(named) if everything else BEST)}")
    if explained.refusal:
        lines.append(f"The API server refuses further pods: {explained.refusal}")
    lines += [f"Note: {note}." for note in explained.notes]
    for group in explained.waiting:
        number, names = len(group.names), sorted_names(group.names, everything)
        lines += ["", _title(f"{counted(number, 'pod')} {'waits' if number == 1 else 'wait'}: {names}")]
        found = group.explanation
        lines.append(found.message or next(iter(found.notes), ""))
        if found.asked:
            each = " each" if number > 1 else ""
            lines.append(f"Asks for{each}: {', '.join(_amount(*one) for one in found.asked.items())}")
        lines += [f"Note: {note}." for note in found.notes if note not in found.message]
        lines += node_lines(found, everything=everything)
    return "\n".join(lines)


def node_lines(explained: PodExplanation, *, everything: bool) -> list[str]:
    """The nodes: those that refuse, those that come nearest, what would help, and those that accept."""
    lines: list[str] = []
    found = explained.explanation
    if found.pre_filter is not None:
        lines.append(f"No node was looked at: {found.pre_filter.plugin} says {found.pre_filter.message}")
    if explained.refused:
        rows: list[tuple[Any, ...]] = [
            (
                len(each.nodes),
                each.plugin,
                "; ".join(each.reasons) or "-",
                _detail(each),
                sorted_names(each.nodes, everything),
            )
            for each in explained.refused
        ]
        lines += ["", _title(f"Refused: {counted(len(found.refused), 'node')}")]
        header: tuple[str, ...] = ("nodes", "plugin", "reason", "detail", "which")
        if all(row[3] == "-" for row in rows):
            header, rows = (*header[:3], header[4]), [(*row[:3], row[4]) for row in rows]
        lines.append(table(header, rows))
    for facts in explained.tables:
        rows = [tuple(_cell(each, everything) for each in row) for row in facts.rows]
        lines += ["", _title(facts.title), table(facts.header, rows)]
    lines += near_lines(explained.nearest if everything else explained.nearest[:_NEAREST])
    lines += remedy_lines(explained.remedies)
    if found.scores:
        best = sorted(found.scores, key=lambda name: (-found.total(name), name != explained.choice, name))
        shown = best if everything else best[:BEST]
        plugins = sorted({plugin for scores in found.scores.values() for plugin in scores})
        scored = [
            (name, found.total(name), *(found.scores[name].get(plugin, "-") for plugin in plugins)) for name in shown
        ]
        lines += ["", _title(f"Feasible: {counted(len(best), 'node')}"), table(("node", "total", *plugins), scored)]
        if len(shown) < len(best):
            lines.append(left_out(len(best) - len(shown)))
    return lines


def _cell(cell: Any, everything: bool) -> Any:
    if not isinstance(cell, tuple):
        return cell
    return listed(cell, len(cell) if everything else _IN_CELL) if cell else "-"


def near_lines(nearest: Sequence[NearNode]) -> list[str]:
    """The nodes that come nearest, with all that keeps the pod off them."""
    if not nearest:
        return []
    lines = ["", _title("Nearest to fitting")]
    for each in nearest:
        others = f" (and {counted(each.alike - 1, 'node')} like it)" if each.alike > 1 else ""
        lines.append(f"  {each.name}{others}")
        told = False
        for obstacle in each.obstacles:
            if each.lacking and all(
                reason.startswith(("Insufficient ", "Too many pods")) for reason in obstacle.reasons
            ):
                told = True
                continue
            detail = f": {obstacle.detail}" if obstacle.detail else ""
            lines.append(f"    {'; '.join(obstacle.reasons)}{detail}")
        lines += [f"    lacks {_lack(amount)}" for amount in each.lacking] if told else []
    return lines


def remedy_lines(remedies: Sequence[PodRemedy], pods: str = "") -> list[str]:
    """`pods` names those that are meant, where that is not clear."""
    if not remedies:
        return []
    lines = ["", _title(f"Would help{f' {pods}' if pods else ''}, smallest change first (each was tried)")]
    for each in remedies:
        where = "the new node" if "node" in each.kinds else each.node
        share = f"lets {each.lets_in} of {each.waiting} pods in" if each.waiting > 1 else f"then it goes to {where}"
        lines.append(f"  - {each.text}: {share}")
    return lines


def _title(text: str) -> str:
    return paint(text, "cyan", bold=True)


def _detail(group: RefusedGroup) -> str:
    parts = [group.detail] if group.detail else []
    for amount, name in group.most_free:
        asked, free = (amount_text(amount.resource, each) for each in (amount.asked, amount.free))
        parts.append(f"{amount.resource}: {asked} asked, at most {free} free (on {name})")
    return "; ".join(parts) or "-"


def _lack(amount: AskedAmount) -> str:
    lacking, asked, free = (amount_text(amount.resource, each) for each in (amount.lacking, amount.asked, amount.free))
    return f"{lacking} {amount.resource} ({asked} asked, {free} free)"


def _amount(resource: str, amount: int) -> str:
    return f"{amount_text(resource, amount)} {resource}"


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
