"""The events that screens show: the latest of each reason. A busy cluster has hundreds of thousands, and its API server
keeps them for an hour."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from wharfinger.api.keys import ObjectKey
from wharfinger.api.kinds.builtin import EVENTS
from wharfinger.api.registry import Document
from wharfinger.client.informer import Informer
from wharfinger.client.interface import Client
from wharfinger.dashboard.sharing import shorten_event
from wharfinger.dashboard.views.objects import happened

OF_REASON = 500  # events of one reason that are kept, so that frequent ones do not drive out the rare
ALTOGETHER = 5_000


class RecentEvents:
    """Events by reason, those that changed last at the end."""

    def __init__(self, of_reason: int = OF_REASON, altogether: int = ALTOGETHER) -> None:
        self.of_reason, self.altogether = of_reason, altogether
        self._by_reason: dict[str, dict[ObjectKey, Document]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Document]:
        return (event for kept in self._by_reason.values() for event in kept.values())

    def of(self, reasons: Collection[str]) -> Iterator[Document]:
        for reason in reasons:
            yield from self._by_reason.get(reason, {}).values()

    def put(self, key: ObjectKey, event: Document) -> list[ObjectKey]:
        """Keeps an event as the latest of its reason; returns the keys of those that have to go for it."""
        reason = str(event.get("reason") or "")
        kept = self._by_reason.setdefault(reason, {})
        self._count += kept.pop(key, None) is None
        kept[key] = event
        gone = []
        if len(kept) > self.of_reason:
            gone.append(self._drop_oldest(reason))
        if self._count > self.altogether:
            largest = max(self._by_reason, key=lambda each: len(self._by_reason[each]))
            gone.append(self._drop_oldest(largest))
        return gone

    def _drop_oldest(self, reason: str) -> ObjectKey:
        kept = self._by_reason[reason]
        key = next(iter(kept))
        self.remove(key, kept[key])
        return key

    def remove(self, key: ObjectKey, event: Document) -> None:
        reason = str(event.get("reason") or "")
        kept = self._by_reason.get(reason, {})
        self._count -= kept.pop(key, None) is not None
        if not kept:
            self._by_reason.pop(reason, None)


class EventInformer(Informer[Document]):
    """Follows events and forgets all but the recent ones, already while it lists them."""

    def __init__(self, client: Client, *, namespace: str = "", recent: RecentEvents | None = None) -> None:
        super().__init__(client, EVENTS, dict, namespace=namespace)
        self.recent = RecentEvents() if recent is None else recent

    def _collect(self, items: list[Document], page: Iterable[Document]) -> None:
        for event in page:
            shorten_event(event)
            items.append(event)
        if len(items) > 2 * self.recent.altogether:
            items[:] = self._latest(items)

    def _latest(self, events: Iterable[Document]) -> list[Document]:
        """Those that would be kept; a list is in the order of names, so the time decides."""
        found = RecentEvents(self.recent.of_reason, self.recent.altogether)
        for event in sorted(events, key=happened):
            found.put(_key(event), event)
        return sorted(found, key=happened)

    def _replace(self, items: Iterable[Document]) -> None:
        super()._replace(self._latest(items))

    def _put(self, key: ObjectKey, item: Document, old: Document | None) -> None:
        shorten_event(item)
        super()._put(key, item, old)
        if old is not None:
            self.recent.remove(key, old)  # its reason may be another one now
        for gone in self.recent.put(key, item):
            self._objects.pop(gone, None)

    def _remove(self, key: ObjectKey) -> None:
        if (old := self._objects.get(key)) is not None:
            self.recent.remove(key, old)
        super()._remove(key)


def _key(event: Document) -> ObjectKey:
    metadata = event["metadata"]
    return metadata.get("namespace", ""), metadata["name"]
