"""Side by side on one API server: the stock kube-scheduler, ours with and without events, and binding in a plain loop.

    python -m tests.kubernetes.bench --nodes 5000 --pods 10000

Each gets the same pods, all there before it starts; a rate is pods over the time from the first binding to the last, as a
watch sees them. The CPU that each process took meanwhile tells what a busy machine hides. It prints numbers for people and
fails on none.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kubernetes.binaries import NoBinaries, find_or_make
from tests.kubernetes.cluster import Cluster, Process
from tests.kubernetes.manifests import namespace, pod

from wharfinger.api.kinds.builtin import NAMESPACES, NODES, PODS
from wharfinger.api.views import Metadata
from wharfinger.client.connect import connect
from wharfinger.client.http import HttpClient

LEAST = 0.001  # seconds; a rate of an instant says nothing
WORKERS = 32


def node(number: int) -> dict[str, Any]:
    name = f"node-{number}"
    amounts = {"cpu": "32", "memory": "128Gi", "pods": "110"}
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"zone-{number % 3}"}
    ready = {"type": "Ready", "status": "True", "reason": "Ready", "message": ""}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}


async def spread(calls: list[Callable[[], Awaitable[Any]]]) -> None:
    """Makes all calls, so many at a time."""
    left = iter(calls)

    async def worker() -> None:
        for call in left:
            await call()

    await asyncio.gather(*(worker() for _ in range(WORKERS)))


@dataclass(frozen=True, slots=True)
class Reading:
    """A moment: the time, and the CPU seconds of each process so far."""

    time: float
    cpu: dict[str, float]


@dataclass(frozen=True, slots=True)
class Result:
    rate: float  # pods a second
    cpu: dict[str, float]  # milliseconds for each pod, by process

    def __str__(self) -> str:
        shares = ", ".join(f"{name} {amount:.2f}" for name, amount in self.cpu.items())
        return f"{self.rate:8.0f} pods/s   ms of CPU for each: {shares}"


def cpu_of(process: int) -> float:
    """Seconds of CPU, in user and kernel mode."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Bench:
    def __init__(self, cluster: Cluster, client: HttpClient, nodes: int, pods: int) -> None:
        self.cluster, self.client = cluster, client
        self.nodes, self.pods = nodes, pods
        self.processes = {"API server": cluster.pid("kube-apiserver"), "etcd": cluster.pid("etcd")}

    def _read(self, processes: dict[str, int]) -> Reading:
        return Reading(time.perf_counter(), {name: cpu_of(process) for name, process in processes.items()})

    async def make_nodes(self) -> None:
        await spread([lambda number=number: self.client.create(NODES, node(number)) for number in range(self.nodes)])

    async def measure(self, name: str, scheduler: str, start: Callable[[str], Process | None]) -> Result:
        space = f"bench-{name}"
        await self.client.create(NAMESPACES, namespace(space))
        made = [pod(f"p{number}", space, scheduler=scheduler) for number in range(self.pods)]
        await spread([lambda document=document: self.client.create(PODS, document, space) for document in made])
        listed = await self.client.list(PODS, space, limit=1)
        process = start(space)
        measured = {"the loop" if process is None else "scheduler": process.pid if process else os.getpid()}
        counting = asyncio.create_task(self._count(space, listed.resource_version, measured | self.processes))
        if process is None:
            await self._bind(space)
        try:
            return await counting
        finally:
            if process is not None:
                self.cluster.end(process)
            everything = (await self.client.list(PODS, space, view=Metadata)).items
            await spread(
                [
                    lambda item=item: self.client.delete(PODS, item.metadata.name, space, grace_period=0)
                    for item in everything
                ]
            )

    async def _bind(self, space: str) -> None:
        def bind(number: int) -> Awaitable[Any]:
            target = {"apiVersion": "v1", "kind": "Node", "name": f"node-{number % self.nodes}"}
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": f"p{number}"}, "target": target}
            return self.client.create(PODS, binding, space, name=f"p{number}", subresource="binding")

        await spread([lambda number=number: bind(number) for number in range(self.pods)])

    async def _count(self, space: str, version: str, processes: dict[str, int]) -> Result:
        """Waits until all are bound; the server sends only pods that have a node."""
        seen: set[str] = set()
        first: Reading | None = None
        while len(seen) < self.pods:
            watch = self.client.watch(
                PODS, space, view=Metadata, resource_version=version, field_selector="spec.nodeName!="
            )
            async for event in watch:
                version = event.resource_version or version
                if event.object is None:
                    continue
                first = first or self._read(processes)
                seen.add(event.object.metadata.name)
                if len(seen) == self.pods:
                    last = self._read(processes)
                    cpu = {name: 1000 * (last.cpu[name] - first.cpu[name]) / self.pods for name in processes}
                    return Result((self.pods - 1) / max(last.time - first.time, LEAST), cpu)
        raise ValueError("there are no pods to bind")


