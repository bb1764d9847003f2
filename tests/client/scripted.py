"""Fake clients whose behaviour the test controls."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Callable
from typing import Any

from wharfinger.api.errors import Expired, already_exists, conflict, not_found
from wharfinger.api.requests import ApiRequest
from wharfinger.api.views import view as as_view
from wharfinger.client.interface import Client, EventType, ListPage, WatchEvent


def pod(name: str, *, uid: str = "", labels: dict[str, str] | None = None, node: str = "") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": uid or f"uid-{name}", "labels": labels or {}},
        "spec": {"nodeName": node},
    }


class ScriptedClient(Client):
    """Lists and watches one collection. The errors in `fail_list` and `fail_watch` are raised first, in order."""

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
        """Drops the history and ends the watches in progress."""
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

    async def send(self, request: ApiRequest[Any]) -> Any:
        assert request.verb == "list"
        self.lists.append(asyncio.get_running_loop().time())
        if self.fail_list:
            raise self.fail_list.pop(0)
        return ListPage([as_view(item, request.view) for item in self.objects.values()], str(self.version))

    async def stream(self, request: ApiRequest[Any]) -> AsyncIterator[WatchEvent[Any]]:
        view, resource_version = request.view, request.resource_version
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

    async def close(self) -> None:
        pass


class MemoryClient(Client):
    """Objects in memory with optimistic locking; `fail` may return an error for each call."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.calls: list[tuple[str, str, str]] = []
        self.fail: Callable[[str, str], Exception | None] = lambda verb, name: None
        self.delay = 0.0
        self._version = 0

    async def _enter(self, verb: str, resource: Any, name: str) -> None:
        self.calls.append((verb, resource.plural, name))
        await asyncio.sleep(self.delay)
        error = self.fail(verb, name)
        if error is not None:
            raise error

    def _stamp(self, document: dict[str, Any]) -> dict[str, Any]:
        self._version += 1
        stamped = copy.deepcopy(document)
        stamped["metadata"]["resourceVersion"] = str(self._version)
        return stamped

    async def send(self, request: ApiRequest[Any]) -> Any:
        resource, body = request.resource, request.body
        name = request.name or body["metadata"]["name"]
        await self._enter(request.verb, resource, name)
        key = (resource.plural, request.namespace, name)
        present = self.objects.get(key)
        if request.verb == "create":
            if present is not None:
                raise already_exists(resource.group, resource.plural, name)
        elif present is None:
            raise not_found(resource.group, resource.plural, name)
        elif request.verb == "get":
            return copy.deepcopy(present)
        elif request.verb == "update":
            if present["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
                raise conflict(resource.group, resource.plural, name)
        else:
            assert request.verb == "patch"
            body = {**present, **body}
        self.objects[key] = self._stamp(body)
        return copy.deepcopy(self.objects[key])

    def stream(self, request: ApiRequest[Any]) -> AsyncIterator[WatchEvent[Any]]:
        raise NotImplementedError

    async def close(self) -> None:
        pass
