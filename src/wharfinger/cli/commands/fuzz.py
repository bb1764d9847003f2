"""`wharf fuzz`: random histories with faults, and invariants that must hold."""

from __future__ import annotations

import itertools
import random
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wharfinger.cli.options import output_option

if TYPE_CHECKING:
    from wharfinger.fuzz.campaign import CampaignTotals, SeedVerdict


@click.command
@click.option("--seed", type=click.IntRange(min=0), help="Play this seed only.  [default: a new one]")
@click.option("--seeds", metavar="A..B", help="Play the seeds from A to B, over all cores.")
@click.option("--steps", type=click.IntRange(min=1), help="How many steps a history has.  [default: 300]")
@click.option("--for", "duration", metavar="DURATION", help="Play seed after seed for this long, such as 2m.")
@click.option("--profile", default="default", show_default=True, help="Which operations and faults take part.")
@click.option("-j", "--jobs", type=click.IntRange(1), help="How many seeds at a time.  [default: the number of cores]")
@click.option(
    "--save",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("fuzz-failures"),
    show_default=True,
    help="The folder for the Scenario of each failure.",
)
@output_option("text", "json", default="text")
def command(
    seed: int | None,
    seeds: str | None,
    steps: int | None,
    duration: str | None,
    profile: str,
    jobs: int | None,
    save: Path,
    output: str,
) -> None:
    """Play random histories of a simulated control plane under faults, and check invariants after every step.

    The same seed gives the same history. A failure is reported with its seed and with the shortest history found, as
    a Scenario that `wharf test` replays.

    Exit status: 0 no violation, 1 an invariant was violated, 2 invalid input.

    \b
    Examples:
      wharf fuzz --seed 7
      wharf fuzz --seeds 0..999 --profile leaders
      wharf fuzz --for 10m --save failures/
    """
    from wharfinger.cli.output import emit
    from wharfinger.cli.progress import progress
    from wharfinger.cli.simulating import bad_input, seconds
    from wharfinger.fuzz.campaign import CampaignTotals, run_seeds
    from wharfinger.fuzz.playing import DEFAULT_STEPS
    from wharfinger.fuzz.profiles import PROFILES

    if profile not in PROFILES:
        raise click.BadParameter(f"no profile {profile!r}; there are {', '.join(PROFILES)}", param_hint="--profile")
    if seed is not None and seeds is not None:
        raise click.UsageError("--seed and --seeds exclude each other")
    with bad_input():
        until = None if duration is None else time.monotonic() + seconds(duration, "--for")
    chosen = _seeds(seed, seeds, endless=duration is not None)
    totals, one = CampaignTotals(), seed is not None and duration is None
    with progress() as told:
        for verdict in run_seeds(chosen, steps or DEFAULT_STEPS, profile, 1 if one else jobs, until):
            totals.add(verdict)
            if verdict.violations:
                if told is not None:
                    told.clear()
                _report(verdict, profile, save, output)
            if told is not None:
                told(f"{totals.steps} steps, {len(totals.failed)} failures, seeds", totals.seeds, 0)
    if output == "json":
        emit(_document(verdict, profile, save) if one else _summary(totals, profile, save), output)
    else:
        _conclude(totals)
    sys.exit(1 if totals.failed else 0)


def _seeds(seed: int | None, seeds: str | None, *, endless: bool) -> Iterable[int]:
    if seeds is not None:
        first, dots, last = seeds.partition("..")
        if not dots or not first.isdigit() or not last.isdigit() or int(last) < int(first):
            raise click.BadParameter(f"{seeds!r} is not of the form A..B with A ≤ B", param_hint="--seeds")
        return range(int(first), int(last) + 1)
    start = random.SystemRandom().randrange(10**9) if seed is None else seed
    if seed is None:
        click.echo(f"seed {start}", err=True)
    return itertools.count(start) if endless else (start,)


def _report(verdict: SeedVerdict, profile: str, folder: Path, output: str) -> None:
    """Writes the Scenario of a failure, and says what to do with it."""
    from wharfinger.cli.output import paint
    from wharfinger.fuzz.campaign import commit

    first = verdict.violations[0]
    folder.mkdir(parents=True, exist_ok=True)
    file = _file(verdict, profile, folder)
    file.write_text(first.scenario)
    if output != "text":
        return
    click.echo(f"{paint('VIOLATED', 'red', bold=True)} {first.invariant} by seed {verdict.seed}, step {first.step}")
    for each in verdict.violations:
        click.echo(f"  {each.invariant}: {each.message}")
    click.echo("  the last steps:")
    for line in first.last:
        click.echo(f"    {line}")
    click.echo(f"  commit:  {commit()}")
    click.echo(f"  again:   wharf fuzz --seed {verdict.seed} --profile {profile} --steps {verdict.asked}")
    click.echo(f"  shrunk:  wharf test {file}  ({first.shrunk_to} steps)")


def _file(verdict: SeedVerdict, profile: str, folder: Path) -> Path:
    return folder / f"{verdict.violations[0].invariant}-{profile}-{verdict.seed}.yaml"


def _violations(verdict: SeedVerdict, profile: str, folder: Path) -> list[dict[str, object]]:
    return [
        {"invariant": each.invariant, "step": each.step, "scenario": str(_file(verdict, profile, folder))}
        for each in verdict.violations
    ]


def _document(verdict: SeedVerdict, profile: str, folder: Path) -> dict[str, object]:
    return {
        "seed": verdict.seed,
        "steps": verdict.steps,
        "stepsPerSecond": round(verdict.rate, 1),
        "violations": _violations(verdict, profile, folder),
    }


def _summary(totals: CampaignTotals, profile: str, folder: Path) -> dict[str, object]:
    violations = [
        {"seed": verdict.seed, **each} for verdict in totals.failed for each in _violations(verdict, profile, folder)
    ]
    return {
        "seeds": totals.seeds,
        "steps": totals.steps,
        "stepsPerSecond": round(totals.rate, 1),
        "violations": violations,
    }


def _conclude(totals: CampaignTotals) -> None:
    from wharfinger.cli.output import paint

    text = (
        f"{totals.steps} steps of {totals.seeds} seeds, {totals.rate:.0f} steps a second and core, "
        f"{len(totals.failed)} failures"
    )
    click.echo(paint(text, "red" if totals.failed else "green", bold=True))
