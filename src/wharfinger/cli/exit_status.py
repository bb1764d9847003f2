"""The exit status of every command. `docs/commands.md` has the table.

0 the command did what it was asked, and the answer is good
1 the answer is no, or the operation failed: the server does not answer, an object is refused, a simulation stands still
2 the input cannot be used: arguments, files, configurations, the kubeconfig, an object that does not exist
130 interrupted

`wharf plan` alone follows `terraform plan`: 0 nothing would change, 2 something would, 1 any error.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import click

OK = 0
NO = 1
BAD_INPUT = 2
CHANGES = 2  # of `wharf plan`
INTERRUPTED = 130


class InputError(click.ClickException):
    """The input cannot be used."""

    exit_code = BAD_INPUT


class OneForErrors(click.Command):
    """A command that exits with 1 on any error, because 2 is an answer."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with _one_for_errors():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        with _one_for_errors(), statuses():
            return super().invoke(ctx)


@contextmanager
def _one_for_errors() -> Iterator[None]:
    try:
        yield
    except click.ClickException as error:
        error.show()
        raise click.exceptions.Exit(NO) from error


@contextmanager
def statuses() -> Iterator[None]:
    """Turns the errors that commands leave to the command line into a message and an exit status."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo(err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None
    except OSError as error:
        # A file that cannot be read or written. A closed pipe has no file name; click handles it.
        if error.filename is None:
            raise
        raise InputError(f"{error.filename}: {error.strerror}") from error
    except Exception as error:
        if _is(error, "wharfinger.api.errors", "ApiError"):
            raise click.ClickException(str(error)) from error
        if (
            _is(error, "wharfinger.simulate.inputs", "BadInput")
            or _is(error, "wharfinger.client.kubeconfig", "KubeconfigError")
            or _is(error, "wharfinger.api.configuration", "BadConfiguration")
        ):
            raise InputError(str(error)) from error
        raise


def _is(error: Exception, module: str, name: str) -> bool:
    """Whether an error is of a class that is not worth importing: if its module was never imported, it is not."""
    found = sys.modules.get(module)
    return found is not None and isinstance(error, getattr(found, name))


@contextmanager
def interruptible() -> Iterator[None]:
    """Inside, Ctrl-C ends the process at once. For simulations: they leave nothing behind, and to unwind their tasks
    takes long and prints errors of components that were cut off."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, _exit_now)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _exit_now(number: int, frame: FrameType | None) -> None:
    with suppress(Exception):
        sys.stdout.flush()
    with suppress(Exception):
        os.write(sys.stderr.fileno(), b"\r\033[K" if sys.stderr.isatty() else b"\n")
    os._exit(INTERRUPTED)
