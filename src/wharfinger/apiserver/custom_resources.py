"""Adds, updates and removes kinds in the registry as CustomResourceDefinitions are created, changed and deleted.

A definition of a kind that the server has built in is accepted without effect. When a definition is deleted, its objects are
deleted first.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from wharfinger.api.conditions import set_condition
from wharfinger.api.errors import ApiError, Conflict, NotFound
from wharfinger.api.kinds.builtin import CUSTOM_RESOURCE_DEFINITIONS
from wharfinger.api.registry import Document, Kind
from wharfinger.api.times import format_time
from wharfinger.apiserver.custom_kinds import kind_of
from wharfinger.apiserver.webhook_calls import WebhookCaller
from wharfinger.client.tasks import cancel
from wharfinger.store.objects import DELETED
from wharfinger.store.store import Store

log = logging.getLogger(__name__)

CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
_MANAGER = "wharfinger-apiextensions"
_SWEEP = 1.0  # seconds between attempts to delete the remaining objects

Changed = Callable[[Kind], None]
"""Called for every kind that was added, changed or removed."""


class CustomResources:
    def __init__(self, store: Store, changed: Changed, caller: WebhookCaller | None = None) -> None:
        """Without a `caller`, as in a simulation, conversion webhooks are not called."""
        self._store = store
        self._changed = changed
        self._caller = caller
        self._own: dict[str, Kind] = {}  # by name of the definition
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        listing = await self._store.list(CUSTOM_RESOURCE_DEFINITIONS)
        for stored in listing.items:
            await self._apply(stored.document())
        self._spawn(self._watch(listing.version))

    async def stop(self) -> None:
        await cancel(self._tasks)

    def _spawn(self, work: object) -> None:
        task = asyncio.ensure_future(work)  # type: ignore[call-overload]  # a coroutine of ours
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _watch(self, version: int) -> None:
        while True:
            watch = self._store.watch(CUSTOM_RESOURCE_DEFINITIONS, after=version)
            try:
                async for event in watch:
                    version = event.version
                    if event.object is None:
                        continue
                    if event.type == DELETED:
                        self._drop(event.object.name)
                    else:
                        await self._apply(event.object.document())
                return
            except ApiError as error:
                log.warning("watch of CustomResourceDefinitions failed, relisting: %s", error)
                listing = await self._store.list(CUSTOM_RESOURCE_DEFINITIONS)
                for name in set(self._own) - {stored.name for stored in listing.items}:
                    self._drop(name)
                for stored in listing.items:
                    await self._apply(stored.document())
                version = listing.version
            finally:
                watch.close()

    async def _apply(self, definition: Document) -> None:
        """Serves the kind and writes the status of a definition, or starts its deletion."""
        name = definition["metadata"]["name"]
        if definition["metadata"].get("deletionTimestamp"):
            if CLEANUP in (definition["metadata"].get("finalizers") or []):
                self._spawn(self._terminate(name))
            return
        conflict = self._conflict(definition)
        kind = kind_of(definition, self._caller)
        if not conflict and kind is not None and self._is_free(name, kind):
            self._own[name] = kind
            self._store.registry.add(kind)
            self._changed(kind)
        with contextlib.suppress(Conflict, NotFound):  # a newer version will arrive with the watch
            await self._acknowledge(definition, conflict)

    def _is_free(self, name: str, kind: Kind) -> bool:
        """Whether the kind is not built in."""
        found = self._store.registry.of_plural(kind.group, kind.plural)
        return found is None or found is self._own.get(name)

    def _conflict(self, definition: Document) -> tuple[str, str] | None:
        """Reason and message if another definition of the group uses one of the names."""
        spec = definition["spec"]
        names, own = spec["names"], definition["metadata"]["name"]
        for name, kind in self._own.items():
            if name == own or kind.group != spec["group"]:
                continue
            if names["kind"] == kind.kind:
                return "KindConflict", f'"{names["kind"]}" is already in use'
            taken = {kind.plural, kind.singular, *kind.short_names}
            for short in (
                names["plural"],
                names.get("singular") or names["kind"].lower(),
                *(names.get("shortNames") or ()),
            ):
                if short in taken:
                    return "NamesConflict", f'"{short}" is already in use'
        return None

    async def _acknowledge(self, definition: Document, conflict: tuple[str, str] | None) -> None:
        metadata, spec = definition["metadata"], definition["spec"]
        finalizers = metadata.get("finalizers") or []
        if CLEANUP not in finalizers:
            definition["metadata"]["finalizers"] = [*finalizers, CLEANUP]
            written = await self._store.update(
                CUSTOM_RESOURCE_DEFINITIONS, definition, name=metadata["name"], field_manager=_MANAGER
            )
            definition = written.document
        status = dict(definition.get("status") or {})
        storage = next(version["name"] for version in spec["versions"] if version.get("storage"))
        versions = status.get("storedVersions") or []
        status["storedVersions"] = versions if storage in versions else [*versions, storage]
        accepted = {"plural": "", "kind": ""} if conflict else spec["names"]
        status["acceptedNames"] = accepted
        reason, message = conflict or ("NoConflicts", "no conflicts found")
        established = (
            ("False", "NotAccepted", "not all names are accepted")
            if conflict
            else ("True", "InitialNamesAccepted", "the initial names have been accepted")
        )
        now = format_time(self._store.now())
        status["conditions"] = _conditions(
            status.get("conditions") or [],
            [
                ("NamesAccepted", "False" if conflict else "True", reason, message),
                ("Established", *established),
            ],
            now,
        )
        if status != definition.get("status"):
            await self._store.update(
                CUSTOM_RESOURCE_DEFINITIONS,
                {**definition, "status": status},
                name=metadata["name"],
                subresource="status",
                field_manager=_MANAGER,
            )

    async def _terminate(self, name: str) -> None:
        """Deletes all objects of the kind, then removes the finalizer from the definition."""
        kind = self._own.get(name)
        while kind is not None:
            try:
                await self._store.delete_collection(kind.storage)
            except ApiError as error:  # such as that of a conversion webhook, which may come back
                log.warning("not all objects of %s are deleted: %s", name, error)
            if not any(True for _ in self._store.scan(kind.storage)):
                break
            await asyncio.sleep(_SWEEP)
        while (stored := self._store.peek(CUSTOM_RESOURCE_DEFINITIONS, name)) is not None:
            definition = stored.document()
            finalizers = [one for one in definition["metadata"].get("finalizers") or [] if one != CLEANUP]
            definition["metadata"]["finalizers"] = finalizers
            with contextlib.suppress(Conflict, NotFound):
                await self._store.update(CUSTOM_RESOURCE_DEFINITIONS, definition, name=name, field_manager=_MANAGER)
                return

    def _drop(self, name: str) -> None:
        kind = self._own.pop(name, None)
        if kind is not None:
            self._store.registry.remove(kind)
            self._changed(kind)


def _conditions(present: list[Document], wanted: list[tuple[str, str, str, str]], now: str) -> list[Document]:
    """The conditions with the wanted ones set."""
    for kind, status, reason, message in wanted:
        condition = {"type": kind, "status": status, "lastTransitionTime": now, "reason": reason, "message": message}
        present = set_condition(present, condition)
    return present
