"""A recorder beside a running `wharf up`, through restarts of both, and the replay of what it wrote."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.apiserver.running import environment
from tests.support import wharf_here

from wharfinger.api.errors import ApiError
from wharfinger.api.kinds.builtin import NODES, PODS
from wharfinger.api.registry import Document
from wharfinger.client.connect import connect
from wharfinger.client.http import HttpClient
from wharfinger.replay.segments import recorded_rows

WHARF = [sys.executable, "-m", "wharfinger.cli.main"]
PATIENCE = 120


@contextmanager
def running(*arguments: str, log: Path, says: str) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("w") as file:
        process = subprocess.Popen(
            [*WHARF, *arguments], stdout=file, stderr=file, env=environment(), start_new_session=True
        )
    try:
        deadline = time.monotonic() + PATIENCE
        while says not in log.read_text():
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def pod(name: str, cpu: str, run_for: str = "") -> Document:
    container = {"name": "main", "image": "web", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}
    notes = {"wharfinger.dev/run-for": run_for} if run_for else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": notes},
        "spec": {"containers": [container], "restartPolicy": "Never"},
    }


class Churn:
    """Pods that come, end and go, each after the last one has settled, so that the order is known."""

    def __init__(self, client: HttpClient, trace: Path) -> None:
        self._client = client
        self._trace = trace
        self.nodes: dict[str, str] = {}

    async def add(self, name: str, cpu: str, run_for: str = "") -> None:
        await self._asking(lambda: self._client.create(PODS, pod(name, cpu, run_for), "default"))

        async def bound() -> bool:
            found = await self._client.get(PODS, name, "default")
            self.nodes[name] = found["spec"].get("nodeName", "")
            return bool(self.nodes[name])

        await self._until(bound)

    async def ended(self, name: str) -> None:
        async def done() -> bool:
            found = await self._client.get(PODS, name, "default")
            return bool(found["status"].get("phase") == "Succeeded")

        await self._until(done)

    async def remove(self, name: str) -> None:
        await self._client.delete(PODS, name, "default", grace_period=0)

        async def gone() -> bool:
            return name not in {each["metadata"]["name"] for each in (await self._client.list(PODS, "default")).items}

        await self._until(gone)

    async def recorded(self, name: str, type: str) -> None:
        async def seen() -> bool:
            return any(row.name == name and row.type == type for _, row in recorded_rows(self._trace))

        await self._until(seen)

    async def _asking(self, call: Callable[[], Awaitable[object]]) -> None:
        """Repeats a request until the server is there."""

        async def done() -> bool:
            with suppress(ApiError):
                await call()
                return True
            return False

        await self._until(done)

    async def _until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(PATIENCE):
            while True:
                with suppress(ApiError):
                    if await holds():
                        return
                await asyncio.sleep(0.05)


def test_a_recording_through_restarts_of_both_sides_is_replayed_as_it_was(tmp_path: Path) -> None:
    data, trace = tmp_path / "d", tmp_path / "trace"
    up = ["up", "--data-dir", str(data), "--port", str(free_port()), "--no-dashboard", "--nodes", "3"]
    record = ["record", "--kubeconfig", str(data / "kubeconfig"), "-o", str(trace), "--rows", "100"]
    ready, recording = "Ctrl-C stops everything", "Recording into"

    async def first_half() -> Churn:
        client = connect(str(data / "kubeconfig"))
        churn = Churn(client, trace)
        try:
            await churn._until(lambda: _has_nodes(trace, 3))
            for number in range(6):
                await churn.add(f"a{number}", ("500m", "1", "1500m")[number % 3])
            await churn.add("short", "1", run_for="1s")
            await churn.ended("short")
            await churn.remove("a1")
            await churn.add("a6", "2")
            await churn.recorded("a6", "modified")
        finally:
            await client.close()
        return churn

    async def while_away(churn: Churn) -> None:
        churn._client = client = connect(str(data / "kubeconfig"))
        try:
            await churn.add("away", "250m")
            await churn.remove("a2")
        finally:
            await client.close()

    async def second_half(churn: Churn) -> None:
        churn._client = client = connect(str(data / "kubeconfig"))
        try:
            made = {"cpu": "16", "memory": "64Gi", "pods": "110"}
            await client.create(
                NODES,
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "metadata": {"name": "large", "labels": {"kubernetes.io/hostname": "large"}},
                    "status": {"capacity": made, "allocatable": made},
                },
            )
            for number in range(5):
                await churn.add(f"b{number}", ("3", "500m")[number % 2])
            await churn.recorded("b4", "modified")
        finally:
            await client.close()

    with running(*up, log=tmp_path / "up.log", says=ready):
        with running(*record, log=tmp_path / "r1.log", says=recording) as recorder:
            churn = asyncio.run(first_half())
            recorder.kill()  # not even a chance to write what it has
            recorder.wait()
        asyncio.run(while_away(churn))
        second = running(*record, log=tmp_path / "r2.log", says=recording)
        recorder = second.__enter__()
    try:
        with running(*up, log=tmp_path / "up2.log", says=ready):
            asyncio.run(second_half(churn))
            recorder.send_signal(signal.SIGTERM)
            recorder.wait(60)
    finally:
        second.__exit__(None, None, None)

    done = wharf_here("replay", str(trace), "-o", "json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    (comparison,) = report["comparisons"]
    assert comparison["different"] == 0, json.dumps(comparison, indent=2)
    assert comparison["same"] == len(churn.nodes)
    assert any("did not run" in note for note in report["trace"]["notes"])


async def _has_nodes(trace: Path, number: int) -> bool:
    return sum(row.kind == "Node" for _, row in recorded_rows(trace)) >= number
