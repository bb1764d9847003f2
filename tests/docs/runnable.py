"""Blocks of pages that are marked to be run.

A comment before a fenced block marks it; readers do not see it. `<!-- run -->`: every line with `$` is run, and what it
prints is what follows it in the block; `…` stands for any text, and alone on a line for any lines. A command without
output in the block may print anything. `<!-- run: exit 1 -->`: with this exit status. `<!-- file: NAME -->`: the block is
saved under this name first.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from click.testing import CliRunner

from wharfinger.cli.main import wharf

_MARKED = re.compile(r"^<!-- (run|file)(?:: (.*?))? -->\n```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_SHELL = re.compile(r"[|<>&;$`*]")
_OWN_PROCESS = ("test",)  # subcommands that start processes


@dataclass
class Command:
    line: str
    status: int
    expected: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class SavedFile:
    name: str
    text: str


def marks(page: str) -> int:
    return len(re.findall(r"^<!-- (?:run|file)\b", page, re.MULTILINE))


def blocks(page: str) -> Iterator[list[Command] | SavedFile]:
    for what, argument, language, text in _MARKED.findall(page):
        if what == "file":
            yield SavedFile(argument, text)
            continue
        assert language == "console", f"a block of {language} cannot be run"
        status = int(argument.removeprefix("exit ")) if argument else 0
        found: list[Command] = []
        for line in text.splitlines():
            if line.startswith("$ "):
                found.append(Command(line[2:].partition("  #")[0].strip(), 0))
            else:
                found[-1].expected.append(line.rstrip())
        found[-1].status = status
        yield found


def play(page: Path, root: Path, folder: Path) -> None:
    """Runs the marked blocks of a page in a folder that has the files of the repository which pages name."""
    for name in ("examples", "scenarios"):
        (folder / name).symlink_to(root / name)
    place = folder
    before = Path.cwd()
    try:
        for block in blocks(page.read_text(encoding="utf-8")):
            if isinstance(block, SavedFile):
                (place / block.name).write_text(block.text, encoding="utf-8")
                continue
            for command in block:
                if command.line.startswith("cd "):
                    place = place / command.line[3:]
                    continue
                os.chdir(place)
                status, printed = _run(command.line)
                assert status == command.status, f"$ {command.line}\n{printed}"
                assert _agrees(command.expected, printed), f"$ {command.line}\n{printed}"
    finally:
        os.chdir(before)


def _run(line: str) -> tuple[int, str]:
    words = shlex.split(line)
    if words[0] == "wharf" and not _SHELL.search(line) and words[1] not in _OWN_PROCESS:
        done = CliRunner().invoke(wharf, words[1:], prog_name="wharf")
        return done.exit_code, done.stdout
    shim = f'wharf() {{ "{sys.executable}" -m wharfinger "$@"; }}\n'
    run = subprocess.run(["bash", "-c", shim + line], capture_output=True, text=True, timeout=120)
    return run.returncode, run.stdout


def _agrees(expected: list[str], printed: str) -> bool:
    if not expected:
        return True
    lines = [
        r"(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*") + r"[ ]*\n"
        for line in "\n".join(expected).rstrip("\n").split("\n")
    ]
    return re.fullmatch("".join(lines) + r"\n*", printed if printed.endswith("\n") else f"{printed}\n") is not None
