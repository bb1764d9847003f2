"""What plugins want done before a pod is bound: their writes, and waiting until these took effect."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable

from wharfinger.api.errors import ApiError, ServerTimeout, ServiceUnavailable, TooManyRequests
from wharfinger.api.registry import Document, Registry, Resource
from wharfinger.client.interface import Client
from wharfinger.client.timers import call_later
from wharfinger.framework.prebinding import Preparation, StepFailed, Steps, Watched, Write

log = logging.getLogger(__name__)

_LONGEST_DELAY = 30.0  # seconds between attempts to read an object


class PreparationFailed(Exception):
    """The pod cannot be bound; the message goes into its condition."""

    def __init__(self, plugin: str, why: object) -> None:
        super().__init__(f'running PreBind plugin "{plugin}": {why}')


class Preparer:
    def __init__(self, client: Client, registry: Registry) -> None:
        self._client = client
        self._registry = registry
        self._waiting: dict[Watched, set[asyncio.Event]] = {}

    async def carry_out(
        self, preparations: Iterable[tuple[str, Preparation]], tell: Callable[[str, str], None] = lambda *_: None
    ) -> None:
        """Raises PreparationFailed. What was written stays: the next attempt continues from there. `tell` records an event
        on the pod: a reason and a message."""
        for plugin, preparation in preparations:
            try:
                await self._take(preparation.steps())
            except (ApiError, StepFailed) as error:
                raise PreparationFailed(plugin, error) from error
            if (event := preparation.waiting_for()) is not None:
                tell(*event)
            await self._until_done(plugin, preparation)

    async def undo(self, preparations: Iterable[tuple[str, Preparation]]) -> None:
        """The pod was not bound. Raises nothing: whatever stays behind, the pod must be tried again."""
        for plugin, preparation in preparations:
            try:
                await self._take(preparation.undo())
            except (ApiError, StepFailed) as error:
                log.warning("cannot undo what %s prepared: %s", plugin, error)
            except Exception:
                log.exception("undoing what %s prepared failed", plugin)

    async def write_all(self, writes: Iterable[Write]) -> bool:
        """Carries out writes in order, up to the first that fails; returns whether none did."""
        try:
            for write in writes:
                await self._send(write)
        except ApiError as error:
            log.warning("cannot change %s %s/%s: %s", write.kind, write.namespace, write.name, error)
            return False
        return True

    async def _take(self, steps: Steps) -> None:
        try:
            write = next(steps)
            while True:
                try:
                    written = await self._send(write)
                except ApiError as error:
                    write = steps.throw(error)
                else:
                    write = steps.send(written)
        except StopIteration:
            return

    async def _send(self, write: Write) -> Document:
        resource, client = self._resource(write.kind), self._client
        if write.verb == "create":
            return await client.create(resource, dict(write.patch), write.namespace)
        if write.verb == "delete":
            return await client.delete(resource, write.name, write.namespace)
        if write.verb == "get":
            return await self._read(resource, write)
        return await client.patch(resource, write.name, write.patch, write.namespace, subresource=write.subresource)

    async def _read(self, resource: Resource, write: Write) -> Document:
        """The object as it is. Waits for the server as long as that takes: what follows depends on it."""
        delay = 1.0
        while True:
            try:
                return await self._client.get(resource, write.name, write.namespace)
            except (ServiceUnavailable, ServerTimeout, TooManyRequests):
                await asyncio.sleep(delay)
                delay = min(delay * 2, _LONGEST_DELAY)

    def changed(self, kind: str, namespace: str, name: str) -> None:
        """An object was added, updated or deleted."""
        for turn in self._waiting.get((kind, namespace, name), ()):
            turn.set()

    async def _until_done(self, plugin: str, preparation: Preparation) -> None:
        turn = asyncio.Event()
        watched: Collection[Watched] = ()
        over = False

        def expire() -> None:
            nonlocal over
            over = True
            turn.set()

        timer = call_later(preparation.timeout, expire, background=True)
        try:
            while True:
                turn.clear()
                status = preparation.check()
                if status is None and over:
                    status = preparation.expired()
                if status is not None:
                    if not status.ok:
                        raise PreparationFailed(plugin, status.message)
                    return
                self._unwatch(turn, watched)
                watched = preparation.watched()
                for each in watched:
                    self._waiting.setdefault(each, set()).add(turn)
                await turn.wait()
        finally:
            timer.cancel()
            self._unwatch(turn, watched)

    def _unwatch(self, turn: asyncio.Event, watched: Collection[Watched]) -> None:
        for each in watched:
            waiting = self._waiting.get(each, set())
            waiting.discard(turn)
            if not waiting:
                self._waiting.pop(each, None)

    def _resource(self, kind: str) -> Resource:
        found = self._registry.find(kind)
        if found is None:
            raise LookupError(f"a plugin writes objects of kind {kind}, which is unknown")
        return found.storage
