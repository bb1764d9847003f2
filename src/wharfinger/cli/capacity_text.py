"""The answer of `wharf capacity` for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wharfinger.api.times import human_duration
from wharfinger.api.wording import counted, listed
from wharfinger.capacity.choosing import CHEAPEST, NONE, CapacityChoice
from wharfinger.capacity.report import CapacityReport
from wharfinger.cli.output import paint, table, terminal_width

_SHOWN = 20  # pods or nodes of a section
_TITLES = {NONE: "as it is", CHEAPEST: "cheapest"}

Section = tuple[str, Sequence[str], list[Sequence[str]], list[str]]
"""The heading, the header of a table, its rows, and lines below."""


def capacity_text(found: CapacityReport) -> str:
    width = terminal_width()
    parts = [paint(_headline(found), "red" if found.best.unserved or found.surprise else "green", bold=True)]
    for heading, header, rows, below in _sections(found):
        lines = [paint(heading, "cyan", bold=True)]
        if rows:
            lines.append(table(header, rows, width=width))
        parts.append("\n".join([*lines, *below]))
    return "\n\n".join(parts)


def capacity_markdown(found: CapacityReport) -> str:
    parts = [f"**{_headline(found)}**"]
    for heading, header, rows, below in _sections(found):
        parts += ["", f"### {heading}"]
        if rows:
            parts += ["", "| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
            parts += ["| " + " | ".join(cell or "-" for cell in row) + " |" for row in rows]
        if below:
            parts += ["", *(f"- {line}" for line in below)]
    return "\n".join(parts)


def _headline(found: CapacityReport) -> str:
    best = found.best
    if found.surprise:
        return f"The choice does not work: {found.surprise}"
    pods = sum(len(node.pods) for node in best.nodes)
    if best.unserved:
        left = counted(len(best.unserved), "pod")
        return f"{left} would get no node" + (f", {pods} on {counted(len(best.nodes), 'new node')}" if pods else "")
    if not best.nodes:
        return "Nothing waits for a new node"
    added = f"{counted(len(best.nodes), 'new node')} for {counted(pods, 'pod')}"
    if found.priced:
        bound = "no set costs less" if found.optimal else f"every set costs at least {found.bound:.4g}"
        return f"{added}: {best.cost:.4g} per hour; {bound}"
    return f"{added}; " + ("fewer are not enough" if found.optimal else f"at least {found.bound:.0f} are needed")


def _sections(found: CapacityReport) -> Iterable[Section]:
    yield _groups(found)
    if found.best.nodes or any(choice.nodes for choice in found.choices):
        yield _choices(found)
        yield _new_nodes(found)
    if found.times:
        yield _starts(found)
    if found.best.unserved:
        rows = [(pod, why) for pod, why in list(found.best.unserved.items())[:_SHOWN]]
        yield "Pods that no group serves", ("pod", "why"), [*rows], _rest(len(found.best.unserved))
    if found.held:
        rows = [(pod, why) for pod, why in list(found.held.items())[:_SHOWN]]
        yield "Pods that must not be scheduled yet", ("pod", "why"), [*rows], _rest(len(found.held))
    if found.fitting:
        rows = [(pod, node) for pod, node in list(found.fitting.items())[:_SHOWN]]
        yield "Pods that need no new node", ("pod", "node"), [*rows], _rest(len(found.fitting))
    if found.removal.nodes:
        yield _removable(found)
    if found.more_of:
        yield _more(found)


def _groups(found: CapacityReport) -> Section:
    rows = []
    for group in found.groups:
        new = sum(node.model.group == group.name for node in found.best.nodes)
        most = "-" if group.max_size is None else str(group.max_size)
        sizes = (str(len(group.nodes)), str(len(group.silent)), str(group.coming), str(new), most)
        kinds = listed([model.title or "(template)" for model in group.models], 3) or "-"
        rows.append((group.name, group.source, *sizes, kinds))
    below = [_cost(found)] if found.priced else []
    header = ("node group", "known from", "nodes", "silent", "coming", "new", "max", "types")
    return "Node groups", header, [*rows], below if rows else ["no node groups are known: see --node-group", *below]


def _cost(found: CapacityReport) -> str:
    parts = [f"Cost per hour: {found.cost_now:.4g} now"]
    if found.best.nodes:
        parts.append(f"{found.best.cost:.4g} for new nodes")
    if found.removal.saved:
        parts.append(f"{found.removal.saved:.4g} less by removing nodes")
    return f"{', '.join(parts)}: {found.cost_after:.4g} after" if len(parts) > 1 else parts[0]


def _choices(found: CapacityReport) -> Section:
    rows = []
    for choice in found.choices:
        unserved = str(len(choice.unserved))
        cost = f"{choice.cost:.4g}" if found.priced else str(len(choice.nodes))
        rows.append((choice.title, cost, unserved, _nodes(choice) or "none"))
    first, best = found.choices[0], found.best
    below = []
    if not first.unserved and first.cost > best.cost + 1e-9:
        share = round(100 * (1 - best.cost / first.cost))
        below = [f"The cheapest set costs {share} % less than the first nodes that fit."]
    return "Choices", ("choice", "per hour" if found.priced else "nodes", "unserved", "new nodes"), [*rows], below


def _nodes(choice: CapacityChoice) -> str:
    return ", ".join(
        f"{count} {group}{f' ({title})' if title else ''}" for (group, title), count in sorted(choice.counts().items())
    )


def _new_nodes(found: CapacityReport) -> Section:
    rows = []
    for node in found.best.nodes[:_SHOWN]:
        cost = f"{node.model.price:.4g}" if found.priced else "-"
        what = f"{listed(node.pods, 3)}: {node.reason}" if node.reason else listed(node.pods, 3)
        rows.append((node.name, node.model.title or "-", cost, human_duration(node.model.startup), what))
    header = ("new node", "type", "per hour", "starts in", "needed for")
    return "The cheapest set", header, [*rows], _rest(len(found.best.nodes))


def _starts(found: CapacityReport) -> Section:
    titles = list(found.times)
    pods = sorted({pod for times in found.times.values() for pod in (*times.starts, *times.never)})
    rows = []
    for pod in pods[:_SHOWN]:
        cells = []
        for title in titles:
            start = found.times[title].starts.get(pod)
            cells.append("never" if start is None else f"{human_duration(start.after)} on {start.node}")
        rows.append((pod, *cells))
    header = ("pod", *(_TITLES.get(title, title) for title in titles))
    return "When pods start", header, [*rows], _rest(len(pods))


def _removable(found: CapacityReport) -> Section:
    rows, new = [], {node.name for node in found.best.nodes}
    for node in found.removal.nodes[:_SHOWN]:
        when = "now" if node.at is None else f"in {human_duration(max(node.at - found.now, 0.0))}"
        if any(move.target in new for move in node.moves):
            when = "with the new nodes"
        cost = f"{node.price:.4g}" if found.priced else "-"
        targets = [f"{move.pod} to {move.target}" for move in node.moves]
        what = f"after {counted(len(targets), 'move')}: {listed(targets, 3)}" if targets else "it is empty then"
        rows.append((node.node, found.group_of.get(node.node, "-"), when, cost, what))
    below = [*_rest(len(found.removal.nodes)), "`wharf repack` makes such moves."]
    return "Nodes that could be removed", ("node", "node group", "when", "per hour", "how"), [*rows], below


def _more(found: CapacityReport) -> Section:
    rows = []
    for each in found.more:
        after = "no limit" if each.after_scale_up is None else str(each.after_scale_up)
        rows.append((each.group or "all nodes", str(each.now), str(each.per_node), after))
    return f"How many more of {found.more_of} fit", ("node group", "now", "per new node", "at most"), [*rows], []


def _rest(number: int) -> list[str]:
    return [f"and {number - _SHOWN} more"] if number > _SHOWN else []
