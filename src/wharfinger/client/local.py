"""The client over a store in the same process: no HTTP, one user, views decoded once for all who watch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar, cast

from wharfinger.admission.request import SYSTEM, User
from wharfinger.api.errors import BadRequest
from wharfinger.api.registry import Document, Resource
from wharfinger.api.selectors import (
    BadSelector,
    FieldRequirement,
    Requirements,
    parse_field_selector,
    parse_label_selector,
)
from wharfinger.api.views import view as view_of
from wharfinger.client.interface import EventType, Page, PatchType, WatchEvent
from wharfinger.client.timers import background
from wharfinger.store import DeleteOptions, Store, Stored, Written

T = TypeVar("T")

_TYPES = {event.value: event for event in EventType}


class LocalClient:
    """Fulfils `client.interface.Client`. Closing it leaves the store open: the store's owner closes that."""

    def __init__(self, store: Store, user: User = SYSTEM, on_warning: Callable[[str], None] | None = None) -> None:
        self.store = store
        self.user = user
        self._on_warning = on_warning

    def as_user(self, user: User, on_warning: Callable[[str], None] | None = None) -> LocalClient:
        """A client of the same store for someone else; `on_warning` is told what reviewers warn of."""
        return LocalClient(self.store, user, on_warning)

    async def get(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        view: type[Any] | None = None,
        subresource: str = "",
    ) -> Any:
        if subresource:
            document = await self.store.get_subresource(resource, name, namespace, subresource)
            return document if view is None else view_of(document, view)
        return _shown(await self.store.get(resource, name, namespace), view)

    async def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        view: type[Any] | None = None,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        continue_token: str = "",
        resource_version: str = "",
    ) -> Page[Any]:
        labels, fields = _selectors(label_selector, field_selector)
        listing = await self.store.list(
            resource,
            namespace,
            labels=labels,
            fields=fields,
            limit=limit,
            continue_token=continue_token,
            version=resource_version,
        )
        items = [_shown(stored, view) for stored in listing.items]
        return Page(items, str(listing.version), listing.continue_token)

    async def watch(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        view: type[T],
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
        timeout: float | None = None,
    ) -> AsyncIterator[WatchEvent[T]]:
        """A watch that runs out of time ends with a bookmark, so that the next one begins where this one stood."""
        labels, fields = _selectors(label_selector, field_selector)
        if resource_version and not resource_version.isdecimal():
            raise BadRequest(f'invalid resource version "{resource_version}": must be a number')
        after = int(resource_version) if resource_version else None
        watch = self.store.watch(resource, namespace, after=after, labels=labels, fields=fields)
        timer = None
        if timeout is not None:
            # The end of a quiet watch is no work that a simulation would have to wait for.
            with background():
                timer = asyncio.get_running_loop().call_later(timeout, watch.close)
        try:
            async for event in watch:
                shown = None if event.object is None else _shown(event.object, view)
                yield WatchEvent(_TYPES[event.type], shown, str(event.version), event.initial_events_end)
            mark = watch.bookmark()
            yield WatchEvent(EventType.BOOKMARK, None, str(mark.version))
        finally:
            if timer is not None:
                timer.cancel()
            watch.close()

    async def create(
        self,
        resource: Resource,
        document: Document,
        namespace: str = "",
        *,
        name: str = "",
        subresource: str = "",
        dry_run: bool = False,
    ) -> Document:
        written = await self.store.create(
            resource, document, namespace, name=name, subresource=subresource, user=self.user, dry_run=dry_run
        )
        return self._told(written)

    async def update(
        self,
        resource: Resource,
        document: Document,
        namespace: str = "",
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Document:
        written = await self.store.update(
            resource, document, namespace, subresource=subresource, user=self.user, dry_run=dry_run
        )
        return self._told(written)

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Any,
        namespace: str = "",
        *,
        type: PatchType = PatchType.MERGE,
        subresource: str = "",
        field_manager: str = "",
        force: bool = False,
        dry_run: bool = False,
    ) -> Document:
        written = await self.store.patch(
            resource,
            name,
            patch,
            type.value,
            namespace,
            subresource=subresource,
            user=self.user,
            dry_run=dry_run,
            manager=field_manager,
            force=force,
        )
        return self._told(written)

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        grace_period: int | None = None,
        propagation: str = "",
        uid: str = "",
        resource_version: str = "",
        dry_run: bool = False,
    ) -> Document:
        options = DeleteOptions(grace_period, propagation, uid, resource_version)
        written = await self.store.delete(resource, name, namespace, options=options, user=self.user, dry_run=dry_run)
        return self._told(written)

    async def delete_collection(
        self, resource: Resource, namespace: str = "", *, label_selector: str = "", field_selector: str = ""
    ) -> None:
        labels, fields = _selectors(label_selector, field_selector)
        await self.store.delete_collection(resource, namespace, labels=labels, fields=fields, user=self.user)

    async def close(self) -> None:
        pass

    def _told(self, written: Written) -> Document:
        if self._on_warning is not None:
            for warning in written.warnings:
                self._on_warning(warning)
        return written.document


def _shown(stored: Stored, view: type[T] | None) -> T:
    if view is None or view is dict:
        return cast("T", stored.document())
    return stored.view(view)


def _selectors(labels: str, fields: str) -> tuple[Requirements, tuple[FieldRequirement, ...]]:
    try:
        return parse_label_selector(labels), parse_field_selector(fields)
    except BadSelector as error:
        raise BadRequest(str(error)) from None
