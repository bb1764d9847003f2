"""Sequences of pods with claims, through the stock scheduler and through ours on a real API server: the same devices, step
by step. And with faults: whatever is lost or restarted, no device is given twice.

`WHARF_DEVICE_SEQUENCES=from:to` names other seeds, and `WHARF_DEVICE_STEPS` the length of a sequence.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from tests.kubernetes.binaries import Binaries
from tests.kubernetes.cluster import Cluster, free_port, reachable
from tests.kubernetes.device_stage import DeviceStage
from tests.kubernetes.device_worlds import DeviceWorld
from tests.kubernetes.faulty_scheduler import FaultyScheduler
from tests.kubernetes.manifests import Document

FIRST, _, LAST = os.environ.get("WHARF_DEVICE_SEQUENCES", "0:12").partition(":")
SEEDS = range(int(FIRST), int(LAST))
STEPS = int(os.environ.get("WHARF_DEVICE_STEPS", "10"))
CONTROLLERS = (
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "resourceclaim-controller",
    "garbage-collector-controller",
)
Record = dict[str, Document]
"""What became of each pod of a world after a step."""


@pytest.fixture(scope="module")
def alone(binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster in which nobody judges nodes by their heartbeats, and none is tainted until it has one."""
    made = Cluster(binaries, tmp_path_factory.mktemp("devices"))
    try:
        made.start(controllers=False, apiserver=("--disable-admission-plugins", "TaintNodesByCondition"))
        made.start_controller_manager("--controllers", ",".join(CONTROLLERS))
        made.kubectl("apply", "--server-side", "-f", "-", stdin=made.run_wharf("crds"))
        yield made
    finally:
        made.stop()


def play(cluster: Cluster, seeds: range) -> list[list[Record]]:
    """Plays all worlds at the same time; returns what was seen after each step, world by world."""
    stage = DeviceStage(cluster, [DeviceWorld(seed) for seed in seeds])
    stage.set_up()
    records: list[list[Record]] = [[] for _ in seeds]
    latest: list[Record] = [{} for _ in seeds]
    for _ in range(STEPS):
        for world, known in zip(stage.worlds, latest, strict=True):
            bound = {name: each["node"] for name, each in known.items() if "node" in each}
            pending = sorted(set(known) - set(bound))
            stage.carry_out(world.step(bound, pending), world.space)
        seen = stage.settled()
        assert not stage.given_twice(seen, stage.slices())
        assert not stage.bound_without_devices(seen)
        for index, world in enumerate(stage.worlds):
            known, latest[index] = latest[index], {}
            for (space, name), pod in seen.pods.items():
                outcome = seen.outcome(pod) or {}
                if space == world.space:
                    # Why a pod is pending depends on when it was tried last, except for a new one.
                    latest[index][name] = {"pending": "still"} if "pending" in outcome and name in known else outcome
            records[index].append(latest[index])
    stage.wipe()
    return records


def differences(theirs: list[list[Record]], ours: list[list[Record]], seeds: range) -> list[str]:
    """The first difference of each world."""
    found = []
    for seed, stock, own in zip(seeds, theirs, ours, strict=True):
        for step, (left, right) in enumerate(zip(stock, own, strict=True)):
            different = [name for name in sorted({*left, *right}) if left.get(name) != right.get(name)]
            if different:
                name = different[0]
                found.append(f"world {seed}, step {step}, {name}:\n  {left.get(name)}\n  {right.get(name)}")
                break
    return found


def test_the_same_pods_get_the_same_devices(alone: Cluster) -> None:
    stock = alone.start_kube_scheduler({})
    try:
        theirs = play(alone, SEEDS)
    finally:
        alone.end(stock)
    port = free_port()
    names = ("--scheduler-names", "default-scheduler", "--metrics-port", str(port))
    own = alone.wharf("scheduler", "--no-leader-elect", *names)
    try:
        alone.until(lambda: reachable(f"http://127.0.0.1:{port}/readyz"), "our scheduler is ready")
        ours = play(alone, SEEDS)
    finally:  # two schedulers would give devices twice in the tests that follow
        status = alone.end(own)
    assert status == 0
    outcomes = [each for world in theirs for record in world for each in record.values()]
    assert sum("node" in each for each in outcomes) > len(outcomes) / 3  # else little is compared
    found = differences(theirs, ours, SEEDS)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("seed", range(2))
def test_lost_answers_and_restarts_give_no_device_twice(alone: Cluster, seed: int) -> None:
    """Pods come in bursts and race for devices, answers to writes get lost, and the scheduler is replaced in the midst."""
    stage = DeviceStage(alone, [DeviceWorld(1000 + 10 * seed + number) for number in range(4)])
    stage.set_up()
    scheduler = FaultyScheduler(alone.kubeconfig, seed)
    scheduler.start()
    try:
        for step in range(4):
            for world in stage.worlds:
                for _ in range(3):
                    for document in world.pod():
                        stage.create(document)
            scheduler.lose(0.3)
            if step % 2:
                scheduler.restart()
            seen = stage.seen()
            assert not stage.given_twice(seen, stage.slices())
            ended = [pod["metadata"] for pod in seen.pods.values() if pod["spec"].get("nodeName")][step::3]
            for metadata in ended:
                stage.delete("Pod", metadata["name"], metadata["namespace"])
        stage.until(lambda seen: scheduler.lost > 0, "an answer is lost")
        scheduler.lose(0.0)
        seen = stage.settled(kept=True)
    finally:
        scheduler.stop()
    assert scheduler.lost > 0
    assert not stage.given_twice(seen, stage.slices())
    assert not stage.bound_without_devices(seen)
    stage.wipe()
