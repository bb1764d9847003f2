"""The man pages: one for `wharf`, and one for each command, such as `wharf-explain-pod.1`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from scripts.reference.commands import CommandText, OptionText

_STATUSES = (
    ("0", "The answer is good, and what was asked for is done."),
    ("1", "The answer is no, or the operation failed."),
    ("2", "The input cannot be used, and nothing was done. For wharf plan: something would change."),
    ("130", "Interrupted with Ctrl-C."),
)


def man_pages(root: CommandText, version: str, date: str) -> dict[str, str]:
    """The pages by file name. `date` is shown in the footer."""
    return {f"{_page(each)}.1": _render(each, root, version, date) for each in root.all()}


def _render(command: CommandText, root: CommandText, version: str, date: str) -> str:
    lines = [
        f'.TH "{_page(command).upper()}" "1" "{date}" "wharfinger {version}" "Wharfinger Manual"',
        ".SH NAME",
        _escaped(f"{_page(command)} - {command.summary.rstrip('.')}"),
        ".SH SYNOPSIS",
        *_synopsis(command),
        ".SH DESCRIPTION",
        *_paragraphs([command.summary, *command.details]),
    ]
    if command.options:
        lines += [".SH OPTIONS", *_options(command.options)]
    if command.subcommands:
        lines.append(".SH COMMANDS")
        for each in command.subcommands:
            lines += [".TP", rf"\fB{_bare(_page(each))}\fP(1)", _text(each.summary)]
    if command.examples:
        lines += [".SH EXAMPLES", ".nf", *(_escaped(each) for each in command.examples), ".fi"]
    if command is root:
        lines.append(".SH EXIT STATUS")
        for status, meaning in _STATUSES:
            lines += [".TP", rf"\fB{status}\fP", _text(meaning)]
        lines += [
            ".SH ENVIRONMENT",
            ".TP",
            r"\fBKUBECONFIG\fP",
            "The kubeconfig file of commands that talk to a cluster.",
        ]
        lines += [".TP", r"\fBWHARF_DATA_DIR\fP", "The default of \\-\\-data\\-dir."]
        lines += [".TP", r"\fBWHARF_DISABLED_SYSTEMS\fP", "Systems to leave out, separated by commas."]
    related = [each for each in root.all() if command in each.subcommands]
    if related:
        lines += [".SH SEE ALSO", ", ".join(rf"\fB{_bare(_page(each))}\fP(1)" for each in related)]
    return "\n".join(lines) + "\n"


def _page(command: CommandText) -> str:
    return command.name.replace(" ", "-")


def _synopsis(command: CommandText) -> list[str]:
    pieces = command.usage.removeprefix(command.name).strip()
    return [rf"\fB{_bare(command.name)}\fP {_bare(pieces)}".rstrip()]


def _paragraphs(paragraphs: list[str]) -> Iterator[str]:
    for number, paragraph in enumerate(paragraphs):
        if number:
            yield ".PP"
        yield _text(paragraph)


def _options(options: tuple[OptionText, ...]) -> Iterator[str]:
    for option in options:
        yield ".TP"
        value = rf" \fI{_bare(option.value)}\fP" if option.value else ""
        yield ", ".join(rf"\fB{_bare(flag)}\fP" for flag in option.flags) + value
        ending = " Required." if option.required else f" Default: {option.default}." if option.default else ""
        yield _text((option.help + ending).strip() or "\\&")


def _text(text: str) -> str:
    """A line of running text; words in backticks are bold."""
    parts = re.split(r"`([^`]+)`", text)
    return _guarded("".join(rf"\fB{_bare(part)}\fP" if i % 2 else _bare(part) for i, part in enumerate(parts)))


def _escaped(text: str) -> str:
    return _guarded(_bare(text))


def _bare(text: str) -> str:
    text = text.replace("\\", r"\e").replace("-", r"\-").replace("'", r"\(aq").replace("`", r"\(ga")
    return text.replace("…", "...").replace("~", r"\(ti").replace("^", r"\(ha")


def _guarded(line: str) -> str:
    """A line that begins with a dot would be a request."""
    return rf"\&{line}" if line.startswith((".", "'")) else line
