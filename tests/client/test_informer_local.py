"""Informers with the in-process client on the virtual loop: deterministic, and idle at the end."""

from __future__ import annotations

import asyncio
from typing import Any

from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import CONFIG_MAPS, NAMESPACES
from wharfinger.api.views.meta import Metadata
from wharfinger.client.controller import Controller, run_controllers
from wharfinger.client.informer import Informer, InformerSet
from wharfinger.client.interface import Client
from wharfinger.client.local import LocalClient
from wharfinger.simulate.loop import VirtualLoop
from wharfinger.store import Store


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


class Counting(Controller[tuple[str, str]]):
    """Writes the length of its name into each config map, which causes further events."""

    name = "counting"
    workers = 2

    def __init__(self, client: Client, informers: InformerSet) -> None:
        super().__init__()
        self.client = client
        self.story: list[str] = []
        self.maps = informers.of(CONFIG_MAPS, Metadata)
        self.maps.add_handler(
            on_add=lambda new: self._see("+", new),
            on_update=lambda old, new: self._see("~", new),
            on_delete=lambda old: self._see("-", old),
        )

    def _see(self, what: str, item: Metadata) -> None:
        self.story.append(f"{what}{item.metadata.name}@{asyncio.get_running_loop().time():g}")
        self.queue.add(item.metadata.key)

    async def reconcile(self, key: tuple[str, str]) -> None:
        found = self.maps.items.get(key)
        if found is not None and "length" not in found.metadata.labels:
            change = {"metadata": {"labels": {"length": str(len(key[1]))}}}
            await self.client.patch(CONFIG_MAPS, key[1], change, key[0])
            self.queue.add_after(key, 3600, background=True)


def tell() -> tuple[list[str], dict[str, str], float]:
    """One run: what the controller saw and wrote, and when the simulation became idle."""
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    try:
        store = Store(registry())
        client = LocalClient(store)
        informers = InformerSet(client)
        controller = Counting(client, informers)

        async def world() -> None:
            await client.create(NAMESPACES, {"metadata": {"name": "ns"}})
            for number in range(3):
                await client.create(CONFIG_MAPS, config_map(f"map-{number}"), "ns")
            task = loop.create_task(run_controllers([controller], informers))
            await asyncio.sleep(10)
            await client.create(CONFIG_MAPS, config_map("late"), "ns")
            await client.delete(CONFIG_MAPS, "map-1", "ns")
            controllers.append(task)

        controllers: list[asyncio.Task[None]] = []
        loop.complete(world())
        loop.run_until_idle()
        ours = [item for item in controller.maps if item.metadata.namespace == "ns"]
        return controller.story, {item.metadata.name: item.metadata.labels["length"] for item in ours}, loop.time()
    finally:
        loop.shut_down()
        asyncio.set_event_loop(None)


def test_controllers_settle_and_the_simulation_becomes_idle() -> None:
    story, written, idle_at = tell()
    assert written == {"map-0": "5", "map-2": "5", "late": "4"}
    assert idle_at == 10, "no timer of an informer, and no wait in the background, keeps a simulation busy"
    assert [line for line in story if "map-1" in line] == ["+map-1@0", "~map-1@0", "-map-1@10"]


def test_two_runs_are_the_same() -> None:
    assert tell()[0] == tell()[0]


def test_a_month_without_changes_is_cheap() -> None:
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    try:
        informer: Informer[Metadata] = Informer(LocalClient(Store(registry())), NAMESPACES, Metadata)

        async def start() -> None:
            informer.start()
            await informer.wait_synced()

        loop.complete(start())
        turns = 0
        original = informer._watch

        async def counted() -> None:
            nonlocal turns
            turns += 1
            await original()

        informer._watch = counted
        loop.run_to(30 * 86400.0)
        assert turns == 0, "a quiet watch in process stays open"
    finally:
        loop.shut_down()
        asyncio.set_event_loop(None)
