"""Informers: what handlers see when watches close, expire or fail."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.client.scripted import ScriptedClient, pod
from tests.client.virtual import run_virtual

from wharfinger.api.errors import ApiError, Expired, Forbidden, NotFound, ServiceUnavailable, TooManyRequests
from wharfinger.api.kinds.builtin import NODES, PODS
from wharfinger.api.requests import ApiRequest
from wharfinger.api.views import Node, Pod, view
from wharfinger.client.informer import Informer, InformerSet

Told = list[tuple[str, ...]]


def record(informer: Informer[Pod]) -> Told:
    told: Told = []
    informer.add_handler(
        on_add=lambda new: told.append(("add", new.metadata.name)),
        on_update=lambda old, new: told.append(("update", new.metadata.name, old.spec.node_name, new.spec.node_name)),
        on_delete=lambda old: told.append(("delete", old.metadata.name, old.spec.node_name)),
    )
    return told


def with_informer(
    body: Callable[[ScriptedClient, Informer[Pod], Told], Awaitable[None]], *initial: dict[str, Any]
) -> None:
    async def main() -> None:
        client = ScriptedClient()
        for document in initial:
            client.put(document)
        informer: Informer[Pod] = Informer(client, PODS, Pod, rng=random.Random(1))
        told = record(informer)
        informer.start()
        try:
            await body(client, informer, told)
        finally:
            await informer.stop()

    run_virtual(main())


def test_handlers_are_called_in_order() -> None:
    async def body(client: ScriptedClient, informer: Informer[Pod], told: Told) -> None:
        await informer.wait_synced()
        client.put(pod("b"))
        client.put(pod("a", node="n1"))
        client.remove("a")
        await asyncio.sleep(1)
        assert told == [("add", "a"), ("add", "b"), ("update", "a", "", "n1"), ("delete", "a", "n1")]
        assert list(informer.items) == [("default", "b")]
        assert informer.get("b", "default") is not None and len(informer) == 1

    with_informer(body, pod("a"))


def test_a_closed_watch_is_resumed_from_the_last_version_without_a_list() -> None:
    async def body(client: ScriptedClient, informer: Informer[Pod], told: Told) -> None:
        await asyncio.sleep(5)
        client.put(pod("b"))
        await asyncio.sleep(5)
        client.close_watches()
        client.put(pod("c"))
        await asyncio.sleep(5)
        assert told == [("add", "a"), ("add", "b"), ("add", "c")]
        assert len(client.lists) == 1
        assert [version for _, version in client.watches] == ["2", "3"]

    with_informer(body, pod("a"))


def test_a_relist_after_expiry_reports_missed_deletions_with_their_last_state() -> None:
    async def body(client: ScriptedClient, informer: Informer[Pod], told: Told) -> None:
        await informer.wait_synced()
        await asyncio.sleep(5)
        told.clear()
        client.remove("gone")
        client.put(pod("changed", node="n9"))
        client.put(pod("new"))
        client.remove("replaced")
        client.put(pod("replaced", uid="second", node="n3"))
        client.compact()
        # The watch ends without any event, as if the connection had hung.
        await asyncio.sleep(5)
        assert told == [
            ("delete", "gone", "n1"),
            ("delete", "replaced", "n2"),
            ("update", "changed", "", "n9"),
            ("add", "new"),
            ("add", "replaced"),
        ]
        assert informer.lists == 2

    with_informer(body, pod("gone", node="n1"), pod("changed"), pod("same"), pod("replaced", node="n2"))


def test_repeated_expiry_backs_off() -> None:
    async def body(client: ScriptedClient, informer: Informer[Pod], told: Told) -> None:
        client.fail_watch = [Expired("too old resource version") for _ in range(1000)]
        await asyncio.sleep(600)
        assert 15 < len(client.lists) < 60
        gaps = [after - before for before, after in zip(client.lists, client.lists[1:], strict=False)]
        assert gaps[0] == 0, "the first expiry is listed for at once"
        assert all(gap <= 60 for gap in gaps) and min(gaps[6:]) >= 30
        assert told == [("add", "a")], "an unchanged object is told once"

    with_informer(body, pod("a"))


def test_an_expired_version_after_an_outage_is_relisted_at_once() -> None:
    async def body(client: ScriptedClient, informer: Informer[Pod], told: Told) -> None:
        away = [ServiceUnavailable("away") for _ in range(5)]
        client.fail_watch = [*away, Expired("too old resource version")]
        await asyncio.sleep(600)
        first, again = client.lists
        last_try = client.watches[len(away)][0]
        assert again == last_try > first

    with_informer(body, pod("a"))


def test_watches_that_close_immediately_back_off() -> None:
    async def body(client: ScriptedClient, informer: Informer[Pod], told: Told) -> None:
        async def nothing(*_: Any) -> Any:
            client.watches.append((0.0, ""))
            return
            yield

        client.stream = nothing  # type: ignore[method-assign]
        await asyncio.sleep(300)
        assert 5 < len(client.watches) < 40 and len(client.lists) == 1

    with_informer(body, pod("a"))


@pytest.mark.parametrize(
    ("error", "lists"),
    [(ServiceUnavailable("down"), 1), (TooManyRequests("slow down"), 1), (ApiError("broken"), 2)],
    ids=["unreachable keeps the version", "throttled keeps the version", "anything else lists anew"],
)
def test_a_failed_watch(error: ApiError, lists: int) -> None:
    async def body(client: ScriptedClient, informer: Informer[Pod], told: Told) -> None:
        client.fail_watch = [error]
        await asyncio.sleep(1)
        assert informer.last_error is error
        client.put(pod("b"))
        await asyncio.sleep(30)
        assert told == [("add", "a"), ("add", "b")]
        assert len(client.lists) == lists and informer.last_error is None

    with_informer(body, pod("a"))


def test_it_is_not_synced_before_a_list_succeeds() -> None:
    async def body(client: ScriptedClient, informer: Informer[Pod], told: Told) -> None:
        client.fail_list = [Forbidden("no"), ServiceUnavailable("down")]
        await asyncio.sleep(0.1)
        assert not informer.synced and told == []
        await informer.wait_synced()
        assert told == [("add", "a")]

    with_informer(body, pod("a"))


def test_indexes_follow_changes() -> None:
    async def body(client: ScriptedClient, informer: Informer[Pod], told: Told) -> None:
        by_node = informer.index("node", lambda item: [item.spec.node_name] if item.spec.node_name else [])
        names = lambda node: [item.metadata.name for item in by_node.get(node)]  # noqa: E731  # short for this test
        await informer.wait_synced()
        assert names("n1") == ["a", "b"] and by_node.keys() == ["n1"]
        client.put(pod("a", node="n2"))
        client.remove("b")
        await asyncio.sleep(1)
        assert names("n1") == [] and names("n2") == ["a"] and by_node.keys() == ["n2"]
        assert informer.index("node", lambda item: []) is by_node

    with_informer(body, pod("a", node="n1"), pod("b", node="n1"), pod("c"))


def test_an_index_is_made_when_it_is_first_used() -> None:
    async def body(client: ScriptedClient, informer: Informer[Pod], told: Told) -> None:
        asked: list[str] = []

        def keys_of(item: Pod) -> list[str]:
            asked.append(item.metadata.name)
            return [item.spec.node_name]

        by_node = informer.index("node", keys_of)
        await informer.wait_synced()
        client.put(pod("b", node="n1"))
        client.put(pod("a", node="n2"))
        await asyncio.sleep(1)
        assert not asked
        assert [item.metadata.name for item in by_node.get("n1")] == ["b"]
        client.remove("b")
        client.put(pod("a", node="n1"))
        await asyncio.sleep(1)
        assert [item.metadata.name for item in by_node.get("n1")] == ["a"] and by_node.keys() == ["n1"]

    with_informer(body, pod("a", node="n1"))


def test_a_handler_may_be_called_only_while_there_are_objects_of_another_kind() -> None:
    async def body(client: ScriptedClient, informer: Informer[Pod], told: Told) -> None:
        await informer.wait_synced()
        others: Informer[Node] = Informer(client, NODES, Node)
        seen: list[tuple[str, str]] = []
        informer.add_handler(
            lambda new: seen.append(("add", new.metadata.name)),
            lambda old, new: seen.append(("update", new.metadata.name)),
            lambda old: seen.append(("delete", old.metadata.name)),
            while_any=others,
        )
        client.put(pod("b"))
        await asyncio.sleep(1)
        assert not seen, "there is no node"
        for name in ("n1", "n2"):
            others._replace([*others, view({"metadata": {"name": name}}, Node)])
        client.put(pod("b", node="n1"))
        client.put(pod("c"))
        client.remove("a")
        await asyncio.sleep(1)
        assert seen == [("update", "b"), ("add", "c"), ("delete", "a")]
        others._replace([])
        client.put(pod("c", node="n1"))
        await asyncio.sleep(1)
        assert len(seen) == 3
        assert ("update", "c", "", "n1") in told, "other handlers are always called"

    with_informer(body, pod("a"))


def test_a_late_handler_gets_known_objects_and_a_removed_one_nothing() -> None:
    async def body(client: ScriptedClient, informer: Informer[Pod], told: Told) -> None:
        await informer.wait_synced()
        late: list[str] = []
        remove = informer.add_handler(on_add=lambda new: late.append(new.metadata.name))
        assert late == ["a"]
        remove()
        client.put(pod("b"))
        await asyncio.sleep(1)
        assert late == ["a"]

    with_informer(body, pod("a"))


def test_a_failing_handler_does_not_affect_others(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        client = ScriptedClient()
        informer: Informer[Pod] = Informer(client, PODS, Pod)
        informer.add_handler(on_add=lambda new: 1 / 0)
        told = record(informer)
        informer.start()
        client.put(pod("a"))
        await asyncio.sleep(1)
        assert told == [("add", "a")]
        await informer.stop()

    run_virtual(main())
    assert "ZeroDivisionError" in caplog.text


def test_an_informer_may_keep_whole_documents() -> None:
    async def main() -> None:
        client = ScriptedClient()
        client.put(pod("a", labels={"x": "y"}))
        informer = Informer(client, PODS, dict)
        informer.start()
        await informer.wait_synced()
        assert informer.items[("default", "a")]["metadata"]["labels"] == {"x": "y"}
        await informer.stop()

    run_virtual(main())


def test_a_set_shares_informers_of_the_same_collection_view_and_selectors() -> None:
    async def main() -> None:
        client = ScriptedClient()
        informers = InformerSet(client)
        pods = informers.of(PODS, Pod)
        assert informers.of(PODS, Pod) is pods
        assert informers.of(PODS, Pod, label_selector="a=b") is not pods
        informers.start()
        await informers.wait_synced()
        nodes = informers.of(NODES, Node)  # added after the start, so started at once
        await nodes.wait_synced()
        assert informers.synced
        await informers.stop()
        assert len(client.lists) == 3

    run_virtual(main())


def test_a_kind_that_is_not_served_may_count_as_empty() -> None:
    async def body(client: ScriptedClient, informer: Informer[Pod], told: Told) -> None:
        informer.optional = True
        client.fail_list = [NotFound("no such resource")] * 3
        await informer.wait_synced()
        assert told == []
        await asyncio.sleep(120)
        assert told == [("add", "a")], "found once it is served"
        client.fail_watch, client.fail_list = [Expired("too old")], [NotFound("no such resource")]
        client.close_watches()
        await asyncio.sleep(120)
        assert told == [("add", "a"), ("delete", "a", ""), ("add", "a")]

    with_informer(body, pod("a"))


def test_a_list_in_progress_does_not_satisfy_a_relist() -> None:
    class Slow(ScriptedClient):
        async def send(self, request: ApiRequest[Any]) -> Any:
            page = await super().send(request)
            await asyncio.sleep(3)
            return page

    async def main() -> None:
        client = Slow()
        client.put(pod("a"))
        informers = InformerSet(client)
        informer = informers.of(PODS, Pod)
        turn = asyncio.Event()
        waiting = asyncio.create_task(informers.start_for(turn.wait))
        await asyncio.sleep(2)
        client.put(pod("b"))  # after the list started
        turn.set()
        await waiting
        await asyncio.sleep(2)
        assert [each.metadata.name for each in informer] == ["a"] and not informers.synced
        await asyncio.sleep(3)
        assert len(informer) == 2 and informers.synced and informer.lists == 2
        await informers.stop()

    run_virtual(main())


def test_a_lease_acquired_immediately_needs_no_relist() -> None:
    async def main() -> None:
        client = ScriptedClient()
        informers = InformerSet(client)
        informer = informers.of(PODS, Pod)

        async def turn() -> None:
            await asyncio.sleep(0.1)

        await informers.start_for(turn)
        await asyncio.sleep(5)
        assert informers.synced and informer.lists == len(client.lists) == 1
        await informers.stop()

    run_virtual(main())
