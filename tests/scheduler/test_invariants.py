"""Over random histories with failing and slow bindings, restarts and vanishing nodes: no node is over-committed, no pod is
bound twice, and none is forgotten while it fits somewhere."""

from collections.abc import Iterator
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.scheduler.test_live import Stage, node, pod

from wharfinger.api.errors import ApiError
from wharfinger.api.kinds.builtin import NODES, PODS
from wharfinger.scenario import applying
from wharfinger.scenario.document import ScenarioFault

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("node"), st.integers(0, 3), st.integers(1, 4)),
        st.tuples(st.just("drop-node"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("pod"), st.integers(0, 9), st.integers(1, 3)),
        st.tuples(st.just("drop-pod"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("fail"), st.integers(1, 3), st.just(0)),
        st.tuples(st.just("slow"), st.integers(1, 3), st.integers(1, 20)),
        st.tuples(st.just("restart"), st.just(0), st.just(0)),
        st.tuples(st.just("wait"), st.integers(0, 30), st.just(0)),
    ),
    min_size=3,
    max_size=14,
)


async def act(stage: Stage, kind: str, first: int, second: int) -> None:
    client, world = stage.client, stage.world
    try:
        if kind == "node":
            await client.create(NODES, node(f"n{first}", str(second)))  # one that is there keeps its size
        elif kind == "drop-node":
            await client.delete(NODES, f"n{first}")
        elif kind == "pod":
            await applying.apply(client, pod(f"p{first}", str(second)), world.registry)
        elif kind == "drop-pod":
            await client.delete(PODS, f"p{first}", "default", grace_period=0)
        elif kind == "fail":
            await world.fault(ScenarioFault(bind="fail", count=first))
        elif kind == "slow":
            await world.fault(ScenarioFault(bind="slow", count=first, delay=float(second)))
        elif kind == "restart":
            await world.fault(ScenarioFault(restart="scheduler"))
        else:
            await world.advance(world.loop.time() + first)
    except ApiError:
        pass  # what is not there cannot be deleted, and a pod's requests cannot be changed


def room(stage: Stage) -> dict[str, int]:
    """Free milli-CPUs by node."""
    free = {
        each["metadata"]["name"]: int(each["status"]["allocatable"]["cpu"]) * 1000
        for each in stage.world.objects(NODES)
    }
    for each in placed(stage):
        if each["spec"]["nodeName"] in free:
            free[each["spec"]["nodeName"]] -= request(each)
    return free


def placed(stage: Stage) -> Iterator[dict[str, Any]]:
    for each in stage.world.objects(PODS):
        if each["spec"].get("nodeName") and each["status"]["phase"] not in ("Failed", "Succeeded"):
            yield each


def request(document: dict[str, Any]) -> int:
    return int(document["spec"]["containers"][0]["resources"]["requests"]["cpu"]) * 1000


@given(STEPS)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_history_keeps_the_invariants(steps: list[tuple[str, int, int]]) -> None:
    stage = Stage()
    bound: dict[str, str] = {}

    async def play() -> None:
        for kind, first, second in steps:
            await act(stage, kind, first, second)
            await stage.world.loop.still()
            observe()
        await stage.world.settle()
        # After several failures in a row an idle simulation no longer waits for the next try: let time pass.
        await stage.world.advance(stage.world.loop.time() + 600)
        await stage.world.settle()
        observe()

    def observe() -> None:
        free = room(stage)
        assert all(left >= 0 for left in free.values()), free
        for each in placed(stage):
            uid = each["metadata"]["uid"]
            assert bound.setdefault(uid, each["spec"]["nodeName"]) == each["spec"]["nodeName"]

    try:
        stage.world.loop.complete(play())
        free = room(stage)
        for each in stage.world.objects(PODS):
            if not each["spec"].get("nodeName"):
                assert request(each) > max(free.values(), default=0), (each["metadata"]["name"], free)
    finally:
        stage.world.close()
