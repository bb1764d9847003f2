"""Watches: resuming, selectors, bookmarks, expiry, and no missed events under load."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from tests.store.support import MERGE, OLD_WIDGETS, WIDGET_KIND, WIDGETS, Clock, bind, config, pod, widget

from wharfinger.api import kinds
from wharfinger.api.errors import Expired, ServerTimeout
from wharfinger.api.fields import FieldError
from wharfinger.api.kinds.builtin import CONFIG_MAPS, NAMESPACES, PODS
from wharfinger.api.registry import Document
from wharfinger.api.selectors import parse_field_selector, parse_label_selector
from wharfinger.store import Limits, Store, StoreEvent, Watch

Run = Callable[..., Any]


async def take(watch: Watch, count: int) -> list[tuple[str, str]]:
    return [shown(await watch.__anext__()) for _ in range(count)]


def shown(event: StoreEvent) -> tuple[str, str]:
    return event.type, event.object.name if event.object is not None else ""


async def quiet(watch: Watch) -> bool:
    """Whether no event becomes ready while other tasks run."""
    waiting = asyncio.ensure_future(watch.__anext__())
    for _ in range(20):
        await asyncio.sleep(0)
    ready = waiting.done()
    waiting.cancel()
    return not ready


def test_every_change_is_seen_in_order_with_its_version(run: Run) -> None:
    async def scenario(store: Store) -> None:
        watch = store.watch(CONFIG_MAPS, "default", after=store.version)
        await store.create(CONFIG_MAPS, config(), "default")
        await store.patch(CONFIG_MAPS, "c", {"data": {"a": "1"}}, "default", type=MERGE)
        await store.delete(CONFIG_MAPS, "c", "default")
        events = [await watch.__anext__() for _ in range(3)]
        assert [event.type for event in events] == ["ADDED", "MODIFIED", "DELETED"]
        versions = [event.version for event in events]
        assert versions == sorted(versions) and versions[-1] == store.version
        for event in events:
            assert event.object is not None
            assert event.object.document()["metadata"]["resourceVersion"] == str(event.version)
        assert events[2].object is not None and events[2].object.document()["data"] == {"a": "1"}
        assert await quiet(watch)

    run(scenario)


def test_a_deletion_event_has_its_own_version(run: Run) -> None:
    async def scenario(store: Store) -> None:
        text = 'before "resourceVersion":"2" after'
        await store.create(CONFIG_MAPS, config(annotations={"a": text}, data={"resourceVersion": "3"}), "default")
        watch = store.watch(CONFIG_MAPS, after=store.version)
        before = (await store.get(CONFIG_MAPS, "c", "default")).document()
        await store.delete(CONFIG_MAPS, "c", "default")
        event = await watch.__anext__()
        assert event.object is not None
        after = event.object.document()
        assert after["metadata"].pop("resourceVersion") == str(event.version)
        before["metadata"].pop("resourceVersion")
        assert after == before

    run(scenario)


def test_a_watch_resumes_after_any_version_it_saw(run: Run) -> None:
    async def scenario(store: Store) -> None:
        start = store.version
        for number in range(5):
            await store.create(CONFIG_MAPS, config(f"c{number}"), "default")
        everything = await take(store.watch(CONFIG_MAPS, after=start), 5)
        for seen in range(5):
            resumed = await take(store.watch(CONFIG_MAPS, after=start + seen), 5 - seen)
            assert resumed == everything[seen:]

    run(scenario)


def test_other_kinds_and_namespaces_are_not_watched(run: Run) -> None:
    async def scenario(store: Store) -> None:
        await store.create(NAMESPACES, {"metadata": {"name": "other"}})
        watch = store.watch(CONFIG_MAPS, "default", after=store.version)
        await store.create(PODS, pod(), "default")
        await store.create(CONFIG_MAPS, config(), "other")
        await store.create(CONFIG_MAPS, config("mine"), "default")
        assert await take(watch, 1) == [("ADDED", "mine")]
        assert await quiet(watch)

    run(scenario)


def test_objects_that_start_or_stop_matching_are_added_and_deleted(run: Run) -> None:
    async def scenario(store: Store) -> None:
        watch = store.watch(CONFIG_MAPS, after=store.version, labels=parse_label_selector("app=web"))
        await store.create(CONFIG_MAPS, config(), "default")
        for label in ("web", "web", "db", "web"):
            patch = {"metadata": {"labels": {"app": label}}, "data": {"n": str(store.version)}}
            await store.patch(CONFIG_MAPS, "c", patch, "default", type=MERGE)
        await store.delete(CONFIG_MAPS, "c", "default")
        events = [await watch.__anext__() for _ in range(5)]
        assert [event.type for event in events] == ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"]
        gone = events[2]
        assert gone.object is not None
        assert gone.object.labels == {"app": "web"}, "the last state that matched"
        assert gone.object.document()["metadata"]["resourceVersion"] == str(gone.version)

    run(scenario)


def test_pods_of_one_node(run: Run) -> None:
    async def scenario(store: Store) -> list[tuple[str, str]]:
        watch = store.watch(PODS, after=store.version, fields=parse_field_selector("spec.nodeName=n1"))
        for name in ("a", "b"):
            await store.create(PODS, pod(name), "default")
        await bind(store, "a", "n1")
        await bind(store, "b", "n2")
        await store.delete(PODS, "a", "default", grace_period=0)
        return await take(watch, 3)

    assert run(scenario) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


@pytest.mark.parametrize("after", [None, 0])
def test_without_a_version_the_current_state_comes_first(run: Run, after: int | None) -> None:
    async def scenario(store: Store) -> list[tuple[str, str]]:
        for name in ("b", "a"):
            await store.create(CONFIG_MAPS, config(name), "default")
        watch = store.watch(CONFIG_MAPS, after=after)
        await store.create(CONFIG_MAPS, config("c"), "default")
        return await take(watch, 3)

    assert run(scenario) == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]


def test_a_watch_list_marks_the_end_of_the_initial_events(run: Run) -> None:
    async def scenario(store: Store) -> None:
        await store.create(CONFIG_MAPS, config("a", labels={"x": "y"}), "default")
        await store.create(CONFIG_MAPS, config("b"), "default")
        then = store.version
        watch = store.watch(CONFIG_MAPS, after=1, initial_events=True, labels=parse_label_selector("x=y"))
        await store.create(CONFIG_MAPS, config("c", labels={"x": "y"}), "default")
        events = [await watch.__anext__() for _ in range(3)]
        assert [shown(event) for event in events] == [("ADDED", "a"), ("BOOKMARK", ""), ("ADDED", "c")]
        assert [event.initial_events_end for event in events] == [False, True, False]
        assert events[1].version == then
        with pytest.raises(ServerTimeout, match="Too large resource version"):
            store.watch(CONFIG_MAPS, after=10_000, initial_events=True)

    run(scenario)


def test_bookmarks_advance_a_quiet_watch(run: Run) -> None:
    async def scenario(store: Store) -> None:
        watch = store.watch(CONFIG_MAPS, after=store.version, bookmarks=True)
        await store.create(PODS, pod(), "default")
        event = await watch.__anext__()
        assert (event.type, event.object, event.version) == ("BOOKMARK", None, store.version)

    run(scenario, bookmark_every=0.01)


def test_a_watch_gets_another_bookmark_when_it_is_quiet_again(run: Run) -> None:
    async def scenario(store: Store) -> None:
        watch = store.watch(CONFIG_MAPS, after=store.version, bookmarks=True)
        for name in ("a", "b", "c"):
            await store.create(CONFIG_MAPS, config(name), "default")
            assert [(await watch.__anext__()).type for _ in range(3)] == ["ADDED", "BOOKMARK", "BOOKMARK"]
        watch.close()
        assert await watch.batch() == []

    run(scenario, bookmark_every=0.01)


def test_a_version_before_the_history_is_expired(run: Run) -> None:
    async def scenario(store: Store) -> None:
        start = store.version
        for number in range(30):
            await store.create(CONFIG_MAPS, config(f"c{number}"), "default")
        with pytest.raises(Expired) as caught:
            store.watch(CONFIG_MAPS, after=start)
        assert caught.value.message.startswith(f"too old resource version: {start} (")
        assert caught.value.code == 410
        assert len(await take(store.watch(CONFIG_MAPS, after=store.version - 5), 5)) == 5
        store.watch(PODS, after=start)  # the history of another kind is not affected

    run(scenario, limits=Limits(most=10, least=1))


def test_old_changes_are_dropped_except_the_last_few(run: Run, clock: Clock) -> None:
    async def scenario(store: Store) -> None:
        start = store.version
        for number in range(20):
            await store.create(CONFIG_MAPS, config(f"a{number}"), "default")
        clock.time += 100
        await store.create(CONFIG_MAPS, config("b"), "default")
        with pytest.raises(Expired):
            store.watch(CONFIG_MAPS, after=start)
        assert len(await take(store.watch(CONFIG_MAPS, after=store.version - 5), 5)) == 5

    run(scenario, limits=Limits(most=1000, least=5, age=60))


def test_a_watcher_that_falls_behind_is_ended(run: Run) -> None:
    async def scenario(store: Store) -> None:
        watch = store.watch(CONFIG_MAPS, after=store.version)
        for number in range(30):
            await store.create(CONFIG_MAPS, config(f"c{number}"), "default")
        with pytest.raises(Expired, match="too old resource version"):
            await watch.__anext__()

    run(scenario, limits=Limits(most=10, least=1))


def test_closing_ends_a_waiting_watch(run: Run) -> None:
    async def scenario(store: Store) -> None:
        watch = store.watch(CONFIG_MAPS, after=store.version)
        other = store.watch(CONFIG_MAPS, after=store.version)
        waiting = asyncio.ensure_future(watch.__anext__())
        await asyncio.sleep(0)
        watch.close()
        with pytest.raises(StopAsyncIteration):
            await waiting
        assert await watch.batch() == []
        assert await quiet(other)

    run(scenario)


def test_closing_the_store_ends_all(make_store: Callable[..., Store]) -> None:
    async def body() -> list[StoreEvent]:
        store = make_store()
        watch = store.watch(CONFIG_MAPS, after=store.version)
        waiting = asyncio.ensure_future(watch.batch())
        await asyncio.sleep(0)
        await store.close()
        return await waiting

    assert asyncio.run(body()) == []


def test_batches_contain_all_ready_events(run: Run) -> None:
    async def scenario(store: Store) -> None:
        watch = store.watch(CONFIG_MAPS, after=store.version)
        for number in range(7):
            await store.create(CONFIG_MAPS, config(f"c{number}"), "default")
        assert len(await watch.batch(5)) == 5
        assert len(await watch.batch(5)) == 2

    run(scenario)


def test_nothing_is_missed_under_load(run: Run) -> None:
    """Watchers that start, stop and resume at any time rebuild exactly the content of the store."""

    async def scenario(store: Store) -> None:
        start, done = store.version, asyncio.Event()

        async def write(worker: int) -> None:
            for step in range(60):
                name = f"c{(worker * 7 + step) % 20}"
                if store.peek(CONFIG_MAPS, name, "default") is None:
                    with_label = config(name, labels={"w": str(worker)})
                    try:
                        await store.create(CONFIG_MAPS, with_label, "default")
                    except Exception as error:
                        assert "already exists" in str(error)
                elif step % 3:
                    try:
                        await store.patch(CONFIG_MAPS, name, {"data": {"s": f"{worker}-{step}"}}, "default", type=MERGE)
                    except Exception as error:
                        assert "not found" in str(error)
                else:
                    try:
                        await store.delete(CONFIG_MAPS, name, "default")
                    except Exception as error:
                        assert "not found" in str(error)
                await asyncio.sleep(0)

        async def follow(patience: int) -> dict[str, bytes]:
            state: dict[str, bytes] = {}
            version = start
            while True:
                watch = store.watch(CONFIG_MAPS, after=version)
                for _ in range(patience):
                    if done.is_set() and version >= store.version:
                        return state
                    waiting = asyncio.ensure_future(watch.batch(3))
                    finished, _ = await asyncio.wait([waiting], timeout=0.05)
                    if not finished:
                        watch.close()
                    for event in await waiting:
                        assert event.version > version
                        version = event.version
                        assert event.object is not None
                        if event.type == "DELETED":
                            del state[event.object.name]
                        else:
                            assert (event.type == "ADDED") is (event.object.name not in state)
                            state[event.object.name] = event.object.data
                watch.close()

        followers = [asyncio.create_task(follow(patience)) for patience in (1, 3, 1000)]
        await asyncio.gather(*(write(worker) for worker in range(6)))
        done.set()
        expected = {stored.name: stored.data for stored in (await store.list(CONFIG_MAPS)).items}
        for state in await asyncio.gather(*followers):
            assert state == expected

    run(scenario)


class AskedConversion:
    """Converts widgets as their kind does, but has to be asked."""

    def __init__(self) -> None:
        self.asked: list[int] = []  # numbers of documents

    def known(self, document: Document, version: str) -> Document | None:
        return None

    async def convert(self, documents: Sequence[Document], version: str, *, listed: bool = False) -> list[Document]:
        self.asked.append(len(documents))
        await asyncio.sleep(0)
        assert WIDGET_KIND.convert is not None
        return [
            {**WIDGET_KIND.convert(document, version), "apiVersion": f"example.com/{version}"} for document in documents
        ]

    def faults(self, document: Document, version: str) -> list[FieldError]:
        return []


@pytest.mark.parametrize("namespace", ["", "default"])
def test_objects_that_somebody_else_converts_are_converted_together(namespace: str) -> None:
    async def body() -> None:
        conversion = AskedConversion()
        known = kinds.registry()
        known.add(msgspec.structs.replace(WIDGET_KIND, convert=None, conversion=conversion))
        store = Store(known)
        await store.create(NAMESPACES, {"metadata": {"name": "default"}})
        watch = store.watch(OLD_WIDGETS, namespace, after=store.version)
        for number in range(5):
            await store.create(WIDGETS, widget(f"w{number}", {"size": number}), "default")
        assert watch.ready(10) == [], "they have to be waited for"
        first, rest = await watch.batch(2), await watch.batch()
        documents = [event.object.document() for event in (*first, *rest) if event.object is not None]
        assert [document["spec"] for document in documents] == [{"length": number} for number in range(5)]
        assert {document["apiVersion"] for document in documents} == {"example.com/v1beta1"}
        assert conversion.asked == [2, 3]
        await store.delete(WIDGETS, "w0", "default")
        event = await watch.__anext__()
        assert event.type == "DELETED" and event.object is not None
        assert event.object.document()["spec"] == {"length": 0}
        await store.close()

    asyncio.run(body())