async def run(cluster: Cluster, nodes: int, pods: int) -> None:
    client = connect(str(cluster.kubeconfig), component="bench", timeout=120)
    bench = Bench(cluster, client, nodes, pods)
    stock = {"clientConnection": {"qps": 5000, "burst": 10000}}

    def ours(*options: str) -> Callable[[str], Process]:
        return lambda space: cluster.wharf("scheduler", "--no-leader-elect", *options, name=f"scheduler-{space}")

    try:
        await bench.make_nodes()
        print(f"{nodes} nodes, {pods} pods, {os.cpu_count()} cores, load before {os.getloadavg()[0]:.1f}", flush=True)
        results: dict[str, Result] = {}
        for name, scheduler, start in (
            ("loop", "nobody", lambda space: None),
            ("stock", "default-scheduler", lambda space: cluster.start_kube_scheduler(stock)),
            ("ours", "wharfinger", ours("--no-events")),
            ("events", "wharfinger", ours()),
            ("again", "nobody", lambda space: None),
        ):
            results[name] = await bench.measure(name, scheduler, start)
            print(f"  {TITLES[name]:<36} {results[name]}", flush=True)
        rates = {name: result.rate for name, result in results.items()}
        print(f"  ours / stock                         {rates['ours'] / rates['stock']:8.2f}")
        print(f"  ours with events / stock             {rates['events'] / rates['stock']:8.2f}")
        limit = (rates["loop"] + rates["again"]) / 2
        print(f"  ours / the API server's own limit    {rates['ours'] / limit:8.2f}")
        print(f"  ours with events / that limit        {rates['events'] / limit:8.2f}")
    finally:
        await client.close()


TITLES = {
    "loop": "binding in a plain loop",
    "stock": "stock kube-scheduler",
    "ours": "ours, events off",
    "events": "ours, events on",
    "again": "binding in a plain loop, again",
}


@contextmanager
def beside(count: int) -> Iterator[None]:
    """Other work on the same machine."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=10000)
    parser.add_argument(
        "--busy", type=int, default=0, help="processes that do nothing but take processor time meanwhile"
    )
    arguments = parser.parse_args()
    try:
        binaries = find_or_make()
    except NoBinaries as error:
        sys.exit(f"cannot run: {error}")
    with tempfile.TemporaryDirectory() as folder, beside(arguments.busy):
        cluster = Cluster(binaries, Path(folder))
        try:
            # No controllers run: nodes are ready by what they say, and pods need no service account.
            cluster.start(
                controllers=False, apiserver=["--disable-admission-plugins=TaintNodesByCondition,ServiceAccount"]
            )
            cluster.kubectl("apply", "--server-side", "-f", "-", stdin=cluster.run_wharf("crds"))
            asyncio.run(run(cluster, arguments.nodes, arguments.pods))
        finally:
            cluster.stop()


if __name__ == "__main__":
    main()
