"""The in-process client: the whole interface, as any user, with views shared by all watchers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.store.support import WIDGETS, config, pod, widget

from wharfinger.admission.request import PASS, Request, Review, User
from wharfinger.api.errors import BadRequest, Expired, NotFound
from wharfinger.api.kinds.builtin import CONFIG_MAPS, PODS
from wharfinger.api.registry import Kind, Registry
from wharfinger.api.requests import PatchType
from wharfinger.api.views import Pod
from wharfinger.client.interface import Client, EventType, WatchEvent
from wharfinger.client.local import LocalClient
from wharfinger.store import Chain, Limits, Store

Run = Callable[..., Any]


def test_the_life_of_a_pod(run: Run) -> None:
    async def scenario(store: Store) -> list[tuple[str, str, str]]:
        client: Client = LocalClient(store)
        seen: list[tuple[str, str, str]] = []
        start = str(store.version)

        async def watch() -> None:
            async for event in client.watch(PODS, view=Pod, resource_version=start, label_selector="app=web"):
                assert event.object is not None
                assert event.resource_version == event.object.metadata.resource_version
                seen.append((event.type.value, event.object.spec.node_name, event.object.metadata.deletion_timestamp))
                if event.type is EventType.DELETED:
                    return

        watching = asyncio.create_task(watch())
        await client.create(PODS, pod(labels={"app": "web"}), "default")
        binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
        await client.create(PODS, binding, "default", name="p", subresource="binding")
        await client.patch(
            PODS, "p", {"status": {"phase": "Running"}}, "default", type=PatchType.STRATEGIC, subresource="status"
        )
        assert (await client.get(PODS, "p", "default", view=Pod)).status.phase == "Running"
        assert (await client.get(PODS, "p", "default"))["status"]["phase"] == "Running"
        await client.delete(PODS, "p", "default", grace_period=10)
        await client.delete(PODS, "p", "default", grace_period=0)
        await watching
        with pytest.raises(NotFound):
            await client.get(PODS, "p", "default")
        return seen

    assert run(scenario) == [
        ("ADDED", "", ""),
        ("MODIFIED", "n", ""),
        ("MODIFIED", "n", ""),
        ("MODIFIED", "n", "2027-01-15T08:00:10Z"),
        ("MODIFIED", "n", "2027-01-15T08:00:00Z"),
        ("DELETED", "n", "2027-01-15T08:00:00Z"),
    ]


def test_lists_in_pages_and_by_selectors(run: Run) -> None:
    async def scenario(store: Store) -> None:
        client = LocalClient(store)
        for name in ("a", "b", "c"):
            await client.create(PODS, pod(name, labels={"first": str(name == "a")}), "default")
        page = await client.list(PODS, "default", view=Pod, limit=2)
        assert [item.metadata.name for item in page.items] == ["a", "b"]
        rest = await client.list(PODS, "default", view=Pod, limit=2, continue_token=page.continue_token)
        assert [item.metadata.name for item in rest.items] == ["c"]
        assert rest.resource_version == page.resource_version
        named = await client.list(PODS, field_selector="metadata.name=b")
        assert [item["metadata"]["name"] for item in named.items] == ["b"]
        await client.delete_collection(PODS, "default", label_selector="first=True")
        assert len((await client.list(PODS)).items) == 2
        with pytest.raises(BadRequest, match="unable to parse requirement"):
            await client.list(PODS, label_selector="a in")

    run(scenario)


def test_all_watchers_share_one_view_of_an_event(run: Run) -> None:
    async def scenario(store: Store) -> None:
        client = LocalClient(store)
        version = str(store.version)
        await client.create(PODS, pod(), "default")
        objects = []
        for _ in range(3):
            async for event in client.watch(PODS, view=Pod, resource_version=version):
                objects.append(event.object)
                break
        assert objects[0] is objects[1] is objects[2]

    run(scenario)


def test_a_watch_that_times_out_ends_with_a_bookmark(run: Run) -> None:
    async def scenario(store: Store) -> None:
        client = LocalClient(store)
        start = str(store.version)
        await client.create(CONFIG_MAPS, config("other"), "default")
        events: list[WatchEvent[Pod]] = []
        async for event in client.watch(PODS, view=Pod, resource_version=start, timeout=0.01):
            events.append(event)
        assert [event.type for event in events] == [EventType.BOOKMARK]
        assert events[0].resource_version == str(store.version)

    run(scenario)


def test_a_version_before_the_history_is_expired(run: Run) -> None:
    async def scenario(store: Store) -> None:
        client = LocalClient(store)
        start = str(store.version)
        for number in range(20):
            await client.create(PODS, pod(f"p{number}"), "default")
        with pytest.raises(Expired):
            async for _ in client.watch(PODS, view=Pod, resource_version=start):
                pass
        with pytest.raises(BadRequest, match="invalid resource version"):
            async for _ in client.watch(PODS, view=Pod, resource_version="soon"):
                pass

    run(scenario, limits=Limits(most=5, least=1))


def test_another_user_is_another_client_of_the_same_store(run: Run) -> None:
    users = []

    class Note:
        def review(self, request: Request) -> Review:
            users.append(request.user.name)
            return PASS

    async def scenario(store: Store) -> None:
        client = LocalClient(store)
        await client.as_user(User("jane")).create(CONFIG_MAPS, config(), "default")
        await client.create(CONFIG_MAPS, config("d"), "default")

    run(scenario, chain=Chain(validating=[Note()]))
    assert users[1:] == ["jane", "system:admin"]


def test_scale_is_read_and_written(run: Run) -> None:
    async def scenario(store: Store) -> None:
        client = LocalClient(store)
        await client.create(WIDGETS, widget(spec={"replicas": 1}), "default")
        scale = await client.get(WIDGETS, "w", "default", subresource="scale")
        scale["spec"]["replicas"] = 4
        await client.update(WIDGETS, scale, "default", subresource="scale")
        assert (await client.get(WIDGETS, "w", "default"))["spec"]["replicas"] == 4
        dry = await client.update(
            WIDGETS, await client.get(WIDGETS, "w", "default", subresource="scale"), "default", subresource="scale"
        )
        assert dry["spec"] == {"replicas": 4}

    run(scenario)


def test_in_memory_no_call_suspends() -> None:
    """A write completes without yielding to the event loop, so that no simulated time passes."""
    store = Store(Registry.of([Kind("", "ConfigMap", "configmaps")]))
    writing = LocalClient(store).create(CONFIG_MAPS, config(), "default")
    with pytest.raises(StopIteration):
        writing.send(None)
