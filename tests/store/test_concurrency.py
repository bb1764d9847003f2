"""Concurrent writers: no lost updates, no duplicate names, no versions out of order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.store.support import MERGE, bind, config, pod

from wharfinger.api.errors import AlreadyExists, Conflict, ServiceUnavailable
from wharfinger.api.kinds.builtin import CONFIG_MAPS, NAMESPACES, PODS
from wharfinger.store import Store

Run = Callable[..., Any]


def test_no_increment_is_lost(run: Run) -> None:
    """Read, increment and write with optimistic locking: the sum is exact despite conflicts."""

    async def scenario(store: Store) -> tuple[str, int]:
        await store.create(CONFIG_MAPS, config(data={"n": "0"}), "default")
        conflicts = 0

        async def add(times: int) -> None:
            nonlocal conflicts
            for _ in range(times):
                while True:
                    document = (await store.get(CONFIG_MAPS, "c", "default")).document()
                    await asyncio.sleep(0)
                    document["data"]["n"] = str(int(document["data"]["n"]) + 1)
                    try:
                        await store.update(CONFIG_MAPS, document, "default")
                        break
                    except Conflict:
                        conflicts += 1

        await asyncio.gather(*(add(10) for _ in range(10)))
        return (await store.get(CONFIG_MAPS, "c", "default")).document()["data"]["n"], conflicts

    total, conflicts = run(scenario)
    assert total == "100"
    assert conflicts > 0, "the writers did get in each other's way"


def test_one_of_many_creations_wins(run: Run) -> None:
    async def scenario(store: Store) -> list[Any]:
        creations = [store.create(CONFIG_MAPS, config(data={"n": str(n)}), "default") for n in range(20)]
        return await asyncio.gather(*creations, return_exceptions=True)

    outcomes = run(scenario)
    assert sum(isinstance(outcome, AlreadyExists) for outcome in outcomes) == 19


def test_one_of_many_bindings_wins(run: Run) -> None:
    async def scenario(store: Store) -> tuple[list[Any], str]:
        await store.create(PODS, pod(), "default")
        bindings = [bind(store, node=f"n{n}") for n in range(20)]
        outcomes = await asyncio.gather(*bindings, return_exceptions=True)
        return outcomes, (await store.get(PODS, "p", "default")).document()["spec"]["nodeName"]

    outcomes, node = run(scenario)
    assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 19
    assert outcomes[int(node[1:])] is None


def test_patches_of_different_fields_all_stay(run: Run) -> None:
    async def scenario(store: Store) -> dict[str, str]:
        await store.create(CONFIG_MAPS, config(), "default")
        patches = [store.patch(CONFIG_MAPS, "c", {"data": {f"k{n}": "v"}}, "default", type=MERGE) for n in range(50)]
        written = await asyncio.gather(*patches)
        versions = [int(one.document["metadata"]["resourceVersion"]) for one in written]
        assert len(set(versions)) == 50
        return dict((await store.get(CONFIG_MAPS, "c", "default")).document()["data"])

    assert run(scenario) == {f"k{n}": "v" for n in range(50)}


def test_a_cancelled_writer_does_not_affect_others(run: Run) -> None:
    async def scenario(store: Store) -> None:
        tasks = [asyncio.create_task(store.create(CONFIG_MAPS, config(f"c{n}"), "default")) for n in range(10)]
        await asyncio.sleep(0)
        tasks[3].cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        names = {stored.name for stored in (await store.list(CONFIG_MAPS)).items}
        for number, outcome in enumerate(outcomes):
            if not isinstance(outcome, BaseException):
                assert f"c{number}" in names
        assert len(names) >= 9

    run(scenario)


def test_a_closed_store_rejects_writes(make_store: Callable[..., Store]) -> None:
    async def body() -> None:
        store = make_store()
        writing = asyncio.ensure_future(store.create(NAMESPACES, {"metadata": {"name": "default"}}))
        await asyncio.sleep(0)
        await store.close()
        assert (await writing).created, "what was taken is finished"
        with pytest.raises(ServiceUnavailable, match="the store is closed"):
            await store.create(NAMESPACES, {"metadata": {"name": "late"}})

    asyncio.run(body())
