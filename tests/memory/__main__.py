"""How much memory the installed programs use on clusters of several sizes.

    python -m tests.memory --nodes 100 1000 5000 --pods-per-node 10

Each program runs with the arguments that `wharf install` prints, against `wharf apiserver` with so many nodes and pods. It
waits for the lease first, while another instance of it has the lease; then that one stops, and it takes over and lists
everything again, which is when programs use most. Prints a table in Markdown, and fails on no number.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from tests.apiserver.running import environment, serving
from tests.kubernetes.cluster import free_port
from tests.memory.objects import NAMESPACES, namespace, node, pod

from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import NAMESPACES as SPACES
from wharfinger.api.kinds.builtin import NODES, PODS
from wharfinger.apiserver.server import DATA_FILE
from wharfinger.store import Store

OURS = "wharfinger-system"
LEASED = ("scheduler", "controllers", "placement")
PATIENCE = 600.0  # seconds
SETTLED = 20.0  # seconds without a higher peak


@dataclass(frozen=True, slots=True)
class Usage:
    """Of resident memory, in MiB."""

    steady: float
    peak: float

    def __str__(self) -> str:
        return f"{self.steady:.0f} / {self.peak:.0f}"


class Running:
    """A program of ours that serves its health on a port."""

    def __init__(self, program: str, arguments: list[str], kubeconfig: Path, folder: Path, number: int) -> None:
        self.port = free_port()
        command = [sys.executable, "-m", "wharfinger.cli.main", *with_port(program, arguments, self.port)]
        self._log = folder / f"{program}-{number}.log"
        with self._log.open("wb") as out:
            self._process = subprocess.Popen(
                [*command, "--kubeconfig", str(kubeconfig)], stdout=out, stderr=out, env=environment()
            )
        self._scheme = "http" if program == "dashboard" else "https"
        self._path = "/healthz" if program == "dashboard" else "/readyz"

    def wait_ready(self) -> None:
        until = time.monotonic() + PATIENCE
        while not answers(f"{self._scheme}://127.0.0.1:{self.port}{self._path}"):
            assert self._process.poll() is None and time.monotonic() < until, self._log.read_text()[-2000:]
            time.sleep(0.5)

    def usage(self) -> Usage:
        """When the peak has not risen by one percent for a while."""
        peak, since = 0.0, time.monotonic()
        while time.monotonic() - since < SETTLED:
            time.sleep(1)
            if (found := self._field("VmHWM")) > peak * 1.01:
                peak, since = found, time.monotonic()
        return Usage(self._field("VmRSS"), self._field("VmHWM"))

    def _field(self, name: str) -> float:
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)


def with_port(program: str, arguments: list[str], port: int) -> list[str]:
    """The arguments for this machine: a loopback address, a free port, and no configuration file."""
    values = {"--metrics-host": "127.0.0.1", "--metrics-port": str(port), "--bind": f"127.0.0.1:{port}"}
    values |= {"--host": "127.0.0.1", "--port": str(port)}
    made: list[str] = []
    given = iter(arguments)
    for each in given:
        if each == "--config":
            next(given)
        elif each in values:
            made += [each, values[each]]
            next(given)
        else:
            made.append(each)
    return [*made, "--no-register"] if program == "webhook" else made


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5, context=ssl._create_unverified_context()) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def installed() -> dict[str, list[str]]:
    """The arguments of each program, as installed."""
    command = [sys.executable, "-m", "wharfinger.cli.main", "install", "--components", "all", "--offline"]
    printed = subprocess.run(command, env=environment(), check=True, capture_output=True, text=True).stdout
    deployments = [each for each in yaml.safe_load_all(printed) if each["kind"] == "Deployment"]
    containers: list[Any] = [each["spec"]["template"]["spec"]["containers"][0] for each in deployments]
    return {str(each["name"]): [str(argument) for argument in each["args"]] for each in containers}


async def fill(folder: Path, nodes: int, pods: int) -> int:
    """A data directory with these objects; returns the size of their JSON in bytes."""
    store = Store.open(folder / DATA_FILE, registry(), keep_identity=True)
    for number in range(NAMESPACES):
        await store.create(SPACES, {"metadata": {"name": f"team-{number}"}})
    await store.create(SPACES, {"metadata": {"name": OURS}})
    for number in range(nodes):
        await store.create(NODES, node(number))
    for number in range(pods):
        await store.create(PODS, pod(number, nodes), namespace(number))
    stored = [*(await store.list(NODES)).items, *(await store.list(PODS)).items]
    size = sum(len(each.data) for each in stored)
    await store.close()
    return size


def measure(program: str, arguments: list[str], kubeconfig: Path, folder: Path) -> Usage:
    print(f"measuring {program} ...", file=sys.stderr, flush=True)
    running = [Running(program, arguments, kubeconfig, folder, 1)]
    try:
        running[0].wait_ready()
        if program in LEASED:
            running.append(Running(program, arguments, kubeconfig, folder, 2))
            running[1].wait_ready()
            running.pop(0).stop()
        return running[0].usage()
    finally:
        for each in running:
            each.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.memory")
    parser.add_argument("--nodes", type=int, nargs="+", default=[100, 1000, 5000])
    parser.add_argument("--pods-per-node", type=int, default=10)
    options = parser.parse_args()
    programs = installed()
    print(f"| nodes | pods | objects | {' | '.join(programs)} |")
    print(f"|{'---|' * (len(programs) + 3)}")
    for nodes in options.nodes:
        with tempfile.TemporaryDirectory(prefix="wharfinger-memory-") as name:
            folder = Path(name)
            (folder / "data").mkdir(mode=0o700)
            pods = nodes * options.pods_per_node
            size = asyncio.run(fill(folder / "data", nodes, pods))
            with serving(folder / "data") as api:
                found = [measure(each, programs[each], api.kubeconfig, folder) for each in programs]
            print(f"| {nodes:,} | {pods:,} | {size / 2**20:.0f} | {' | '.join(map(str, found))} |", flush=True)


if __name__ == "__main__":
    main()
