"""Clients of Open Cluster Management on our hub: its integration specs of placement, and its Go client.

    python -m tests.ocm                      everything
    python -m tests.ocm specs                the specs, on our hub
    python -m tests.ocm specs-on-kubernetes  the specs, on kube-apiserver with our controllers
    python -m tests.ocm schemas              our CustomResourceDefinitions and theirs
    python -m tests.ocm requests             what its client gets from our API server and from kube-apiserver
    python -m tests.ocm decisions            what its client sees of decisions on `wharf up` and on their hub
    python -m tests.ocm --output FOLDER …    keeps logs and transcripts

Prints a table, and ends with 1 where something differs or fails that `known.txt` does not list.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kubernetes.binaries import NoBinaries
from tests.ocm.hubs import RealHub, our_hub, our_placement, our_server
from tests.ocm.programs import CLIENT, HUB, SPECS, definitions, find_or_build
from tests.ocm.schemas import schema_differences

HERE = Path(__file__).resolve().parent
PARTS = ("specs", "specs-on-kubernetes", "schemas", "requests", "decisions")


@dataclass
class PartResult:
    """What was compared or run, and what differs or failed, with how."""

    total: int
    failures: dict[str, str] = field(default_factory=dict)


class Comparison:
    """Runs the parts; starts the hub of Open Cluster Management only when one needs it."""

    def __init__(self, programs: dict[str, Path], folder: Path, stack: ExitStack) -> None:
        self._programs = programs
        self._folder = folder
        self._stack = stack
        self._real: RealHub | None = None

    def specs(self) -> PartResult:
        with our_placement(self._folder / "specs") as kubeconfig:
            return self._run_specs(kubeconfig, "specs")

    def specs_on_kubernetes(self) -> PartResult:
        hub = RealHub(self._programs[HUB], self._folder / "specs-on-kubernetes")
        try:
            hub.start()
            hub.start_our_placement()
            return self._run_specs(hub.kubeconfig, "specs-on-kubernetes")
        finally:
            hub.stop()

    def schemas(self) -> PartResult:
        return PartResult(len(definitions()) - 1, dict(schema_differences(definitions())))

    def requests(self) -> PartResult:
        real = self._real_hub()
        with our_server(self._folder / "requests") as kubeconfig:
            results = [
                self._compare(kubeconfig, real.kubeconfig, *arguments)
                for arguments in (("requests",), ("cases", str(HERE / "cases.yaml")))
            ]
        return PartResult(
            sum(each.total for each in results),
            {name: how for each in results for name, how in each.failures.items()},
        )

    def decisions(self) -> PartResult:
        real = self._real_hub()
        real.start_controllers()
        with our_hub(self._folder / "decisions") as kubeconfig:
            return self._compare(kubeconfig, real.kubeconfig, "decisions")

    def _real_hub(self) -> RealHub:
        if self._real is None:
            self._real = RealHub(self._programs[HUB], self._folder / "ocm")
            self._stack.callback(self._real.stop)
            self._real.start()
            self._real.start_webhook()
        return self._real

    def _run_specs(self, kubeconfig: Path, name: str) -> PartResult:
        report, log = self._folder / f"{name}.json", self._folder / f"{name}.log"
        command = [self._programs[SPECS], "--ginkgo.no-color", "--ginkgo.v", f"--ginkgo.json-report={report}"]
        with log.open("w") as out:
            subprocess.run(
                command,
                stdout=out,
                stderr=out,
                check=False,
                cwd=self._folder,
                env={**os.environ, "KUBECONFIG": str(kubeconfig)},
            )
        suites: list[dict[str, Any]] = json.loads(report.read_text())
        specs = [spec for suite in suites for spec in suite["SpecReports"] if spec["LeafNodeType"] == "It"]
        failed = {
            " ".join([*spec["ContainerHierarchyTexts"], spec["LeafNodeText"]]): _why(spec)
            for spec in specs
            if spec["State"] != "passed"
        }
        return PartResult(len(specs), failed)

    def _compare(self, ours: Path, theirs: Path, *arguments: str) -> PartResult:
        heard = {
            "ours": self._transcript(ours, "ours", *arguments),
            "theirs": self._transcript(theirs, "theirs", *arguments),
        }
        steps = {**heard["theirs"], **heard["ours"]}
        different = {
            step: f"theirs: {_text(heard['theirs'].get(step))}\n    ours:   {_text(heard['ours'].get(step))}"
            for step in steps
            if heard["ours"].get(step) != heard["theirs"].get(step)
        }
        return PartResult(len(steps), different)

    def _transcript(self, kubeconfig: Path, whose: str, *arguments: str) -> dict[str, Any]:
        done = subprocess.run(
            [self._programs[CLIENT], *arguments],
            env={**os.environ, "KUBECONFIG": str(kubeconfig)},
            capture_output=True,
            text=True,
            check=False,
        )
        (self._folder / f"{arguments[0]}-{whose}.jsonl").write_text(done.stdout)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        steps = {line.pop("step"): line for line in lines}
        assert len(steps) == len(lines), "two steps have one name"
        if done.returncode:
            steps[f"{arguments[0]}: the end"] = {"error": f"{whose}: {done.stderr.strip()}"}
        return steps


def _why(spec: dict[str, Any]) -> str:
    return " ".join(str((spec.get("Failure") or {}).get("Message") or spec["State"]).split())[:300]


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True) if value is not None else "nothing"


def known_failures() -> dict[str, dict[str, str]]:
    """By part: what may fail or differ, and why."""
    known: dict[str, dict[str, str]] = {part: {} for part in PARTS}
    for line in (HERE / "known.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            part, name, reason = line.split("\t")
            known[part][name] = reason
    return known


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.ocm", description="Clients of Open Cluster Management on our hub."
    )
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="which parts to run; default: all")
    parser.add_argument("--output", type=Path, help="a folder for logs and transcripts")
    arguments = parser.parse_args()
    try:
        programs = find_or_build()
    except NoBinaries as error:
        if "ocm" in os.environ.get("WHARF_REQUIRE", "").replace(" ", "").split(","):
            sys.exit(f"Error: {error}")
        print(f"Skipped the comparison with Open Cluster Management: {error}")
        return
    known, unexpected = known_failures(), []
    started = time.monotonic()
    with ExitStack() as stack:
        folder = arguments.output or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        comparison = Comparison(programs, folder.resolve(), stack)
        runs: dict[str, Callable[[], PartResult]] = {
            part: getattr(comparison, part.replace("-", "_")) for part in PARTS
        }
        results = {part: runs[part]() for part in PARTS if part in (arguments.parts or PARTS)}
    print(f"{'part':22}{'total':>8}{'equal or passed':>18}{'known':>8}{'unexpected':>12}")
    for part, result in results.items():
        new = [name for name in result.failures if name not in known[part]]
        unexpected += new
        fine = result.total - len(result.failures) if part != "schemas" else result.total
        print(f"{part:22}{result.total:8}{fine:18}{len(result.failures) - len(new):8}{len(new):12}")
    for part, result in results.items():
        for name, how in result.failures.items():
            print(f"\n{part}: {name}\n    {known[part].get(name, 'UNEXPECTED')}\n    {how}")
        for name in known[part]:
            if name not in result.failures:
                print(f"\n{part}: no longer differs, but is listed: {name}")
    print(f"\n{time.monotonic() - started:.0f} s")
    sys.exit(1 if unexpected else 0)


if __name__ == "__main__":
    main()
