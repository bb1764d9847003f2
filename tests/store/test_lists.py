"""Lists: order, selectors, consistent pages, and resource versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.store.support import MERGE, bind, config, pod

from wharfinger.api.errors import ApiError, BadRequest, Expired, ServerTimeout
from wharfinger.api.kinds.builtin import CONFIG_MAPS, NAMESPACES, NODES, PODS
from wharfinger.api.selectors import parse_field_selector, parse_label_selector
from wharfinger.store import Limits, Store

Run = Callable[..., Any]


async def fill(store: Store, *names: str, namespace: str = "default") -> None:
    for name in names:
        await store.create(CONFIG_MAPS, config(name), namespace)


async def names(store: Store, **asked: Any) -> list[str]:
    return [stored.name for stored in (await store.list(CONFIG_MAPS, **asked)).items]


def test_lists_are_in_key_order_over_namespaces(run: Run) -> None:
    async def scenario(store: Store) -> list[tuple[str, str]]:
        for namespace in ("b", "a", "a-b"):
            await store.create(NAMESPACES, {"metadata": {"name": namespace}})
            await fill(store, "y", "x", namespace=namespace)
        return [(stored.namespace, stored.name) for stored in (await store.list(CONFIG_MAPS)).items]

    # etcd orders whole keys: `a-b/x` comes before `a/x`.
    order = [("a-b", "x"), ("a-b", "y"), ("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")]
    assert run(scenario) == order


def test_namespaces_with_a_common_prefix_are_separate(run: Run) -> None:
    async def scenario(store: Store) -> list[str]:
        for namespace in ("team", "team2", "team-a"):
            await store.create(NAMESPACES, {"metadata": {"name": namespace}})
            await fill(store, f"of-{namespace}", namespace=namespace)
        return await names(store, namespace="team")

    assert run(scenario) == ["of-team"]


def test_the_order_survives_many_additions_and_removals(run: Run) -> None:
    async def scenario(store: Store) -> None:
        expected = set()
        for number in range(300):
            name = f"c{number * 7919 % 300:03}"
            await fill(store, name)
            expected.add(name)
            if number % 3 == 0:
                await store.delete(CONFIG_MAPS, name, "default")
                expected.discard(name)
            if number % 5 == 0 and name not in expected:
                await fill(store, name)
                expected.add(name)
            if number % 17 == 0:
                assert await names(store) == sorted(expected)
        assert await names(store) == sorted(expected)

    run(scenario)


SELECTED: list[tuple[str, str, list[str]]] = [
    ("", "", ["a", "b", "c"]),
    ("app=web", "", ["a", "b"]),
    ("app!=web", "", ["c"]),
    ("app in (web,db),tier", "", ["a"]),
    ("", "metadata.name=b", ["b"]),
    ("", "metadata.name!=b", ["a", "c"]),
    ("", "metadata.namespace=other", []),
    ("", "spec.nodeName=n1", ["a"]),
    ("", "spec.nodeName=", ["b", "c"]),
    ("", "spec.nodeName!=n1,spec.hostNetwork=false", ["b", "c"]),
    ("app=web", "spec.nodeName=n1", ["a"]),
]


@pytest.mark.parametrize(("labels", "fields", "expected"), SELECTED)
def test_selection(run: Run, labels: str, fields: str, expected: list[str]) -> None:
    async def scenario(store: Store) -> list[str]:
        await store.create(PODS, pod("a", labels={"app": "web", "tier": "front"}), "default")
        await store.create(PODS, pod("b", labels={"app": "web"}), "default")
        await store.create(PODS, pod("c"), "default")
        await bind(store, "a")
        listing = await store.list(
            PODS, "default", labels=parse_label_selector(labels), fields=parse_field_selector(fields)
        )
        return [stored.name for stored in listing.items]

    assert run(scenario) == expected


def test_absent_booleans_of_nodes_are_false(run: Run) -> None:
    async def scenario(store: Store) -> list[str]:
        await store.create(NODES, {"metadata": {"name": "n1"}})
        await store.create(NODES, {"metadata": {"name": "n2"}, "spec": {"unschedulable": True}})
        listing = await store.list(NODES, fields=parse_field_selector("spec.unschedulable=false"))
        return [stored.name for stored in listing.items]

    assert run(scenario) == ["n1"]


def test_unsupported_field_selectors(run: Run) -> None:
    async def scenario(store: Store) -> None:
        with pytest.raises(BadRequest, match=r"field label not supported: spec.x"):
            await store.list(PODS, fields=parse_field_selector("spec.x=1"))
        with pytest.raises(BadRequest, match=r'"data.a" is not a known field selector: only "metadata.name"'):
            await store.list(CONFIG_MAPS, fields=parse_field_selector("data.a=1"))

    run(scenario)


def test_pages_show_the_version_of_the_first(run: Run) -> None:
    async def scenario(store: Store) -> None:
        await fill(store, "a", "b", "c", "d", "e")
        first = await store.list(CONFIG_MAPS, "default", limit=2)
        assert [stored.name for stored in first.items] == ["a", "b"]
        assert first.remaining == 3
        await store.delete(CONFIG_MAPS, "c", "default")
        await fill(store, "bb", "f")
        await store.patch(CONFIG_MAPS, "d", {"data": {"x": "new"}}, "default", type=MERGE)
        second = await store.list(CONFIG_MAPS, "default", limit=2, continue_token=first.continue_token)
        assert [stored.name for stored in second.items] == ["c", "d"]
        assert not second.items[1].document()["data"]
        assert (second.version, second.remaining) == (first.version, 1)
        last = await store.list(CONFIG_MAPS, "default", limit=2, continue_token=second.continue_token)
        assert [stored.name for stored in last.items] == ["e"]
        assert (last.continue_token, last.remaining) == ("", None)
        assert await names(store) == ["a", "b", "bb", "d", "e", "f"]

    run(scenario)


def test_pages_over_namespaces_and_with_selectors(run: Run) -> None:
    async def scenario(store: Store) -> list[str]:
        await store.create(NAMESPACES, {"metadata": {"name": "other"}})
        for namespace in ("default", "other"):
            for number in range(6):
                document = config(f"c{number}", labels={"even": str(number % 2 == 0)})
                await store.create(CONFIG_MAPS, document, namespace)
        found: list[str] = []
        token, pages = "", 0
        while pages == 0 or token:
            page = await store.list(
                CONFIG_MAPS, labels=parse_label_selector("even=True"), limit=2, continue_token=token
            )
            assert page.remaining is None, "what selectors leave over is not counted"
            found += [f"{stored.namespace}/{stored.name}" for stored in page.items]
            token, pages = page.continue_token, pages + 1
        assert pages == 3
        return found

    assert run(scenario) == [f"{namespace}/c{n}" for namespace in ("default", "other") for n in (0, 2, 4)]


def test_an_expired_continue_token_allows_an_inconsistent_list(run: Run) -> None:
    async def scenario(store: Store) -> None:
        await fill(store, "a", "b", "c")
        first = await store.list(CONFIG_MAPS, "default", limit=1)
        for number in range(30):
            await fill(store, f"z{number}")
        with pytest.raises(Expired, match="The provided continue parameter is too old") as caught:
            await store.list(CONFIG_MAPS, "default", limit=1, continue_token=first.continue_token)
        token = caught.value.status()["metadata"]["continue"]
        second = await store.list(CONFIG_MAPS, "default", limit=1, continue_token=token)
        assert [stored.name for stored in second.items] == ["b"]
        assert second.version == store.version

    run(scenario, limits=Limits(most=10, least=1))


def test_all_continue_tokens_of_a_list_expire_after_five_minutes(run: Run) -> None:
    async def scenario(store: Store) -> None:
        start = store.now()
        await fill(store, "a", "b", "c")
        first = await store.list(CONFIG_MAPS, "default", limit=1)
        store.now = lambda: start + 290
        second = await store.list(CONFIG_MAPS, "default", limit=1, continue_token=first.continue_token)
        assert [stored.name for stored in second.items] == ["b"]
        store.now = lambda: start + 310
        with pytest.raises(Expired, match="The provided continue parameter is too old") as caught:
            await store.list(CONFIG_MAPS, "default", limit=1, continue_token=second.continue_token)
        token = caught.value.status()["metadata"]["continue"]
        store.now = lambda: start + 3100
        third = await store.list(CONFIG_MAPS, "default", limit=1, continue_token=token)
        assert [stored.name for stored in third.items] == ["c"]

    run(scenario)


def test_a_list_at_an_exact_version(run: Run) -> None:
    async def scenario(store: Store) -> None:
        await fill(store, "a", "b")
        then = store.version
        await store.delete(CONFIG_MAPS, "a", "default")
        await fill(store, "c")
        assert await names(store, version=str(then), version_match="Exact") == ["a", "b"]
        assert await names(store, version=str(then), version_match="NotOlderThan") == ["b", "c"]
        assert await names(store, version=str(then)) == ["b", "c"]
        assert await names(store, version="0") == ["b", "c"]
        for number in range(30):
            await fill(store, f"z{number}")
        with pytest.raises(Expired, match="The resourceVersion for the provided list is too old"):
            await names(store, version=str(then), version_match="Exact")

    run(scenario, limits=Limits(most=10, least=1))


REFUSED: list[tuple[dict[str, Any], type[ApiError], str]] = [
    ({"version_match": "Exact"}, ApiError, "resourceVersionMatch is forbidden unless resourceVersion is provided"),
    ({"version_match": "Exact", "version": "0"}, ApiError, 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'),
    ({"version_match": "Roughly", "version": "1"}, ApiError, 'resourceVersionMatch: Unsupported value: "Roughly"'),
    ({"version": "x"}, BadRequest, "invalid resource version"),
    ({"version": "999999"}, ServerTimeout, "Too large resource version: 999999, current: "),
    ({"continue_token": "!!"}, BadRequest, "continue key is not valid"),
    ({"continue_token": "e30"}, BadRequest, "server does not recognize this encoded version"),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "kind", "text"), REFUSED)
def test_refusals(run: Run, asked: dict[str, Any], kind: type[ApiError], text: str) -> None:
    async def scenario(store: Store) -> ApiError:
        with pytest.raises(kind) as caught:
            await store.list(CONFIG_MAPS, **asked)
        return caught.value

    assert text in run(scenario).message


def test_scan_and_peek_see_accepted_writes(run: Run) -> None:
    async def scenario(store: Store) -> None:
        await fill(store, "b", "a")
        assert [stored.name for stored in store.scan(CONFIG_MAPS, "default")] == ["a", "b"]
        peeked = store.peek(CONFIG_MAPS, "a", "default")
        assert peeked is not None and peeked.document()["metadata"]["name"] == "a"
        assert store.peek(CONFIG_MAPS, "none", "default") is None

    run(scenario)


def test_objects_that_come_and_go_leave_nothing_behind(run: Run) -> None:
    async def scenario(store: Store) -> None:
        await store.create(CONFIG_MAPS, config("first"), "default")
        listed = await store.list(CONFIG_MAPS)
        assert [one.name for one in listed.items] == ["first"]
        for number in range(50):
            await store.create(CONFIG_MAPS, config(f"c{number}"), "default")
            await store.delete(CONFIG_MAPS, f"c{number}", "default")
        await store.delete(CONFIG_MAPS, "first", "default")
        await store.create(CONFIG_MAPS, config("last"), "default")
        collection = store._ledger.collection("", "configmaps")
        for index in (collection.latest, collection.visible):
            assert len(index._fresh) + len(index._dead) <= 2  # of kinds that nobody lists, too
        assert [one.name for one in (await store.list(CONFIG_MAPS)).items] == ["last"]

    run(scenario)
