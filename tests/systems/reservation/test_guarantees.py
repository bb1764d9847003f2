"""Preemption with a guarantee, where several preemptors want the same room at the same moment."""

import asyncio
from typing import Any

from wharfinger.api.configuration import Configuration
from wharfinger.api.errors import Forbidden
from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.registry import Resource
from wharfinger.scenario import applying
from wharfinger.simulate.cluster import SimulatedCluster
from wharfinger.systems.reservation.kinds.names import RESERVATIONS
from wharfinger.systems.reservation.settings import ReservationSettings

START = 1767225600.0


def node(name: str) -> dict[str, Any]:
    room = {"cpu": "4", "memory": "32Gi", "pods": "110"}
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "status": {"allocatable": room, "capacity": room},
    }


def priority(name: str, value: int) -> dict[str, Any]:
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}


def pod(name: str, klass: str, on: str = "") -> dict[str, Any]:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "4"}}}
    selector = {"nodeSelector": {"kubernetes.io/hostname": on}} if on else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": {"wharfinger.dev/shutdown-after": "1s"}},
        "spec": {"containers": [container], "priorityClassName": klass, **selector},
    }


def test_who_loses_the_race_for_a_node_looks_elsewhere_at_once() -> None:
    configuration = Configuration()
    configuration = Configuration().having(type(configuration.of(ReservationSettings))(enable_preemption=True))
    world = SimulatedCluster(configuration, start=START)
    client = world.client("", lambda warning: None)

    async def apply(*documents: dict[str, Any]) -> None:
        for document in documents:
            await applying.apply(client, document, world.registry)

    async def play() -> None:
        await apply(*(priority(name, value) for name, value in (("low", 1), ("mid", 5), ("high", 10), ("top", 20))))
        await apply(node("n1"), node("n2"), pod("weakest", "low", "n1"), pod("weak", "mid", "n2"))
        await world.settle()
        began = world.loop.time()
        assert world.scheduler is not None
        far = world.scheduler.state.kinds.others[RESERVATIONS.kind].context.client
        create = far.create

        async def create_late(resource: Resource, *args: Any, **options: Any) -> Any:
            if resource == RESERVATIONS:
                await asyncio.sleep(0.5)
            return await create(resource, *args, **options)

        far.create = create_late  # type: ignore[method-assign]  # the API server is far away
        await apply(pod("first", "high"))
        await asyncio.sleep(0.1)
        # It wants n1, and that is not reserved yet; one that is more important wants n1, too.
        await apply(pod("second", "top"))
        await world.settle()
        assert world.loop.time() - began < 10

    world.start()
    try:
        world.loop.complete(play())
        nodes = {each["metadata"]["name"]: each["spec"].get("nodeName") for each in world.objects(PODS)}
        assert nodes == {"first": "n1", "second": "n2"}
        assert {each["status"]["phase"] for each in world.objects(RESERVATIONS)} == {"Succeeded"}
    finally:
        world.close()


def test_a_guarantee_is_taken_back_when_its_victims_cannot_be_evicted() -> None:
    configuration = Configuration().having(ReservationSettings(enable_preemption=True))
    world = SimulatedCluster(configuration, start=START)
    client = world.client("", lambda warning: None)
    refusals = []

    async def play() -> None:
        for document in (priority("low", 1), priority("high", 10), node("n1"), pod("victim", "low", "n1")):
            await applying.apply(client, document, world.registry)
        await world.settle()
        assert world.scheduler is not None
        far = world.scheduler._executor._evictor._client
        delete = far.delete

        async def refuse_twice(resource: Resource, *args: Any, **options: Any) -> Any:
            if resource == PODS and len(refusals) < 2:
                refusals.append(args)
                raise Forbidden("not today")
            return await delete(resource, *args, **options)

        far.delete = refuse_twice  # type: ignore[method-assign]
        began = world.loop.time()
        await applying.apply(client, pod("preemptor", "high"), world.registry)
        await world.settle()
        assert world.loop.time() - began < 30, "it does not wait for the end of the guarantee"

    world.start()
    try:
        world.loop.complete(play())
        assert len(refusals) == 2
        nodes = {each["metadata"]["name"]: each["spec"].get("nodeName") for each in world.objects(PODS)}
        assert nodes == {"preemptor": "n1"}
    finally:
        world.close()
