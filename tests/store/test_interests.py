"""Watches with selectors: they see what a watch of everything would show them, and sleep through the rest."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.store.support import MERGE, bind, pod

from wharfinger.api.kinds.builtin import NAMESPACES, PODS
from wharfinger.api.selectors import parse_field_selector, parse_label_selector
from wharfinger.store import Limits, Store, Watch

Run = Callable[..., Any]

# A namespace, labels and fields.
SELECTORS = (
    ("", "", ""),
    ("default", "", ""),
    ("other", "", ""),
    ("", "", "metadata.name=p1"),
    ("default", "", "metadata.name=p2"),
    ("", "", "metadata.namespace=other"),
    ("", "", "spec.nodeName=n1"),
    ("default", "app=a", "spec.nodeName=n2"),
    ("", "", "spec.nodeName="),
    ("", "", "spec.nodeName!=n1"),
    ("", "app=a", ""),
    ("", "app in (a,b)", ""),
    ("default", "app notin (a)", ""),
    ("", "app", ""),
    ("", "!app", ""),
    ("", "app=a", "status.phase!=Running"),
)


def watching(store: Store, selector: tuple[str, str, str]) -> Watch:
    namespace, labels, fields = selector
    return store.watch(
        PODS,
        namespace,
        after=store.version,
        labels=parse_label_selector(labels) if labels else (),
        fields=parse_field_selector(fields) if fields else (),
    )


async def listed(store: Store, selector: tuple[str, str, str]) -> dict[tuple[str, str], int]:
    namespace, labels, fields = selector
    listing = await store.list(
        PODS,
        namespace,
        labels=parse_label_selector(labels) if labels else (),
        fields=parse_field_selector(fields) if fields else (),
    )
    return {(one.namespace, one.name): one.version for one in listing.items}


async def follow(watch: Watch, seen: dict[tuple[str, str], int]) -> None:
    """Applies the events to what was seen so far; refuses those that do not fit."""
    async for event in watch:
        assert event.object is not None
        key = (event.object.namespace, event.object.name)
        assert (key in seen) is (event.type != "ADDED"), (event.type, key)
        if event.type == "DELETED":
            del seen[key]
        else:
            seen[key] = event.version


async def change(store: Store, chance: random.Random) -> None:
    name, namespace = f"p{chance.randrange(6)}", chance.choice(("default", "other"))
    present = store.peek(PODS, name, namespace)
    if present is None:
        labels = chance.choice(({}, {"app": "a"}, {"app": "b"}, {"x": "a"}))
        document = pod(name, labels=labels)
        document["spec"]["nodeName"] = chance.choice(("", "n1", "n2"))
        await store.create(PODS, document, namespace)
    elif chance.random() < 0.3:
        await store.delete(PODS, name, namespace, grace_period=0)
        if store.peek(PODS, name, namespace) is not None:
            await store.delete(PODS, name, namespace, grace_period=0)
    else:
        labels = {"app": chance.choice(("a", "b", None)), "n": str(store.version)}
        await store.patch(PODS, name, {"metadata": {"labels": labels}}, namespace, type=MERGE)


@pytest.mark.parametrize("seed", range(5))
def test_selective_watches_end_with_what_a_list_shows(run: Run, seed: int) -> None:
    async def scenario(store: Store) -> None:
        chance = random.Random(seed)
        await store.create(NAMESPACES, {"metadata": {"name": "other"}})
        for _ in range(10):
            await change(store, chance)
        seen = [await listed(store, selector) for selector in SELECTORS]
        watches = [watching(store, selector) for selector in SELECTORS]
        tasks = [asyncio.create_task(follow(watch, each)) for watch, each in zip(watches, seen)]
        for _ in range(120):
            await change(store, chance)
            for _ in range(chance.randrange(3)):
                await asyncio.sleep(0)
        for watch in watches:
            watch.close()
        await asyncio.gather(*tasks)
        for selector, each in zip(SELECTORS, seen):
            assert each == await listed(store, selector), selector

    run(scenario)


def test_a_watch_of_a_data_file_sleeps_through_changes_that_do_not_concern_it(run: Run, backend: str) -> None:
    if backend == "memory":
        return  # there, all watches are woken

    async def scenario(store: Store) -> None:
        watch = watching(store, ("", "", "spec.nodeName=n1"))
        first = asyncio.ensure_future(watch.__anext__())
        await asyncio.sleep(0)
        waiting = watch._waiting
        assert waiting is not None
        for number in range(50):
            await store.create(PODS, pod(f"p{number}"), "default")
            await bind(store, f"p{number}", "n2")
        await asyncio.sleep(0)
        assert watch._waiting is waiting and not waiting.woken.done()
        await store.create(PODS, pod("mine"), "default")
        await bind(store, "mine", "n1")
        event = await first
        assert event.object is not None and event.object.name == "mine"

    # It does not fall behind a history that is shorter than its sleep.
    run(scenario, limits=Limits(most=10, least=1))


@pytest.mark.parametrize("selector", [("", "", ""), ("default", "", ""), ("", "app=test", "")])
def test_writers_and_others_go_on_before_many_watches_do(
    run: Run, backend: str, selector: tuple[str, str, str]
) -> None:
    if backend == "memory":
        return  # there, all watches are woken by the write

    async def scenario(store: Store) -> None:
        watches = [watching(store, selector) for _ in range(300)]
        seen: list[list[str]] = [[] for _ in watches]

        async def collect(watch: Watch, names: list[str]) -> None:
            async for event in watch:
                assert event.object is not None
                names.append(event.object.name)

        tasks = [asyncio.create_task(collect(watch, names)) for watch, names in zip(watches, seen)]
        await asyncio.sleep(0)
        await store.create(PODS, pod("a", labels={"app": "test"}), "default")
        assert not any(seen), "the writer waited for watches"
        progress = []
        while not all(seen):
            progress.append(sum(map(bool, seen)))
            await asyncio.sleep(0)
        assert len(set(progress)) > 2, "others waited for all watches"
        await asyncio.gather(*(store.create(PODS, pod(name, labels={"app": "test"}), "default") for name in "bcd"))
        for watch in watches:
            watch.close()
        await asyncio.gather(*tasks)
        assert seen == [["a", "b", "c", "d"]] * len(watches)

    run(scenario)


def test_a_cancelled_wait_loses_no_event(run: Run) -> None:
    async def scenario(store: Store) -> None:
        watch = watching(store, ("", "app=a", ""))
        await store.create(PODS, pod("p0"), "default")
        for number in range(1, 4):
            waiting = asyncio.ensure_future(watch.__anext__())
            await asyncio.sleep(0)
            await store.create(PODS, pod(f"p{number}", labels={"app": "a"}), "default")
            if not waiting.done():
                waiting.cancel()
            found = (await asyncio.gather(waiting, return_exceptions=True))[0]
            if isinstance(found, asyncio.CancelledError):
                found = await watch.__anext__()
            assert found.object is not None and found.object.name == f"p{number}"  # type: ignore[union-attr]

    run(scenario)


def test_closing_the_store_ends_a_selective_watch(run: Run) -> None:
    async def scenario(store: Store) -> None:
        watch = watching(store, ("", "", "spec.nodeName=n1"))
        waiting = asyncio.ensure_future(watch.batch())
        await asyncio.sleep(0)
        await store.close()
        assert await waiting == []

    run(scenario)


def test_a_watch_takes_the_changes_that_concern_it_out_of_many(run: Run) -> None:
    """They become visible together, and more of them while the watch is read."""

    async def scenario(store: Store) -> None:
        watch = watching(store, ("", "", "spec.nodeName=n1"))
        seen: list[str] = []
        reading = asyncio.ensure_future(watch.batch(2))
        for first in (0, 20):
            names = [f"p{number}" for number in range(first, first + 20)]
            await asyncio.gather(*(store.create(PODS, pod(name), "default") for name in names))
            await asyncio.gather(*(bind(store, name, f"n{number % 4}") for number, name in enumerate(names)))
            while len(seen) < (first + 20) // 4:
                events = await reading
                seen += [event.object.name for event in events if event.object is not None]
                reading = asyncio.ensure_future(watch.batch(2))
        assert seen == [f"p{number}" for number in range(40) if number % 4 == 1]
        watch.close()
        assert await reading == []

    run(scenario)
