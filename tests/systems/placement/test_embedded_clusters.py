"""Three embedded clusters on this machine: a hub and two members, with agents between them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from tests.systems.placement.hub import add_on, binding, exact, placement

from wharfinger.api.errors import ApiError
from wharfinger.api.kinds.builtin import NODES
from wharfinger.client.connect import connect
from wharfinger.client.http import HttpClient
from wharfinger.systems.placement.kinds.names import (
    MANAGED_CLUSTER_SET_BINDINGS,
    MANAGED_CLUSTERS,
    PLACEMENT_DECISIONS,
    PLACEMENTS,
)

WAIT = 120.0  # seconds; a busy machine takes its time


@contextmanager
def wharf(*arguments: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "wharfinger.cli.main", *arguments],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


async def until(what: str, check: Callable[[], Awaitable[bool]]) -> None:
    deadline = asyncio.get_running_loop().time() + WAIT
    while asyncio.get_running_loop().time() < deadline:
        try:
            if await check():
                return
        except (ApiError, OSError):
            pass
        await asyncio.sleep(0.2)
    raise AssertionError(f"never came: {what}")


async def selected(hub: HttpClient) -> list[str]:
    page = await hub.get(PLACEMENT_DECISIONS, "p-decision-1", "default")
    return [item["clusterName"] for item in (page.get("status") or {}).get("decisions", [])]


@pytest.mark.slow
def test_agents_of_two_members_decide_on_the_hub(tmp_path: Path) -> None:
    with (
        wharf("up", "--data-dir", str(tmp_path / "hub"), "--port", "0", "--nodes", "0", log=tmp_path / "hub.log"),
        wharf("up", "--data-dir", str(tmp_path / "small"), "--port", "0", "--nodes", "1", log=tmp_path / "small.log"),
        wharf("up", "--data-dir", str(tmp_path / "large"), "--port", "0", "--nodes", "3", log=tmp_path / "large.log"),
    ):
        asyncio.run(prepare(tmp_path))
        with agent(tmp_path, "small"):
            with agent(tmp_path, "large"):
                asyncio.run(decide_between_members(tmp_path))
            asyncio.run(switch(tmp_path))


def agent(directory: Path, name: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
    return wharf(
        "score",
        "agent",
        "--cluster-name",
        name,
        "--kubeconfig",
        str(directory / name / "kubeconfig"),
        "--hub-kubeconfig",
        str(directory / "hub" / "kubeconfig"),
        "--interval",
        "1s",
        log=directory / f"agent-{name}.log",
    )


async def prepare(directory: Path) -> None:
    for name, nodes in (("hub", 0), ("small", 1), ("large", 3)):

        async def ready(name: str = name, nodes: int = nodes) -> bool:
            if not (directory / name / "kubeconfig").exists():
                return False
            client = connect(str(directory / name / "kubeconfig"))
            try:
                return len((await client.list(NODES)).items) >= nodes
            finally:
                await client.close()

        await until(f"the nodes of {name}", ready)


async def decide_between_members(directory: Path) -> None:
    hub = connect(str(directory / "hub" / "kubeconfig"))
    try:
        for name in ("small", "large"):
            # A short lease, so that a silent agent is noticed within seconds.
            change = {"spec": {"hubAcceptsClient": True, "leaseDurationSeconds": 1}}

            async def accepted(name: str = name, change: dict[str, object] = change) -> bool:
                return bool(await hub.patch(MANAGED_CLUSTERS, name, change))

            await until(f"{name} to ask to join", accepted)
        await hub.create(MANAGED_CLUSTER_SET_BINDINGS, binding("default"), "default")
        policy = exact(add_on(1, "resource-usage", "cpuAvailable"))
        await hub.create(PLACEMENTS, placement(1, namespace="default", prioritizerPolicy=policy), "default")

        async def large() -> bool:
            return await selected(hub) == ["large"]

        await until("the larger member to be selected", large)
    finally:
        await hub.close()


async def switch(directory: Path) -> None:
    """The agent of the selected member has ended: its lease runs out, and the other one is selected."""
    hub = connect(str(directory / "hub" / "kubeconfig"))
    try:

        async def small() -> bool:
            return await selected(hub) == ["small"]

        await until("the smaller member to take over", small)
        lost = await hub.get(MANAGED_CLUSTERS, "large")
        assert [taint["key"] for taint in lost["spec"]["taints"]] == ["cluster.open-cluster-management.io/unreachable"]
    finally:
        await hub.close()
