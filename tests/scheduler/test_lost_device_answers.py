"""Worlds of devices in virtual time, where answers to the scheduler's writes get lost or come late, watches lag behind, and the
scheduler is killed in the midst: no device is given twice, and afterwards no pod waits that could be placed.

`WHARF_LOST_ANSWERS=from:to` names other seeds.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.kubernetes.device_stage import DeviceStage, Seen
from tests.kubernetes.device_worlds import DeviceWorld

from wharfinger.api.configuration import Configuration
from wharfinger.api.kinds.builtin import EVENTS, PODS
from wharfinger.api.registry import Document
from wharfinger.api.requests import READS, ApiRequest
from wharfinger.plugins.dynamic_resources.catalogue import catalogue_of
from wharfinger.scenario import applying
from wharfinger.scenario.document import ScenarioFault
from wharfinger.simulate.cluster import SimulatedCluster
from wharfinger.simulate.processes import ProcessFaults, ProcessRun

FIRST, _, LAST = os.environ.get("WHARF_LOST_ANSWERS", "0:6").partition(":")
DELAYS = (0.001, 0.005, 0.05, 0.3)
REST = (
    60.0  # seconds after the last fault: longer than any back-off, shorter than the retry of those that nothing wakes
)


class RandomDisturbance(ProcessFaults):
    """Of the scheduler's writes, some answers are lost and some are late; of its watches, some events are late."""

    def __init__(self, kill: Callable[[ProcessRun], None], pause: Callable[[ProcessRun], None], seed: int) -> None:
        super().__init__(kill, pause)
        self._chance = random.Random(seed)
        self.lost = 0
        self.share = 0.0  # of answers that are lost
        self.late = 0.0  # share of answers and events that are late

    @property
    def armed(self) -> bool:
        return True

    def take(self, run: ProcessRun, request: ApiRequest[Any], group: str, *kinds: str) -> ScenarioFault | None:
        if run.name != "scheduler" or "stale" in kinds:
            return None
        chance, delay = self._chance, self._chance.choice(DELAYS)
        if group == "watch":
            return ScenarioFault(watch="delay", delay=delay) if chance.random() < self.late else None
        if request.verb in READS or request.resource == EVENTS:
            return None
        if chance.random() < self.share:
            self.lost += 1
            return ScenarioFault(request="lost")
        if chance.random() < self.late:
            return ScenarioFault(request=chance.choice(("late", "slow")), delay=delay)
        return None


class StoreReader:
    """Lists of a simulated API server, by path."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster

    def get(self, path: str) -> Document:
        plural = path.rpartition("/")[2]
        kind = next(
            each for each in self._cluster.registry if each.plural == plural and each.group in ("", "resource.k8s.io")
        )
        return {"items": self._cluster.objects(kind.storage)}


class SimulatedStage(DeviceStage):
    def __init__(self, cluster: SimulatedCluster, worlds: list[DeviceWorld]) -> None:
        self._api = StoreReader(cluster)  # type: ignore[assignment]  # only lists are read
        self.worlds = worlds


class DisturbedWorlds:
    def __init__(self, seed: int) -> None:
        self.cluster = SimulatedCluster(Configuration(), start=1.8e9, seed=seed)
        self.cluster._parts.pop("nodes")  # pods stay as they are bound
        self.faults = RandomDisturbance(self.cluster._killed, self.cluster._stand_still, seed)
        self.cluster.process_faults = self.faults
        self.stage = SimulatedStage(self.cluster, [DeviceWorld(10 * seed + number) for number in range(2)])
        self._client = self.cluster.client("", lambda warning: None)
        self._chance = random.Random(f"times {seed}")
        self._now = 0.0

    async def play(self) -> Seen:
        for world in self.stage.worlds:
            await self._apply(world.namespace(), *world.setup())
        self.cluster.start()
        await self.cluster.loop.still()
        self.faults.late = 0.3
        for step in range(4):
            for world in self.stage.worlds:
                for _ in range(4):
                    await self._apply(*world.pod())
                    await self._pass(0.0, 0.002, 0.02, 0.2)
            self.faults.share = 0.3
            if step % 2:
                self.cluster._killed(self.cluster.runs["scheduler"])
            await self._pass(0.01, 0.1, 1.0, 5.0)
            seen = self.stage.seen()
            assert not self.stage.given_twice(seen, self.stage.slices())
            for pod in [each for each in seen.pods.values() if each["spec"].get("nodeName")][step::3]:
                metadata = pod["metadata"]
                await self._client.delete(PODS, metadata["name"], metadata["namespace"], grace_period=0)
        self.faults.share = 0.0
        await self._pass(REST)
        return self.stage.seen()

    async def _apply(self, *documents: Document) -> None:
        for document in documents:
            await applying.apply(self._client, document, self.cluster.registry)

    async def _pass(self, *seconds: float) -> None:
        self._now += self._chance.choice(seconds)
        await self.cluster.advance(self._now)


@pytest.mark.parametrize("seed", range(int(FIRST), int(LAST)))
def test_lost_and_late_answers_neither_give_a_device_twice_nor_let_a_pod_wait(seed: int) -> None:
    worlds = DisturbedWorlds(seed)
    try:
        seen = worlds.cluster.loop.complete(worlds.play())
        stage, scheduler = worlds.stage, worlds.cluster.scheduler
        assert worlds.faults.lost > 0
        assert not stage.given_twice(seen, stage.slices())
        assert not stage.bound_without_devices(seen)
        assert not stage.schedulable(seen)
        assert stage.all_tried(seen, kept=True), seen.waiting()
        assert scheduler is not None and not scheduler.state.cycle.busy
        catalogue = catalogue_of(scheduler.engine.tables)
        assert {claim.uid for claim in catalogue.claims.values()} == {
            each["metadata"]["uid"] for each in seen.claims.values()
        }
        assert not catalogue.pending and not catalogue.reserved
        waiting = {key for key, pod in seen.pods.items() if not pod["spec"].get("nodeName")}
        assert not [key for key in waiting for claim in seen.claims.values() if _made_for(claim, *key)]
    finally:
        worlds.cluster.close()


def _made_for(claim: Document, namespace: str, name: str) -> bool:
    """Whether it is the claim for the extended resources of a pod."""
    metadata = claim["metadata"]
    return metadata["namespace"] == namespace and metadata["name"].startswith(f"{name}-extended-resources-")
