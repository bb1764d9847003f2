"""A client for tests that holds one collection of documents and does what the test tells it to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from wharfinger.api.errors import Expired
from wharfinger.api.views import view as as_view
from wharfinger.client.interface import EventType, Page, WatchEvent


def pod(name: str, *, uid: str = "", labels: dict[str, str] | None = None, node: str = "") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": uid or f"uid-{name}", "labels": labels or {}},
        "spec": {"nodeName": node},
    }


class ScriptedClient:
    """Lists and watches one collection. `fail_list` and `fail_watch` are raised, in order, before anything is served."""

    def __init__(self) -> None:
        self.version = 1
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.history: list[tuple[int, EventType, dict[str, Any]]] = []
        self.compacted = 0
        self.fail_list: list[Exception] = []
        self.fail_watch: list[Exception] = []
        self.lists: list[float] = []
        self.watches: list[tuple[float, str]] = []
        self._changed = asyncio.Event()
        self._closing = asyncio.Event()

    def put(self, document: dict[str, Any]) -> None:
        self.version += 1
        key = (document["metadata"].get("namespace", ""), document["metadata"]["name"])
        document["metadata"]["resourceVersion"] = str(self.version)
        type = EventType.MODIFIED if key in self.objects else EventType.ADDED
        self.objects[key] = document
        self._record(type, document)

    def remove(self, name: str, namespace: str = "default") -> None:
        self.version += 1
        document = self.objects.pop((namespace, name))
        self._record(EventType.DELETED, document)

    def compact(self) -> None:
        """Forgets all history and ends the running watches."""
        self.compacted = self.version
        self.history.clear()
        self.close_watches()

    def close_watches(self) -> None:
        self._closing.set()
        self._closing = asyncio.Event()
        self._wake()

    def _record(self, type: EventType, document: dict[str, Any]) -> None:
        self.history.append((self.version, type, document))
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def list(self, resource: Any, namespace: str = "", *, view: Any, limit: int = 0, **_: Any) -> Page[Any]:
        self.lists.append(asyncio.get_running_loop().time())
        if self.fail_list:
            raise self.fail_list.pop(0)
        return Page([as_view(item, view) for item in self.objects.values()], str(self.version))

    async def watch(
        self, resource: Any, namespace: str = "", *, view: Any, resource_version: str, **_: Any
    ) -> AsyncIterator[WatchEvent[Any]]:
        self.watches.append((asyncio.get_running_loop().time(), resource_version))
        if self.fail_watch:
            raise self.fail_watch.pop(0)
        at, closing = int(resource_version), self._closing
        if at < self.compacted:
            raise Expired("too old resource version")
        while not closing.is_set():
            for version, type, document in list(self.history):
                if version > at:
                    at = version
                    yield WatchEvent(type, as_view(document, view), str(version))
            if not closing.is_set() and at >= self.version:
                await self._changed.wait()
