"""`make bench-instructions`: counts the instructions of short workloads, and fails if one takes much more than in the baseline.

Times depend on what else a machine does, and instructions do not. They are counted by `perf stat` where the machine lets
it, otherwise by valgrind. With `--save`, the baseline is written anew.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.instructions.workloads import WORKLOADS

BASELINE = Path(__file__).with_name("baseline.json")
MORE = 0.2  # of the instructions in the baseline: what a change may add
MISSING = 75  # exit status where neither tool works

Count = Callable[[list[str]], int]


def counter() -> Count | None:
    """How to count here; None if nothing can."""
    for count in (_with_perf, _with_valgrind):
        try:
            if count([sys.executable, "-c", "pass"]) > 0:
                return count
        except (OSError, ValueError):
            continue
    return None


def _with_perf(command: list[str]) -> int:
    told = _told(["perf", "stat", "-x", ",", "-e", "instructions:u", *command])
    found = re.search(r"^(\d+),", told, re.MULTILINE)
    if found is None:
        raise ValueError("perf cannot count instructions here")
    return int(found[1])


def _with_valgrind(command: list[str]) -> int:
    tool = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    found = re.search(r"I\s+refs:\s+([\d,]+)", _told([*tool, *command]))
    if found is None:
        raise ValueError("valgrind does not run here")
    return int(found[1].replace(",", ""))


def _told(command: list[str]) -> str:
    """What a tool writes to standard error."""
    if shutil.which(command[0]) is None:
        raise FileNotFoundError(command[0])
    done = subprocess.run(command, env=_environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(done.stderr)
    return done.stderr


def _environment() -> dict[str, str]:
    """No threads and no random hashes: every run executes the same instructions."""
    settings = {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1", "WHARF_DISABLED_SYSTEMS": ""}
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | settings


def _counted(count: Count, name: str) -> int:
    command = [sys.executable, "-m", "tests.instructions.workloads", name]
    subprocess.run(command, env=_environment(), check=True)  # compiles what is not compiled yet
    return count(command)


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench-instructions")
    parser.add_argument("--save", action="store_true", help="write the baseline anew")
    save = parser.parse_args().save
    count = counter()
    if count is None:
        print("neither `perf stat` nor valgrind can count instructions here; nothing was measured")
        return MISSING
    counts = {name: _counted(count, name) for name in WORKLOADS}
    unit = counts.pop("reference")
    found = {name: round(number / unit, 3) for name, number in counts.items()}
    if save:
        BASELINE.write_text(json.dumps(found, indent=2) + "\n")
    known = json.loads(BASELINE.read_text())
    slower = False
    for name, number in found.items():
        change = number / known[name] - 1 if name in known else 0.0
        slower = slower or change > MORE
        print(f"{name:12} {number:8.3f}   baseline {known.get(name, 0.0):8.3f}   {change:+.1%}")
    if slower:
        print(f"more than {MORE:.0%} more instructions; if that is meant to be, write a new baseline with --save")
    return int(slower)


if __name__ == "__main__":
    sys.exit(main())
