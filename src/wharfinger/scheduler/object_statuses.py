"""Status patches of objects that are not Pods: read, derive the change, write; again where somebody else was faster, and
after a back-off where the request failed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from wharfinger.api.errors import ApiError, Conflict, Forbidden, Invalid, NotFound
from wharfinger.api.registry import Document, Resource
from wharfinger.client.interface import Client
from wharfinger.client.timers import Clock
from wharfinger.scheduler.instructions import Instruction, PatchStatus

log = logging.getLogger(__name__)

TRIES = 8
_CONFLICT_DELAY, _FAILURE_DELAY = 0.01, 0.5  # seconds before the second try; they double


async def patch_object_status(client: Client, resource: Resource, found: Any, status: Document) -> int:
    """Patches the status of exactly this version of an object, and returns the new one. Raises ApiError; Conflict if it has
    changed."""
    metadata = {"resourceVersion": found.metadata.resource_version, "uid": found.metadata.uid}
    patch = {"metadata": metadata, "status": status}
    written = await client.patch(resource, found.metadata.name, patch, subresource="status")
    return int(written["metadata"]["resourceVersion"])


class ObjectStatusWriter:
    def __init__(
        self,
        client: Client,
        clock: Clock,
        start: Callable[[Awaitable[None]], None],
        done: Callable[[Iterable[Instruction]], None],
    ) -> None:
        """`start` runs a coroutine in the background; `done` is given the instructions that follow from a patch."""
        self._client = client
        self._clock = clock
        self._start = start
        self._done = done
        self._newest: dict[tuple[Resource, str], PatchStatus] = {}  # not sent yet
        self._writing: set[tuple[Resource, str]] = set()

    def submit(self, patch: PatchStatus) -> None:
        if not patch.newest_only:
            self._start(self._write(patch))
            return
        key = (patch.resource, patch.name)
        self._newest[key] = patch
        if key not in self._writing:
            self._writing.add(key)
            self._start(self._write_newest(key))

    async def _write_newest(self, key: tuple[Resource, str]) -> None:
        try:
            while (patch := self._newest.pop(key, None)) is not None:
                await self._write(patch)
        finally:
            self._writing.discard(key)

    async def _write(self, patch: PatchStatus) -> None:
        written = await self._try(patch)
        if patch.done is not None:
            self._done(patch.done(written))

    async def _try(self, patch: PatchStatus) -> bool:
        """Whether the status is as wanted now."""
        for attempt in range(TRIES):
            try:
                found = await self._client.get(patch.resource, patch.name, view=patch.view)
                status = patch.change(found, self._clock.now())
                if status is None:
                    return False
                if status:
                    await patch_object_status(self._client, patch.resource, found, status)
                return True
            except Conflict:
                delay = _CONFLICT_DELAY * 2**attempt
            except NotFound:
                return False
            except ApiError as error:
                log.warning("cannot write the status of %s %s: %s", patch.resource.kind, patch.name, error)
                if isinstance(error, (Invalid, Forbidden)):
                    return False
                delay = max(error.retry_after or 0.0, _FAILURE_DELAY * 2**attempt)
            if attempt == TRIES - 1 or (patch.newest_only and (patch.resource, patch.name) in self._newest):
                break
            await asyncio.sleep(delay)
        return False
