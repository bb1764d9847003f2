"""Upstream's own end-to-end specs, run against `wharf up`.

    python -m tests.conformance                          all areas
    python -m tests.conformance --area scheduling        one area
    python -m tests.conformance --focus 'ResourceQuota'  the specs whose name matches
    python -m tests.conformance --quick                  the part that CI runs
    python -m tests.conformance --real-node              the specs that need containers, with a real node
    python -m tests.conformance --kubeconfig FILE --containers
                                                         all specs, on a control plane with real nodes

Prints a table, and ends with 1 where a spec failed that `failing.txt` (with a real node, `failing_on_node.txt`) does not
list. `impossible.txt` lists the specs that need a container runtime or a real network, which simulated nodes do not have,
and `impossible_on_node.txt` those of them that a real node does not make possible.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kubernetes.binaries import AGNHOST, CONTAINERD, NoBinaries, find_or_make

HERE = Path(__file__).resolve().parent
AREAS = ("scheduling", "api-machinery", "apps", "auth", "cli")
WORKERS = 4  # specs mostly wait
GROUP = 6  # specs in one process
TIMEOUT = "60m"  # of one process
SPECIAL = re.compile(r"([][().*+?{}|^$\\])")  # characters of Go's expressions
OPTIONAL = re.compile(r"Multi-AZ|\[Feature:")


@dataclass(frozen=True)
class SpecResult:
    name: str
    passed: bool
    seconds: float
    reason: str = ""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description="Upstream's specs on wharf up.")
    parser.add_argument("--area", action="append", choices=AREAS, help="only this area; may be repeated")
    parser.add_argument("--focus", action="append", default=[], help="only specs whose name matches this expression")
    parser.add_argument("--quick", action="store_true", help="only the specs of quick.txt, which CI runs")
    parser.add_argument("--real-node", action="store_true", help="only the specs that need containers, on a real node")
    parser.add_argument("--kubeconfig", type=Path, help="a control plane that runs already")
    parser.add_argument("--containers", action="store_true", help="also the specs that need containers; for real nodes")
    parser.add_argument("--workers", type=int, default=WORKERS, help="how many specs run at the same time")
    parser.add_argument("--output", type=Path, help="a folder for the logs of the specs")
    arguments = parser.parse_args()
    try:
        binaries = find_or_make(
            "e2e.test", *(("kubelet", "kube-proxy", AGNHOST, CONTAINERD) if arguments.real_node else ())
        )
    except NoBinaries as error:
        if "conformance" in os.environ.get("WHARF_REQUIRE", "").replace(" ", "").split(","):
            sys.exit(f"Error: {error}")
        print(f"Skipped the conformance specs: {error}")
        return
    impossible, known = {} if arguments.containers else listed("impossible.txt"), listed("failing.txt")
    wanted = chosen(binaries["e2e.test"], arguments.area or AREAS, arguments.focus)
    if arguments.quick:
        quick = listed("quick.txt")
        wanted = [name for name in wanted if name in quick]
    if arguments.real_node:
        wanted = [name for name in wanted if name in listed("impossible.txt")]
        impossible, known = listed("impossible_on_node.txt"), listed("failing_on_node.txt")
    possible = [name for name in wanted if name not in impossible]
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        output = arguments.output or Path(folder)
        output.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "PATH": f"{binaries['kubectl'].parent}:{os.environ['PATH']}"}
        with ExitStack() as stack:
            if arguments.real_node:
                from tests.conformance.containers import real_control_plane

                kubeconfig = stack.enter_context(real_control_plane(binaries, output))
            else:
                kubeconfig = stack.enter_context(control_plane(arguments.kubeconfig, Path(folder)))
                command = [binaries["kubectl"], f"--kubeconfig={kubeconfig}", "apply", "-f", HERE / "programs.yaml"]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            results = run(binaries["e2e.test"], kubeconfig, possible, output, arguments.workers, environment)
    unexpected = report(wanted, impossible, known, results, time.monotonic() - started)
    sys.exit(1 if unexpected else 0)


def listed(name: str) -> dict[str, str]:
    """A file with a spec in each line, and the reason why it is listed after a tab."""
    lines = (HERE / name).read_text().splitlines()
    entries = (line.partition("\t") for line in lines if line and not line.startswith("#"))
    return {spec.strip(): reason.strip() for spec, _, reason in entries}


def chosen(program: Path, areas: tuple[str, ...] | list[str], focus: list[str]) -> list[str]:
    """All specs of sig-scheduling except those for optional features, and the conformance specs of the other areas."""
    shown = subprocess.run([program, "--list-tests"], capture_output=True, text=True, check=True).stdout
    names = sorted({re.sub(r"^\s*\S+\.go:\d+: ", "", line) for line in shown.splitlines() if ".go:" in line})
    return [
        name
        for name in names
        if any(f"[sig-{area}]" in name and (area == "scheduling" or "[Conformance]" in name) for area in areas)
        and not OPTIONAL.search(name)
        and (not focus or any(re.search(one, name) for one in focus))
    ]


@contextmanager
def control_plane(kubeconfig: Path | None, folder: Path) -> Iterator[Path]:
    """`wharf up` with three simulated nodes, unless one runs already."""
    if kubeconfig is not None:
        yield kubeconfig
        return
    data, log = folder / "data", folder / "up.log"
    command = [
        sys.executable,
        "-m",
        "wharfinger.cli.main",
        "up",
        "--data-dir",
        str(data),
        "--port",
        "0",
        "--no-dashboard",
    ]
    with log.open("w") as out:
        process = subprocess.Popen([*command, "--nodes", "3"], stdout=out, stderr=out, start_new_session=True)
    try:
        deadline = time.monotonic() + 120
        while "Ctrl-C stops everything" not in log.read_text():
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"Error: wharf up did not start:\n{log.read_text()}")
            time.sleep(0.2)
        yield data / "kubeconfig"
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def run(
    program: Path, kubeconfig: Path, names: list[str], output: Path, workers: int, environment: dict[str, str]
) -> dict[str, SpecResult]:
    """Groups of specs, several at a time; those marked as serial alone, after the others."""
    results: dict[str, SpecResult] = {}

    def group(number: int, members: list[str]) -> None:
        found = run_group(program, kubeconfig, members, output / f"{number:02}", environment)
        results.update(found)
        for one in found.values():
            print(f"{'pass' if one.passed else 'FAIL'} {one.seconds:5.0f} s  {one.name}", flush=True)

    serial = [name for name in names if "[Serial]" in name]
    others = [name for name in names if "[Serial]" not in name]
    groups = [others[start : start + GROUP] for start in range(0, len(others), GROUP)]
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(group, range(len(groups)), groups))
    if serial:
        group(len(groups), serial)
    return results


def run_group(
    program: Path, kubeconfig: Path, names: list[str], output: Path, environment: dict[str, str]
) -> dict[str, SpecResult]:
    """Runs specs in one process: it takes seconds to build its tree of all specs."""
    written, log = output.with_suffix(".json"), output.with_suffix(".log")
    command = [str(program), f"--kubeconfig={kubeconfig}", "--provider=skeleton", "--ginkgo.no-color", "--ginkgo.v"]
    command += [f"--ginkgo.focus={focus(name)}" for name in names]
    command += [f"--ginkgo.json-report={written}", "--ginkgo.silence-skips", f"--ginkgo.timeout={TIMEOUT}"]
    command += [f"--kubectl-path={environment['PATH'].partition(':')[0]}/kubectl"]
    with log.open("w") as out:
        subprocess.run(command, stdout=out, stderr=out, check=False, env=environment)
    try:
        suites: list[dict[str, Any]] = json.loads(written.read_text())
    except (OSError, ValueError):
        return {name: SpecResult(name, False, 0, f"e2e.test ended without a report, see {log}") for name in names}
    specs = {full_name(spec): spec for suite in suites for spec in suite["SpecReports"] or ()}
    setup = next((spec for spec in specs.values() if spec["LeafNodeType"] != "It" and spec.get("Failure")), None)
    return {name: result(name, specs.get(name), setup) for name in names}


def focus(name: str) -> str:
    """The expression that matches this spec only; its suite's name comes before."""
    return SPECIAL.sub(r"\\\1", name) + "$"


