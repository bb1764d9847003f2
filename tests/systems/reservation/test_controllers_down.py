"""What happened while the controllers were not running is not lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from wharfinger.api.configuration import Configuration
from wharfinger.api.kinds.builtin import PODS
from wharfinger.scenario import applying
from wharfinger.simulate.cluster import SimulatedCluster
from wharfinger.systems.reservation.kinds.names import RESERVATIONS

REQUESTS = {"requests": {"cpu": "1"}}
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1"},
    "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}},
}
RESERVATION = {
    "apiVersion": RESERVATIONS.api_version,
    "kind": RESERVATIONS.kind,
    "metadata": {"name": "r"},
    "spec": {
        "template": {"spec": {"containers": [{"name": "c", "image": "x", "resources": REQUESTS}]}},
        "owners": [{"labelSelector": {"matchLabels": {"app": "web"}}}],
    },
}


def owner() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "x", "resources": REQUESTS}], "restartPolicy": "Never"},
    }


@pytest.mark.parametrize("way", ["deleted", "finished"])
def test_a_consumer_that_came_and_went_meanwhile_used_the_reservation_up(way: str) -> None:
    world = SimulatedCluster(Configuration(), start=1767225600.0)
    client = world.client("", lambda warning: None)

    async def play() -> None:
        for document in (NODE, RESERVATION):
            await applying.apply(client, document, world.registry)
        await world.settle()
        task = world._running.pop("controllers")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await applying.apply(client, owner(), world.registry)
        await world.settle()
        (pod,) = world.objects(PODS)
        assert pod["spec"]["nodeName"] == "n1"
        if way == "deleted":
            await client.delete(PODS, "web", "default", grace_period=0)
        else:
            await client.patch(PODS, "web", {"status": {"phase": "Succeeded"}}, "default", subresource="status")
        await world.settle()
        world._start("controllers")
        await world.settle()

    world.start()
    try:
        world.loop.complete(play())
        (reservation,) = world.objects(RESERVATIONS)
        assert reservation["status"]["phase"] == "Succeeded"
        assert [each["name"] for each in reservation["status"]["currentOwners"]] == ["web"]
    finally:
        world.close()
