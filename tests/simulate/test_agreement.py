"""`explain`, the next step of `simulate`, `plan` and an embedded API server give the same answer about a pod, and a
snapshot that nothing is done to stays as it is; over random clusters with objects of all five systems. More of them than
CI looks at: `WHARF_AGREEMENT_SEEDS=40 pytest tests/simulate/test_agreement.py`."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.simulate import random_worlds

from wharfinger.api.conditions import find_condition
from wharfinger.api.configuration import Configuration
from wharfinger.api.errors import Forbidden
from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import PODS
from wharfinger.apiserver.credentials import SCHEDULER, load_credentials
from wharfinger.apiserver.server import open_application
from wharfinger.apiserver.tokens import TokenSigner
from wharfinger.cli.simulating import loaded_world
from wharfinger.client.local import LocalClient
from wharfinger.client.timers import SystemClock
from wharfinger.scheduler import profiles
from wharfinger.scheduler.scheduler import Scheduler, SchedulerOptions
from wharfinger.simulate.explaining import PodExplanation, explain_pod
from wharfinger.simulate.inputs import Inputs, read_inputs
from wharfinger.simulate.planning import plan
from wharfinger.simulate.simulation import SimulationOptions, simulate
from wharfinger.simulate.snapshots import SnapshotHeader
from wharfinger.store import Store

Document = dict[str, Any]
SEEDS = range(int(os.environ.get("WHARF_AGREEMENT_SEEDS", "4")))
VOLATILE = ("resourceVersion", "managedFields", "generation")
TIMES = ("lastTransitionTime", "lastUpdateTime", "lastProbeTime", "lastHeartbeatTime", "observedGeneration")
WAITING = ("PodScheduled", "Scheduled")  # conditions of pods and reservations
SCORES = ("lastScoreUpdateTime", "score")  # of placements, which are written anew once a minute


def inputs(objects: list[Document]) -> Inputs:
    data = msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": objects})
    return read_inputs([("objects.json", data)], registry())


def simulated(*objects: Document) -> list[Document]:
    found: list[Document] = simulate(inputs(list(objects)), SimulationOptions())["objects"]
    return found


def snapshot_of(rng: random.Random) -> list[Document]:
    """What becomes of a random cluster, as `wharf snapshot` would write it."""
    report = simulate(inputs(random_worlds.cluster(rng)), SimulationOptions())
    header = SnapshotHeader(report["time"])
    header.counts = {(kind.storage.api_version, kind.kind): 0 for kind in registry()}
    return [*report["objects"], header.document()]


def pods_in(objects: list[Document]) -> dict[str, Document]:
    return {each["metadata"]["name"]: each for each in objects if each["kind"] == "Pod"}


def node_and_message(pod: Document) -> tuple[str, str]:
    condition = find_condition((pod.get("status") or {}).get("conditions") or (), "PodScheduled") or {}
    node = pod["spec"].get("nodeName") or ""
    return node, "" if node else str(condition.get("message") or "")


def explained(objects: list[Document], name: str) -> PodExplanation:
    world = loaded_world(inputs(objects))
    try:
        client = world.client("", lambda warning: None)
        settings = profiles.load({})
        return world.loop.complete(explain_pod(client, world.clock, settings, world.registry, "shop", name))
    finally:
        world.close()


def best_nodes(story: PodExplanation) -> set[str]:
    """The nodes that the pod may get: ties are broken at random."""
    if story.preemption is not None:
        return {story.preemption.node}
    scores = {name: story.explanation.total(name) for name in story.explanation.scores}
    return {name for name, score in scores.items() if score == max(scores.values())}


def without_times(value: Any) -> Any:
    """Without what a new write changes although nothing was decided anew, and without messages of what waits,
    which count nodes as of the last attempt."""
    if isinstance(value, dict):
        left_out = (*TIMES, *SCORES, *(("message",) if value.get("type") in WAITING else ()))
        return {key: without_times(item) for key, item in value.items() if key not in left_out}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def decisive(objects: list[Document]) -> dict[tuple[str, str, str], Document]:
    found = {}
    for each in objects:
        metadata = each.get("metadata") or {}
        if each["kind"] not in ("Lease", "Snapshot", "SnapshotHeader") and metadata.get("name"):
            kept = {key: value for key, value in metadata.items() if key not in VOLATILE}
            parts = {key: value for key, value in each.items() if key != "metadata"}
            key = (each["kind"], metadata.get("namespace", ""), metadata["name"])
            found[key] = without_times({"metadata": kept, **parts})
    return found


@pytest.fixture(scope="module", params=SEEDS, ids=[f"seed {seed}" for seed in SEEDS])
def world(request: pytest.FixtureRequest) -> tuple[int, list[Document]]:
    return request.param, snapshot_of(random.Random(request.param))


def test_a_snapshot_that_nothing_is_done_to_stays_as_it_is(world: tuple[int, list[Document]]) -> None:
    _, snapshot = world
    after = simulated(*snapshot)
    assert decisive(after) == decisive(snapshot[:-1])
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "unrelated"}}
    assert plan(inputs(snapshot), inputs([namespace])).changes == []


def test_waiting_pods_are_explained_as_the_next_step_decides(world: tuple[int, list[Document]]) -> None:
    _, snapshot = world
    after = pods_in(simulated(*snapshot))
    for name, pod in pods_in(snapshot).items():
        if not pod["spec"].get("nodeName"):
            story = explained(snapshot, name)
            assert (story.choice, story.message) == node_and_message(after[name]), name


@pytest.mark.parametrize("number", range(2))
def test_a_new_pod_gets_the_same_answer_everywhere(
    world: tuple[int, list[Document]], number: int, tmp_path: Path
) -> None:
    seed, snapshot = world
    pod = random_worlds.pod(random.Random(f"{seed} {number}"), "new")
    after = pods_in(simulated(*snapshot, pod))
    if "new" not in after:  # refused, by quota for example
        (refusal,) = plan(inputs(snapshot), inputs([pod])).refused
        assert refusal.name == "new"
        return
    node, message = node_and_message(after["new"])
    story = explained([*snapshot, pod], "new")
    change = next(each for each in plan(inputs(snapshot), inputs([pod])).changes if each.name == "new")
    assert change.after is not None
    if node:
        assert node in best_nodes(story), story.message
        assert change.after["node"] in best_nodes(story)
    else:
        assert (story.choice, story.message) == ("", message)
        assert (change.after["node"], change.after["message"]) == (None, message)
    if number == 0:
        live_node, live_message = asyncio.run(_live(snapshot[:-1], pod, tmp_path))
        if node:
            assert live_node in best_nodes(story), live_message
        else:
            assert (live_node, live_message) == ("", message)


async def _live(snapshot: list[Document], pod: Document, tmp_path: Path) -> tuple[str, str]:
    """What the scheduler of an embedded API server with the same objects decides: a node, also one that it makes room on,
    or the message."""
    kinds = registry()
    store = Store(kinds, keep_identity=True)
    credentials, signer = load_credentials(tmp_path / "d"), TokenSigner.load(tmp_path / "d" / "sa.key")
    async with open_application(store, credentials, signer, Path("pki"), Configuration()):
        for each in sorted(snapshot, key=lambda each: each["kind"] != "Namespace"):
            resource = kinds.resource_of(each)
            assert resource is not None
            if store.peek(resource, each["metadata"]["name"], each["metadata"].get("namespace", "")) is None:
                await store.restore(resource, each)
        client = LocalClient(store)
        async with asyncio.timeout(30):
            while not await _created(client, pod):
                await asyncio.sleep(0.01)
        scheduler = Scheduler(client.as_user(SCHEDULER), SystemClock(), profiles.load({}), kinds, SchedulerOptions())
        running = asyncio.create_task(scheduler.run())
        try:
            async with asyncio.timeout(30):
                while True:
                    found = await client.get(PODS, "new", "shop")
                    node, message = node_and_message(found)
                    node = node or (found.get("status") or {}).get("nominatedNodeName") or ""
                    if node or message:
                        return node, message
                    await asyncio.sleep(0.01)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await store.close()


async def _created(client: LocalClient, pod: Document) -> bool:
    """False while the server has not taken in the roles that were loaded."""
    try:
        await client.create(PODS, pod, "shop")
    except Forbidden:
        return False
    return True
