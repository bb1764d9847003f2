"""A long campaign of `wharf fuzz` over all profiles, which can be stopped at any time and continued.

    python -m tests.fuzz.campaign --first 2000000 --seeds 10000 --log fuzz-campaign.jsonl

Seeds are played in ranges, each in one profile, with the larger share for the profiles that mix everything. One line of
JSON is appended to the log for each range that is complete; a range that is in the log is not played again. What is
found is shrunk and kept as a Scenario beside the log. With `--report`, only the totals of the log are printed.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wharfinger.fuzz.campaign import CampaignTotals, SeedVerdict, commit, run_seeds
from wharfinger.fuzz.playing import DEFAULT_STEPS

RANGE = 20  # seeds
SHARES = {
    "default": 4,
    "scheduling": 2,
    "leaders": 2,
    "large": 1,
    "requests": 1,
    "watches": 1,
    "tenants": 1,
    "claims": 1,
    "placement": 1,
    "calm": 1,
}
"""Of so many ranges together, how many each profile gets."""


@dataclass(frozen=True, slots=True)
class SeedRange:
    profile: str
    first: int
    last: int


def plan(first: int, seeds: int) -> Iterator[SeedRange]:
    """The ranges of a campaign, the profiles in turn."""
    turns = [name for turn in range(max(SHARES.values())) for name, share in SHARES.items() if turn < share]
    for number, start in enumerate(range(first, first + seeds, RANGE)):
        yield SeedRange(turns[number % len(turns)], start, min(start + RANGE, first + seeds) - 1)


def logged(file: Path) -> list[dict[str, Any]]:
    """The ranges in a log. A line that was being written when the campaign was killed does not count."""
    found = []
    for line in file.read_text().splitlines() if file.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def append(file: Path, line: dict[str, Any]) -> None:
    torn = file.exists() and not file.read_bytes().endswith(b"\n")
    with file.open("a") as log:
        log.write("\n" * torn + json.dumps(line) + "\n")


def play(each: SeedRange, steps: int, jobs: int, folder: Path) -> dict[str, Any]:
    """Plays a range, and returns its line of the log."""
    totals, violations = CampaignTotals(), []
    for verdict in run_seeds(range(each.first, each.last + 1), steps, each.profile, jobs):
        totals.add(verdict)
        if verdict.violations:
            violations.append(_kept(verdict, each.profile, folder))
    return {
        "profile": each.profile,
        "first": each.first,
        "last": each.last,
        "seeds": totals.seeds,
        "steps": totals.steps,
        "seconds": round(totals.seconds, 2),
        "stepsPerSecond": round(totals.rate, 1),
        "commit": commit(),
        "violations": violations,
    }


def _kept(verdict: SeedVerdict, profile: str, folder: Path) -> dict[str, Any]:
    first = verdict.violations[0]
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{first.invariant}-{profile}-{verdict.seed}.yaml"
    file.write_text(first.scenario)
    return {
        "seed": verdict.seed,
        "step": first.step,
        "invariant": first.invariant,
        "message": first.message,
        "scenario": str(file),
    }


def report(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The totals of a log."""
    by_profile: Counter[str] = Counter()
    for line in lines:
        by_profile[line["profile"]] += line["steps"]
    return {
        "seeds": sum(line["seeds"] for line in lines),
        "steps": sum(line["steps"] for line in lines),
        "seconds": round(sum(line["seconds"] for line in lines), 1),
        "stepsByProfile": dict(by_profile),
        "violations": [{"profile": line["profile"], **each} for line in lines for each in line["violations"]],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=DEFAULT_STEPS, help="of each seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="seeds at a time")
    parser.add_argument("--log", type=Path, default=Path("fuzz-failures/campaign.jsonl"))
    parser.add_argument("--report", action="store_true", help="only print the totals of the log")
    options = parser.parse_args()
    options.log.parent.mkdir(parents=True, exist_ok=True)
    done = {(line["profile"], line["first"], line["last"]) for line in logged(options.log)}
    for each in () if options.report else plan(options.first, options.seeds):
        if (each.profile, each.first, each.last) not in done:
            line = play(each, options.steps, options.jobs, options.log.parent)
            append(options.log, line)
            print(f"{each.profile} {each.first}..{each.last}: {line['violations'] or 'nothing found'}", flush=True)
    print(json.dumps(report(logged(options.log)), indent=2))


if __name__ == "__main__":
    main()
