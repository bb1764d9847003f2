"""Results of a benchmark, saved as a baseline and compared with one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from wharfinger.cli.options import EXISTING_FILE

Results = dict[str, Any] | list[dict[str, Any]]
Numbers = dict[str, dict[str, float]]
"""Numbers by their names, for each result by its name."""

_KIND = "BenchmarkBaseline"


def baseline_options(benchmark: Callable[..., Results]) -> Callable[..., None]:
    """Adds `--save` and `--against` to a benchmark that returns its results."""

    @click.option(
        "--save",
        type=click.Path(dir_okay=False, writable=True, path_type=Path),
        metavar="FILE",
        help="Save the results as a baseline.",
    )
    @click.option("--against", type=EXISTING_FILE, metavar="FILE", help="Compare the results with a saved baseline.")
    @functools.wraps(benchmark)
    def measured(*args: Any, save: Path | None, against: Path | None, **options: Any) -> None:
        before = None if against is None else load_baseline(against)
        found = numbers_of(benchmark(*args, **options))
        if save is not None:
            save.write_bytes(msgspec.json.format(msgspec.json.encode({"kind": _KIND, "results": found}), indent=2))
        if before is not None:
            # The comparison is for people: JSON on standard output stays what it is.
            click.echo("\n".join(comparison(before, found)), err=options.get("output") == "json")

    return measured


def show_result(result: dict[str, Any], output: str) -> None:
    """Prints a result as text, a line for each number, or as JSON."""
    from wharfinger.cli.output import emit

    if output == "json":
        emit(result, output, kind="Benchmark")
        return
    for key, value in result.items():
        click.echo(f"{key:26} {value}")


def load_baseline(path: Path) -> Numbers:
    try:
        document = msgspec.json.decode(path.read_bytes())
        if not isinstance(document, dict) or document.get("kind") != _KIND:
            raise click.BadParameter(f"{path} is not a baseline that --save wrote", param_hint="--against")
        return msgspec.convert(document.get("results"), Numbers)
    except msgspec.MsgspecError as error:
        raise click.BadParameter(
            f"{path} is not a baseline that --save wrote: {error}", param_hint="--against"
        ) from None


def numbers_of(results: Results) -> Numbers:
    """The numbers of results; a list is named by workload or by position."""
    listed = results if isinstance(results, list) else [results]
    return {
        str(result.get("workload", f"result {index}")): dict(_numbers(result)) for index, result in enumerate(listed, 1)
    }


def _numbers(result: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for name, value in result.items():
        if isinstance(value, dict):
            yield from _numbers(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield prefix + name, value


def comparison(before: Numbers, now: Numbers) -> Iterator[str]:
    """A line for each number that is in both, with its change."""
    yield f"{'':>34}  {'':>24}  {'before':>14}  {'now':>14}  {'change':>8}"
    for name, numbers in now.items():
        if name not in before:
            yield f"{name:>34}  not in the baseline"
            continue
        for which, value in numbers.items():
            past = before[name].get(which)
            if past is None:
                continue
            change = f"{(value - past) / past:+.1%}" if past else ""
            yield f"{name:>34}  {which:>24}  {past:>14,.6g}  {value:>14,.6g}  {change:>8}"
