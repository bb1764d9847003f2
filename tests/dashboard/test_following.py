"""The scheduler behind explanations: it follows the cluster, writes nothing, and forgets what is gone."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from tests.scheduler.test_live import Stage, node, pod

from wharfinger.api.kinds.builtin import NODES
from wharfinger.api.views import Pod
from wharfinger.client.fence import FencedClient
from wharfinger.dashboard.follower import Follower
from wharfinger.scheduler import profiles


class Followed(Stage):
    """A stage with a follower beside the scheduler, and the number of its writes."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        world = self.world
        client = FencedClient(self.client, self._write)
        self.follower = Follower(client, world.clock, profiles.load({}, settings=world.configuration), world.registry)

        async def start() -> None:
            self.follower.start()

        self.do(start)
        assert self.follower.ready

    def _write(self) -> None:
        self.writes += 1

    def close(self) -> None:
        self.world.loop.complete(self.follower.stop())
        self.world.close()


@pytest.fixture
def stage() -> Iterator[Followed]:
    made = Followed()
    yield made
    made.close()


def reservation(name: str, cpu: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    owners = [{"labelSelector": {"matchLabels": {"app": "web"}}}]
    template = {"spec": {"containers": [container]}}
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": name},
        "spec": {"owners": owners, "template": template, "ttl": "1h", **spec},
    }


def test_it_writes_nothing_whatever_happens(stage: Followed) -> None:
    """What a scheduler reports and repairs beside its decisions is left to the one whose turn it is."""
    stage.apply(node("n1"), reservation("kept", "1"), reservation("too-large", "9"), pod("a"), pod("waits", "9"))
    stage.world._running.pop("scheduler").cancel()
    stage.apply(reservation("nobody-places-it", "1"), pod("b"), node("n2"))
    stage.delete("a")
    assert stage.follower.verdict("default", "b")["verdict"] == "now"
    assert stage.writes == 0


def test_an_explanation_leaves_no_trace(stage: Followed) -> None:
    stage.apply(node("n1", "4"), pod("runs", "1"))
    stage.world._running.pop("scheduler").cancel()
    stage.apply(reservation("kept", "1"), pod("first", "2"), pod("second", "3"))
    for name in ("first", "runs", "second"):
        before = stage.follower.explain("default", name)
        assert before["choice"] == "n1"
        assert stage.follower.explain("default", name) == before


def test_pods_that_are_gone_are_forgotten(stage: Followed) -> None:
    stage.apply(node("n1"))

    def churn(numbers: range) -> int:
        for number in numbers:
            stage.apply(pod(f"p-{number}"))
            stage.delete(f"p-{number}")
        gc.collect()
        return sum(isinstance(each, Pod) for each in gc.get_objects())

    before = churn(range(20))
    assert churn(range(20, 100)) <= before + 10


def test_only_what_may_change_a_verdict_counts_as_a_change(stage: Followed) -> None:
    stage.apply(node("n1"), pod("a"), pod("waits", "9"))
    seen = stage.follower.revision

    def heartbeat() -> Any:
        condition = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:10:00Z"}
        return stage.client.patch(
            NODES, "n1", {"status": {"images": [], "conditions": [condition]}}, subresource="status"
        )

    stage.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "default"}})
    assert stage.follower.revision == seen
    stage.do(heartbeat)
    stage.do(heartbeat)
    after = stage.follower.revision
    stage.do(heartbeat)
    assert stage.follower.revision == after
    stage.apply(node("n2", "16"))
    assert stage.follower.revision > after
