"""What tests of several layers need: outside programs, and a clear word where one is missing."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from typing import NamedTuple, NoReturn

import pytest


def require(program: str) -> str:
    """The path of a program on the PATH; without it the test is skipped, or fails where WHARF_REQUIRE lists it."""
    found = shutil.which(program)
    if found is None:
        missing(program)
    return found


def require_module(name: str) -> None:
    """As `require`, for a Python package."""
    if find_spec(name) is None:
        missing(name)


def missing(what: str, why: str = "") -> NoReturn:
    said = f"{what} is missing" + (f" ({why})" if why else "")
    if what in os.environ.get("WHARF_REQUIRE", "").replace(" ", "").split(","):
        pytest.fail(f"{said}, and WHARF_REQUIRE lists it")
    pytest.skip(said)


class Invocation(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def wharf_here(*arguments: str, stdin: str = "") -> Invocation:
    """Runs the `wharf` command in this process, which is much faster than a new one."""
    from click.testing import CliRunner

    from wharfinger.cli.main import wharf

    done = CliRunner().invoke(wharf, list(arguments), input=stdin or None)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Invocation(done.exit_code, done.stdout, done.stderr)
