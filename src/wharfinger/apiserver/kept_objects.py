"""A task that follows some kinds in the store, and keeps objects that the server itself owns as they should be."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence

from wharfinger.api.conditions import set_condition
from wharfinger.api.errors import AlreadyExists, ApiError, Conflict, NotFound
from wharfinger.api.registry import Document, Resource
from wharfinger.api.times import format_time
from wharfinger.client.tasks import cancel
from wharfinger.store.store import Store

log = logging.getLogger(__name__)

_RETRY = 1.0  # seconds


class KeptObjects(ABC):
    """`start` brings the objects up to date; afterwards every change of a watched kind does."""

    manager: str  # the field manager of its writes
    watched: Sequence[Resource]

    def __init__(self, store: Store) -> None:
        self._store = store
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @abstractmethod
    async def keep(self) -> None:
        """Brings all objects up to date."""

    async def start(self) -> None:
        for resource in self.watched:
            version = (await self._store.list(resource)).version
            self._tasks.append(asyncio.create_task(self._watch(resource, version)))
        await self.keep()
        self._tasks.append(asyncio.create_task(self._follow()))

    def again(self) -> None:
        """Something changed that is not an object of a watched kind."""
        self._changed.set()

    async def stop(self) -> None:
        await cancel(self._tasks)

    async def _watch(self, resource: Resource, version: int) -> None:
        while True:
            try:
                with contextlib.closing(self._store.watch(resource, after=version)) as watch:
                    async for event in watch:
                        version = event.version
                        self._changed.set()
                return
            except ApiError:  # the watch fell behind
                version = self._store.version
                self._changed.set()

    async def _follow(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self.keep()
            except ApiError as error:
                log.warning("%s: retrying: %s", self.manager, error)
                await asyncio.sleep(_RETRY)
                self._changed.set()

    # A write that loses a race is no failure: the other write is an event.

    async def create(self, resource: Resource, document: Document) -> None:
        with contextlib.suppress(AlreadyExists):
            await self._store.create(resource, document, field_manager=self.manager)

    async def update(self, resource: Resource, document: Document, subresource: str = "") -> None:
        name = document["metadata"]["name"]
        with contextlib.suppress(Conflict, NotFound):
            await self._store.update(resource, document, name=name, subresource=subresource, field_manager=self.manager)

    async def condition(self, resource: Resource, document: Document, kind: str, *texts: str) -> None:
        """Writes a condition with this status, reason and message, unless it is there already."""
        status: Document = document.get("status") or {}
        known: Document = next((one for one in status.get("conditions") or () if one.get("type") == kind), {})
        wanted = dict(zip(("status", "reason", "message"), texts))
        if all(known.get(name) == text for name, text in wanted.items()):
            return
        condition = {"type": kind, **wanted, "lastTransitionTime": format_time(self._store.now())}
        conditions = set_condition(status.get("conditions") or [], condition)
        await self.update(resource, {**document, "status": {**status, "conditions": conditions}}, "status")
