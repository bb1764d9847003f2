"""`wharf sweep`: many replays, and the best configurations."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import click

from wharfinger.cli.options import output_option

SHOWN = 10  # configurations in the table


@click.command
@click.argument("spec", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--results",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.parquet",
    help="Where the results go, and where those of an earlier run are.  [default: SPEC with .parquet]",
)
@click.option("--jobs", type=click.IntRange(1), metavar="N", help="Replays at a time.  [default: the number of cores]")
@click.option("--dask", metavar="ADDRESS", help="Run on a Dask cluster, such as tcp://scheduler:8786.")
@output_option("table", "json", "yaml")
def command(spec: Path, results: Path | None, jobs: int | None, dask: str | None, output: str) -> None:
    """Replay traces with many configurations and seeds, and show which are best.

    An interrupted sweep goes on where it stopped when it is started again.

    \b
    Examples:
      wharf sweep sweep.yaml
      wharf sweep sweep.yaml --dask tcp://scheduler:8786 -o json
    """
    from wharfinger.api.wording import counted
    from wharfinger.cli.output import emit, table
    from wharfinger.cli.progress import progress
    from wharfinger.cli.simulating import bad_input, quiet
    from wharfinger.replay.extras import require_extra
    from wharfinger.replay.sweep_spec import read_spec
    from wharfinger.replay.sweeping import SweepResults, run_local, run_on_dask, standings, sweep

    quiet()
    if dask is not None and jobs is not None:
        raise click.UsageError("--jobs is for the cores of this machine, not for --dask")
    with bad_input():
        require_extra("polars", *(("distributed",) if dask is not None else ()))
        wanted = read_spec(spec)
        path = spec.with_suffix(".parquet") if results is None else results
        kept = SweepResults(path)
        with progress() as told:
            rows = sweep(
                wanted.jobs,
                kept,
                lambda left: run_local(left, jobs) if dask is None else run_on_dask(left, dask),
                None if told is None else _with_eta(told),
            )
        best = standings(rows, wanted.objective)
    way = "highest" if wanted.objective.maximize else "lowest"
    if output != "table":
        emit(
            {
                "objective": {"maximize" if wanted.objective.maximize else "minimize": wanted.objective.field},
                "results": str(path),
                "runs": len(rows),
                "best": [each.document() for each in best],
            },
            output,
            kind="SweepReport",
        )
        return
    click.echo(f"{counted(len(rows), 'replay')} in {path}; {way} {wanted.objective.field} first:\n")
    lines = [
        (f"{each.mean:.4f}", f"{each.lowest:.4f}", f"{each.highest:.4f}", each.runs, each.configuration)
        for each in best[:SHOWN]
    ]
    click.echo(table(["mean", "lowest", "highest", "runs", "configuration"], lines))


def _with_eta(told: Callable[[str, int, int], None]) -> Callable[[int, int], None]:
    """Progress with the time that is left, at the speed so far."""
    from wharfinger.api.times import human_duration

    began = time.monotonic()
    first: list[int] = []

    def tell(done: int, total: int) -> None:
        first[:] = first or [done - 1]
        passed, finished = time.monotonic() - began, done - first[0]
        left = passed / finished * (total - done)
        told(f"sweeping, {human_duration(left)} left", done, total)

    return tell
