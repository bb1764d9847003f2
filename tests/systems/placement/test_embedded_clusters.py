"""Three embedded clusters on this machine: a hub and two members, with agents between them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.systems.placement.hub import add_on, binding, exact, placement

from wharfinger.api.errors import ApiError, Forbidden
from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import NODES, POD_TEMPLATES, SERVICE_ACCOUNTS
from wharfinger.api.requests import ApiRequest
from wharfinger.client.connect import connect
from wharfinger.client.http import HttpClient
from wharfinger.scenario.applying import apply
from wharfinger.systems.placement.kinds.names import (
    ADDON_PLACEMENT_SCORES,
    MANAGED_CLUSTER_SET_BINDINGS,
    MANAGED_CLUSTERS,
    PLACEMENT_DECISIONS,
    PLACEMENTS,
)
from wharfinger.systems.placement.scores.access import ACCOUNT, hub_manifests, member_manifests

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


@contextmanager
def three_clusters(folder: Path) -> Iterator[None]:
    """A hub without nodes, and two members of different size."""
    with ExitStack() as started:
        for name, nodes in (("hub", 0), ("small", 1), ("large", 3)):
            place = ("--data-dir", str(folder / name), "--port", "0", "--no-dashboard")
            started.enter_context(wharf("up", *place, "--nodes", str(nodes), log=folder / f"{name}.log"))
        yield


@pytest.mark.slow
def test_agents_of_two_members_decide_on_the_hub(tmp_path: Path) -> None:
    with three_clusters(tmp_path):
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


@pytest.mark.slow
def test_the_agents_of_two_members_say_where_a_workload_fits(tmp_path: Path) -> None:
    """With accounts that may touch nothing but what belongs to their clusters."""
    with three_clusters(tmp_path):
        asyncio.run(prepare(tmp_path))
        asyncio.run(give_accounts(tmp_path))
        with least_privileged(tmp_path, "small"), least_privileged(tmp_path, "large"):
            asyncio.run(decide_by_capacity(tmp_path))
            told = explained(tmp_path)
        for log in tmp_path.glob("*agent*.log"):
            assert "forbidden" not in log.read_text(), log.read_text()
    assert re.search(r"small: (\d+) of 12 fit \(Insufficient cpu\)", told), told
    assert "large: 12 of 12 fit" in told


@contextmanager
def least_privileged(directory: Path, name: str) -> Iterator[None]:
    """Both agents of a member, each with the account that `wharf score manifests` makes."""
    member = ["--kubeconfig", str(directory / name / "agent.conf")]
    hub = ["--cluster-name", name, "--hub-kubeconfig", str(directory / name / "hub.conf")]
    with (
        wharf("score", "agent", *member, *hub, "--interval", "1s", log=directory / f"agent-{name}.log"),
        wharf(
            "score",
            "capacity",
            *member,
            *hub,
            "--interval",
            "1s",
            "--settle",
            "1s",
            log=directory / f"capacity-agent-{name}.log",
        ),
    ):
        yield


async def give_accounts(directory: Path) -> None:
    for name in ("small", "large"):
        hub, member = [connect(str(directory / each / "kubeconfig")) for each in ("hub", name)]
        try:
            for client, made in ((hub, hub_manifests(name)), (member, member_manifests(name, registry()))):
                for document in made:
                    await apply(client, document, registry())
            await write_kubeconfig(hub, directory / "hub", name, directory / name / "hub.conf")
            await write_kubeconfig(member, directory / name, "wharfinger-system", directory / name / "agent.conf")
            await sees_only_its_own(directory / name / "hub.conf", name)
        finally:
            await hub.close()
            await member.close()


async def sees_only_its_own(kubeconfig: Path, name: str) -> None:
    agent = connect(str(kubeconfig))
    try:
        await agent.list(ADDON_PLACEMENT_SCORES, name)
        await agent.get(MANAGED_CLUSTERS, name)
        for resource, namespace in (
            (ADDON_PLACEMENT_SCORES, ""),
            (ADDON_PLACEMENT_SCORES, "default"),
            (MANAGED_CLUSTERS, ""),
            (PLACEMENTS, name),
            (POD_TEMPLATES, "default"),
        ):
            with pytest.raises(Forbidden):
                await agent.list(resource, namespace)
        with pytest.raises(Forbidden):
            await agent.patch(MANAGED_CLUSTERS, name, {"spec": {"hubAcceptsClient": True}})
    finally:
        await agent.close()


async def write_kubeconfig(client: HttpClient, folder: Path, namespace: str, path: Path) -> None:
    """A kubeconfig with a token of the account, as `kubectl create token` gets it."""
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = await client.send(ApiRequest("create", SERVICE_ACCOUNTS, namespace, ACCOUNT, "token", body=request))
    config = json.loads((folder / "kubeconfig").read_text())
    config["users"][0]["user"] = {"token": answer["status"]["token"]}
    rewrite(path, json.dumps(config))


def rewrite(path: Path, text: str) -> None:
    path.write_text(text)


async def decide_by_capacity(directory: Path) -> None:
    hub = connect(str(directory / "hub" / "kubeconfig"))
    try:
        node = (await nodes_of(directory, "small"))[0]
        cores = int(node["status"]["allocatable"]["cpu"]) // 5  # a node takes four such pods, but not five
        container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": str(cores)}}}
        template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
        made = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "web"}, "template": template}
        await hub.create(POD_TEMPLATES, made, "default")
        await hub.create(MANAGED_CLUSTER_SET_BINDINGS, binding("default"), "default")
        need = {"wharfinger.dev/capacity": '{"podTemplate": "web", "replicas": 12}'}
        await hub.create(PLACEMENTS, placement(namespace="default", annotations=need), "default")

        async def large() -> bool:
            return await selected(hub) == ["large"]

        async def answered() -> bool:
            score = await hub.get(ADDON_PLACEMENT_SCORES, "capacity.default.web", "small")
            return "wharfinger.dev/capacity-answer" in score["metadata"]["annotations"]

        await until("the answer of the small member", answered)
        await until("the member to be selected where all replicas fit", large)
    finally:
        await hub.close()


async def nodes_of(directory: Path, name: str) -> list[dict[str, Any]]:
    client = connect(str(directory / name / "kubeconfig"))
    try:
        return list((await client.list(NODES)).items)
    finally:
        await client.close()


def explained(directory: Path) -> str:
    command = [sys.executable, "-m", "wharfinger.cli.main", "explain", "placement", "default/p"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    kubeconfig = str(directory / "hub" / "kubeconfig")
    done = subprocess.run(
        [*command, "--kubeconfig", kubeconfig], capture_output=True, text=True, env=environment, check=True
    )
    return done.stdout


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
