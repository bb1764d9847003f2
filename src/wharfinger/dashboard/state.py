"""The copy of the cluster that the dashboard answers from: one informer for each kind, and what changed since when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wharfinger.api.errors import NotFound
from wharfinger.api.kinds.builtin import EVENTS, NAMESPACES, NODES, PODS
from wharfinger.api.registry import Document, Registry, Resource
from wharfinger.client.http import HttpClient
from wharfinger.client.informer import Informer
from wharfinger.client.interface import Client, WatchEvent
from wharfinger.dashboard.node_rows import NodeRows
from wharfinger.dashboard.recent_events import EventInformer
from wharfinger.dashboard.rights import Rights
from wharfinger.dashboard.sharing import SharedParts
from wharfinger.dashboard.usage import NodeRequests
from wharfinger.engine.registry import known_plugins
from wharfinger.scheduler.feed import OTHERS

Listener = Callable[[Document | None, Document | None], None]
"""Takes the old and the new state of an object; None where there is none."""

WAIT_SYNCED = 20.0  # seconds after which what is known is shown; the rest follows


@dataclass(slots=True)
class HeldKind:
    """The objects of one kind, from one informer for all namespaces or from one for each that may be read."""

    resource: Resource
    informers: list[Informer[Document]] = field(default_factory=list)
    revision: int = 0  # of the whole state when an object of it last changed
    refused: str = ""  # why it is not read
    listeners: list[Listener] = field(default_factory=list)  # told of every change after it was made

    def objects(self) -> list[Document]:
        return [document for informer in self.informers for document in informer.items.values()]

    def get(self, name: str, namespace: str = "") -> Document | None:
        return next((found for each in self.informers if (found := each.get(name, namespace)) is not None), None)

    @property
    def namespaces(self) -> set[str]:
        return {key[0] for informer in self.informers for key in informer.items}


def decisive_kinds() -> set[str]:
    """The kinds that the scheduler follows: without one of them, an explanation could be wrong."""
    observed = {kind for plugin in known_plugins().values() for kind in plugin.kinds}
    return {NODES.kind, PODS.kind, *OTHERS, *observed}


class SharingInformer(Informer[Document]):
    """Shares parts of documents as they come. Done after a long list, the memory of what is shared would be lost in small
    pieces between that of the rest."""

    def __init__(self, client: Client, resource: Resource, parts: SharedParts, *, namespace: str) -> None:
        super().__init__(client, resource, dict, namespace=namespace)
        self._parts = parts

    def _collect(self, items: list[Document], page: Iterable[Document]) -> None:
        for document in page:
            self._parts.share(document)
            items.append(document)

    def _take(self, event: WatchEvent[Document]) -> None:
        if event.object is not None:
            self._parts.share(event.object)
        super()._take(event)


class ClusterState:
    """Follows an API server with the rights of one client."""

    def __init__(self, client: HttpClient, registry: Registry) -> None:
        self.client = client
        self.registry = registry
        self.kinds: dict[tuple[str, str], HeldKind] = {}
        self.usage = NodeRequests()
        self.nodes = NodeRows()
        self.revision = 0
        self.whole = False  # whether everything that the scheduler follows can be read in all namespaces
        self._parts = SharedParts()
        self._subscribers: set[Subscription] = set()

    def held(self, resource: Resource) -> HeldKind | None:
        return self.kinds.get((resource.group, resource.plural))

    def objects(self, resource: Resource) -> list[Document]:
        kind = self.held(resource)
        return [] if kind is None else kind.objects()

    async def start(self, rights: Rights, namespaces: Sequence[str] = ()) -> None:
        """Starts following whatever the client may list; returns when it is known or after a while."""
        wanted = [kind.storage for kind in self.registry if kind.stored and "list" in kind.verbs and kind.in_snapshots]
        for resource in dict.fromkeys((NODES, PODS, NAMESPACES, *wanted, EVENTS)):
            self.kinds[resource.group, resource.plural] = HeldKind(resource)
        scopes = await asyncio.gather(*(self._scope(rights, each.resource, namespaces) for each in self.kinds.values()))
        for kind, scope in zip(self.kinds.values(), scopes, strict=True):
            if not scope:
                kind.refused = f"you may not list {kind.resource.group_plural}"
            for namespace in scope:
                self._follow(kind, namespace)
        unread = [kind for kind, scope in zip(self.kinds.values(), scopes, strict=True) if scope != [""]]
        self.whole = not await self._served([each for each in unread if each.resource.kind in decisive_kinds()])
        waits = [informer.wait_synced() for kind in self.kinds.values() for informer in kind.informers]
        try:
            async with asyncio.timeout(WAIT_SYNCED):
                await asyncio.gather(*waits)
        except TimeoutError:
            return

    async def _scope(self, rights: Rights, resource: Resource, namespaces: Sequence[str]) -> list[str]:
        """The namespaces to follow; `[""]` for all of them."""
        if await rights.may("list", resource):
            return [""]
        if not resource.namespaced:
            return []
        return [each for each in dict.fromkeys(namespaces) if await rights.may("list", resource, each)]

    async def _served(self, kinds: Iterable[HeldKind]) -> list[HeldKind]:
        """Those kinds that the server has at all. What it does not serve is missing in no answer."""
        found = []
        for kind in kinds:
            resource = kind.resource
            try:
                await self.client.fetch(f"/apis/{resource.api_version}" if resource.group else "/api/v1")
            except NotFound:
                kind.refused = ""
                continue
            found.append(kind)
        return found

    def _follow(self, kind: HeldKind, namespace: str) -> None:
        informer: Informer[Document]
        if kind.resource == EVENTS:
            informer = EventInformer(self.client, namespace=namespace)
        else:
            informer = SharingInformer(self.client, kind.resource, self._parts, namespace=namespace)
        informer.optional = True

        def changed(old: Document | None, new: Document | None) -> None:
            if kind.resource == PODS:
                self.usage.pod_changed(old, new)
            elif kind.resource == NODES:
                self.nodes.node_changed(old, new)
            self.revision += 1
            kind.revision = self.revision
            for listener in kind.listeners:
                listener(old, new)
            self.announce(kind.resource, ((old or new or {}).get("metadata") or {}).get("namespace") or "")

        informer.add_handler(lambda new: changed(None, new), changed, lambda old: changed(old, None))
        kind.informers.append(informer)
        informer.start()

    async def stop(self) -> None:
        informers = [informer for kind in self.kinds.values() for informer in kind.informers]
        await asyncio.gather(*(informer.stop() for informer in informers))

    def announce(self, resource: Resource, namespace: str) -> None:
        """Tells all who follow that an answer about objects of this kind may be another one now."""
        for each in self._subscribers:
            each.add(resource, namespace)

    def subscribe(self) -> Subscription:
        made = Subscription(self._subscribers.discard)
        self._subscribers.add(made)
        return made

    def snapshot(self) -> Iterable[Document]:
        """Every object that decisions depend on, with its kind."""
        for kind in self.kinds.values():
            if kind.resource == EVENTS:
                continue
            version, name = kind.resource.api_version, kind.resource.kind
            for document in kind.objects():
                yield {"apiVersion": version, "kind": name, **document}


Change = tuple[Resource, str]
"""The kind and the namespace of an object that changed."""


class Subscription:
    """Collects what changed, kinds and namespaces, until somebody takes it."""

    def __init__(self, close: Callable[[Any], None]) -> None:
        self._close = close
        self._changes: set[Change] = set()
        self._event = asyncio.Event()

    def add(self, resource: Resource, namespace: str) -> None:
        self._changes.add((resource, namespace))
        self._event.set()

    async def take(self, timeout: float) -> set[Change]:
        """What changed; empty if nothing did until the timeout."""
        try:
            async with asyncio.timeout(timeout):
                await self._event.wait()
        except TimeoutError:
            return set()
        self._event.clear()
        changes, self._changes = self._changes, set()
        return changes

    def close(self) -> None:
        self._close(self)


class Visible:
    """The part of the state that one caller may list. Made for each request: the access reviews are cached."""

    def __init__(self, state: ClusterState, scopes: Mapping[tuple[str, str], frozenset[str] | None]) -> None:
        self.state = state
        self._scopes = scopes
        self._usage: NodeRequests | None = None

    @classmethod
    async def of(cls, state: ClusterState, rights: Rights, resources: Iterable[Resource]) -> Visible:
        held = [kind for each in dict.fromkeys(resources) if (kind := state.held(each)) is not None]
        scopes = await asyncio.gather(*(_allowed(kind, rights) for kind in held))
        keys = [(kind.resource.group, kind.resource.plural) for kind in held]
        return cls(state, dict(zip(keys, scopes, strict=True)))

    def everywhere(self, resource: Resource) -> bool:
        return self._scopes.get((resource.group, resource.plural), frozenset()) is None

    def usage(self) -> NodeRequests:
        """What the pods that the caller may see request on each node."""
        if self.everywhere(PODS):
            return self.state.usage
        if self._usage is None:
            self._usage = NodeRequests()
            for pod in self.objects(PODS):
                self._usage.pod_changed(None, pod)
        return self._usage

    def nodes(self) -> NodeRows:
        """Nodes belong to no namespace: the caller may list all of them, or none."""
        return self.state.nodes if self.everywhere(NODES) else NodeRows()

    def events(self, reasons: Collection[str] | None = None) -> Iterator[Document]:
        """The recent events that the caller may see, of these reasons only."""
        scope = self._scopes.get((EVENTS.group, EVENTS.plural), frozenset())
        kind = self.state.held(EVENTS)
        for informer in kind.informers if kind is not None else ():
            assert isinstance(informer, EventInformer)
            for event in informer.recent if reasons is None else informer.recent.of(reasons):
                if scope is None or event["metadata"].get("namespace") in scope:
                    yield event

    @property
    def scope(self) -> Hashable:
        """Equal for callers who see the same objects of the kinds that were named."""
        return frozenset(self._scopes.items())

    @property
    def revision(self) -> Hashable:
        """Another one after every change of an object of those kinds."""
        return frozenset((key, self.state.kinds[key].revision) for key in self._scopes)

    def objects(self, resource: Resource) -> list[Document]:
        """The objects of a kind that was named when this was made; of others, none."""
        scope = self._scopes.get((resource.group, resource.plural), frozenset())
        found = self.state.objects(resource)
        if scope is None:
            return found
        return [each for each in found if each["metadata"].get("namespace") in scope]

    def get(self, resource: Resource, name: str, namespace: str = "") -> Document | None:
        scope = self._scopes.get((resource.group, resource.plural), frozenset())
        kind = self.state.held(resource)
        if kind is None or (scope is not None and namespace not in scope):
            return None
        return kind.get(name, namespace)


async def _allowed(kind: HeldKind, rights: Rights) -> frozenset[str] | None:
    """The namespaces whose objects the caller may list; None for all."""
    if await rights.may("list", kind.resource):
        return None
    if not kind.resource.namespaced:
        return frozenset()
    names = sorted(kind.namespaces)
    answers = await asyncio.gather(*(rights.may("list", kind.resource, name) for name in names))
    return frozenset(name for name, allowed in zip(names, answers, strict=True) if allowed)
