"""`wharf bench live`: pods per second that the live scheduler binds, in its own process, on a real API server."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wharfinger.bench.baseline import Results, baseline_options
from wharfinger.bench.commands.apiserver import running_server
from wharfinger.cli.options import cluster_options, open_client, output_option

if TYPE_CHECKING:
    from wharfinger.client.http import HttpClient

_NAMESPACE = "wharf-bench-live"
_LABEL = "wharfinger.dev/bench"
_CONCURRENCY = 32
_PATIENCE = 600.0  # minimum duration in seconds


@click.command
@cluster_options
@click.option("--nodes", type=click.IntRange(1), default=1000, show_default=True)
@click.option("--pods", type=click.IntRange(1), default=5000, show_default=True)
@click.option("--events/--no-events", default=False, show_default=True, help="Whether the scheduler records events.")
@output_option("table", "json", "yaml")
@baseline_options
def command(kubeconfig: str | None, context: str | None, nodes: int, pods: int, events: bool, output: str) -> Results:
    """Fill an API server with nodes and pending pods, then let the scheduler bind them.

    Without --kubeconfig, an embedded server with durable writes is started.
    """
    if kubeconfig is not None or context is not None:
        result = asyncio.run(_measure(kubeconfig, context, nodes, pods, events))
    else:
        with tempfile.TemporaryDirectory() as directory, running_server(Path(directory)) as server:
            result = asyncio.run(_measure(str(server), None, nodes, pods, events))
    if output == "table":
        for key, value in result.items():
            click.echo(f"{key:28} {value}")
    else:
        from wharfinger.cli.output import emit

        emit(result, output, kind="Benchmark")
    return result


async def _measure(kubeconfig: str | None, context: str | None, nodes: int, pods: int, events: bool) -> dict[str, Any]:
    client = open_client(kubeconfig, context, component="wharf-bench")
    try:
        created = await _fill(client, nodes, pods)
        with _scheduler(kubeconfig, context, events):
            began, seconds, bound = await _watch_binding(client, pods)
        return {
            "nodes": nodes,
            "pods": pods,
            "events": events,
            "createsPerSecond": round(created),
            "podsBoundPerSecond": round(bound / seconds) if seconds else None,
            "bound": bound,
            "secondsToFirstBinding": round(began, 2),
        }
    finally:
        await _clean(client)
        await client.close()


async def _fill(client: HttpClient, nodes: int, pods: int) -> float:
    """Creates nodes and pending pods; returns pods per second."""
    from wharfinger.api.errors import AlreadyExists
    from wharfinger.api.kinds.builtin import NAMESPACES, NODES, PODS

    await _clean(client)
    with suppress(AlreadyExists):
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE}})
    room = {"cpu": "4", "memory": "32Gi", "pods": "110"}

    async def node(number: int) -> None:
        name = f"bench-node-{number}"
        labels = {"kubernetes.io/hostname": name, _LABEL: "live"}
        status = {"allocatable": room, "capacity": room}
        document = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}
        await client.create(NODES, document)
        # A real API server taints new nodes, and there is no node controller here to remove the taint.
        await client.patch(NODES, name, {"spec": {"taints": None}})

    async def pod(number: int) -> None:
        need = {"cpu": "100m", "memory": "500Mi"}
        container = {"name": "c", "image": "pause", "resources": {"requests": need, "limits": need}}
        document = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"pod-{number}", "namespace": _NAMESPACE},
            "spec": {"schedulerName": "wharfinger", "containers": [container], "automountServiceAccountToken": False},
        }
        await client.create(PODS, document, _NAMESPACE)

    await _at_once(node, range(nodes))
    started = time.perf_counter()
    await _at_once(pod, range(pods))
    return pods / (time.perf_counter() - started)


async def _at_once(work: Callable[[int], Awaitable[None]], numbers: Sequence[int]) -> None:
    queue = iter(numbers)

    async def worker() -> None:
        for number in queue:
            await work(number)

    await asyncio.gather(*(worker() for _ in range(_CONCURRENCY)))


async def _watch_binding(client: HttpClient, pods: int) -> tuple[float, float, int]:
    """The time until the first binding, the time from there until the last, and their number."""
    from wharfinger.api.kinds.builtin import PODS
    from wharfinger.api.views import Pod

    page = await client.list(PODS, _NAMESPACE, limit=1, view=Pod)
    started = time.perf_counter()
    first = last = 0.0
    bound: set[str] = set()
    async with asyncio.timeout(_PATIENCE):
        async for event in client.watch(PODS, _NAMESPACE, view=Pod, resource_version=page.resource_version):
            if event.object is None or not event.object.spec.node_name:
                continue
            last = time.perf_counter()
            first = first or last
            bound.add(event.object.metadata.name)
            if len(bound) == pods:
                break
    return first - started, last - first, len(bound)


@contextmanager
def _scheduler(kubeconfig: str | None, context: str | None, events: bool) -> Iterator[None]:
    command = [sys.executable, "-m", "wharfinger.cli.main", "scheduler", "--events" if events else "--no-events"]
    command += ["--kubeconfig", kubeconfig] if kubeconfig else []
    command += ["--context", context] if context else []
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


async def _clean(client: HttpClient) -> None:
    from wharfinger.api.errors import ApiError
    from wharfinger.api.kinds.builtin import NODES, PODS

    try:
        page = await client.list(PODS, _NAMESPACE)
        names = [item["metadata"]["name"] for item in page.items]

        async def remove(number: int) -> None:
            await client.delete(PODS, names[number], _NAMESPACE, grace_period=0)

        await _at_once(remove, range(len(names)))
        await client.delete_collection(NODES, label_selector=f"{_LABEL}=live")
    except ApiError:
        return