def full_name(spec: dict[str, Any]) -> str:
    return " ".join([*(spec["ContainerHierarchyTexts"] or ()), spec["LeafNodeText"]])


def result(name: str, spec: dict[str, Any] | None, setup: dict[str, Any] | None) -> SpecResult:
    if spec is None:
        return SpecResult(name, False, 0, "not run" if setup is None else reason(setup))
    why = reason(spec) or (reason(setup) if setup is not None else "")
    return SpecResult(name, spec["State"] == "passed", spec["RunTime"] / 1e9, why)


def reason(spec: dict[str, Any]) -> str:
    message = str((spec.get("Failure") or {}).get("Message") or "")
    return " ".join(message.split())[:300]


def report(
    wanted: list[str],
    impossible: dict[str, str],
    known: dict[str, str],
    results: dict[str, SpecResult],
    seconds: float,
) -> list[str]:
    """Prints the table; returns the names of the failed specs that are not listed as failing."""
    print(f"\n{'area':20}{'passed':>8}{'failed':>8}{'not possible':>14}{'share of possible':>20}")
    for area in AREAS:
        names = [name for name in wanted if f"[sig-{area}]" in name]
        passed = sum(results[name].passed for name in names if name in results)
        failed = sum(not results[name].passed for name in names if name in results)
        share = f"{passed / (passed + failed):.0%}" if passed + failed else "-"
        if names:
            print(f"sig-{area:16}{passed:8}{failed:8}{sum(name in impossible for name in names):14}{share:>20}")
    failures = sorted(name for name, found in results.items() if not found.passed)
    for name in failures:
        print(f"\nFailed: {name}\n  {known.get(name) or results[name].reason}")
    left_out = sorted(name for name in wanted if name in impossible)
    if left_out:
        print("\nNot possible without a container runtime or a real network:")
        for name in left_out:
            print(f"  {name}: {impossible[name]}")
    print(f"\n{len(results)} specs in {seconds / 60:.0f} minutes.")
    mended = sorted(name for name in known if name in results and results[name].passed)
    for name in mended:
        print(f"Passed, but listed as failing: {name}")
    return [name for name in failures if name not in known]


if __name__ == "__main__":
    main()
