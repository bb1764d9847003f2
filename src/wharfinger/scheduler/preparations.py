"""What plugins want done before a pod is bound: their writes, and waiting until these took effect."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable

from wharfinger.api.errors import ApiError
from wharfinger.api.registry import Registry, Resource
from wharfinger.client.interface import Client
from wharfinger.client.timers import call_later
from wharfinger.framework.prebinding import Preparation, Watched


class PreparationFailed(Exception):
    """The pod cannot be bound; the message goes into its condition."""

    def __init__(self, plugin: str, why: object) -> None:
        super().__init__(f'running PreBind plugin "{plugin}": {why}')


class Preparer:
    def __init__(self, client: Client, registry: Registry) -> None:
        self._client = client
        self._registry = registry
        self._waiting: dict[Watched, set[asyncio.Event]] = {}

    async def carry_out(self, preparations: Iterable[tuple[str, Preparation]]) -> None:
        """Raises PreparationFailed. What was written stays: the next attempt continues from there."""
        for plugin, preparation in preparations:
            try:
                for write in preparation.writes:
                    await self._client.patch(self._resource(write.kind), write.name, write.patch, write.namespace)
            except ApiError as error:
                raise PreparationFailed(plugin, error) from error
            await self._until_done(plugin, preparation)

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
