"""A ChangePlan as text for a terminal, and as Markdown for pull requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from wharfinger.cli.output import Colour, paint, table, terminal_width
from wharfinger.cli.plan_sections import Mark, PlanSection, headline, sections
from wharfinger.cli.report_text import failure, left_out
from wharfinger.system import ordered_systems

if TYPE_CHECKING:
    from wharfinger.simulate.planning import ChangePlan

_MANY = 40  # rows of a section; more are only counted
_COLOURS: dict[Mark, Colour] = {"+": "green", "-": "red", "~": "yellow", "!": "red"}


def plan_text(plan: ChangePlan, *, everything: bool) -> str:
    if plan.empty and not plan.failed:
        return paint(no_changes(), "green", bold=True)
    told = headline(plan)
    first = [
        paint(f"Bad news: {told.bad}.", "red", bold=True) if told.bad else "",
        paint(f"{'Also' if told.bad else 'Plan'}: {told.rest}.", "yellow", bold=not told.bad) if told.rest else "",
    ]
    parts = ["\n".join(filter(None, first))]
    parts += [_section(each, everything) for each in sections(plan, everything=everything)]
    if plan.failed:
        lines = (line for each in plan.failed for line in failure(each))
        parts.append("\n".join([paint("Failed expectations of the change", "red", bold=True), *lines]))
    return "\n\n".join(parts)


def no_changes() -> str:
    nouns = ["workload", "pod", *filter(None, (system.report().compared_noun for system in ordered_systems()))]
    return f"No changes: every {', '.join(nouns[:-1])} and {nouns[-1]} stays as it is."


def _section(section: PlanSection, everything: bool) -> str:
    shown = section.rows if everything else section.rows[:_MANY]
    rows = [(paint(row.mark, _COLOURS[row.mark], bold=True), *row.cells) for row in shown]
    # The marks are a column without a title.
    lines = table(("", *section.header), rows, gap=2, width=terminal_width()).splitlines()
    found = [paint(section.title, "cyan", bold=True), *lines]
    if len(shown) < len(section.rows):
        found.append(left_out(len(section.rows) - len(shown)))
    return "\n".join(found)


def plan_markdown(plan: ChangePlan, *, everything: bool) -> str:
    """As GitHub and GitLab show it in a comment. Long sections are folded."""
    if plan.empty and not plan.failed:
        return f"### wharf plan\n\n✅ {no_changes()}"
    return "\n\n".join(["### wharf plan", *_markdown(plan, everything)])


def _markdown(plan: ChangePlan, everything: bool) -> Iterator[str]:
    told = headline(plan)
    if told.bad:
        yield f"❌ **{told.bad}**" + (f"; {told.rest}" if told.rest else "")
    else:
        yield f"✅ {told.rest}"
    for section in sections(plan, everything=everything):
        rows = [f"| `{row.mark}` | {' | '.join(map(_escaped, row.cells))} |" for row in section.rows]
        lines = [f"| | {' | '.join(section.header)} |", "|---" * (len(section.header) + 1) + "|", *rows]
        body = "\n".join(lines)
        if len(rows) > _MANY:
            yield f"<details><summary><b>{section.title}</b> ({len(rows)})</summary>\n\n{body}\n\n</details>"
        else:
            yield f"#### {section.title}\n\n{body}"
    if plan.failed:
        lines = [line for each in plan.failed for line in failure(each)]
        yield "#### Failed expectations of the change\n\n```\n" + "\n".join(lines) + "\n```"


def _escaped(cell: str) -> str:
    """Text in a cell of a table: no row may end in it, and nothing in it is markup."""
    for letter in "\\`*_<>|[]":
        cell = cell.replace(letter, f"\\{letter}")
    return " ".join(cell.split())
