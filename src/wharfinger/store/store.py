"""The store: documents with Kubernetes semantics on top of a back end.

Reads (`get`, `list`, `watch`) return durable state only. `peek` and `scan` also return accepted writes that are not
durable yet, for in-process reviewers.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from wharfinger.admission.request import SYSTEM, User
from wharfinger.api.errors import BadRequest, NotFound, not_found
from wharfinger.api.registry import Document, Kind, Registry, Resource
from wharfinger.api.requests import NO_DELETE_OPTIONS, ApiRequest, DeleteOptions, PatchType, WriteVerbs
from wharfinger.api.selectors import FieldRequirement, Requirements
from wharfinger.store import rules
from wharfinger.store.apply import Applied, apply
from wharfinger.store.chain import Chain
from wharfinger.store.collection import Collection, Limits, ObjectChange
from wharfinger.store.deletion import Deleter
from wharfinger.store.equal_bindings import EqualBindings
from wharfinger.store.equal_creates import EqualCreates
from wharfinger.store.ledger import Backend, Memory, WriteLedger
from wharfinger.store.lists import list_objects
from wharfinger.store.metadata import Identities
from wharfinger.store.objects import Listing, StoredObject, Written, decode_document, encode, key_of
from wharfinger.store.patches import apply_patch
from wharfinger.store.pods import Pods
from wharfinger.store.repeats import RepeatedWrites
from wharfinger.store.scale import scale_of, scaled
from wharfinger.store.selection import ObjectSelector
from wharfinger.store.versions import (
    converted,
    copy,
    encoded,
    kind_of,
    outgoing,
    present,
    present_all,
    served_as_is,
)
from wharfinger.store.watch import Watch
from wharfinger.store.writes import Call, Writer

if TYPE_CHECKING:
    from wharfinger.api.pod_texts import PodText
    from wharfinger.store.restoring import RestoredPods

Compute = Callable[[str], Iterable[Document]]
"""The objects of a computed kind in a namespace, or in all of them."""


class Store(WriteVerbs[Written]):
    """One per API server or simulation; it must be used from a single event loop."""

    def __init__(
        self,
        registry: Registry,
        backend: Backend | None = None,
        *,
        chain: Chain | None = None,
        now: Callable[[], float] = time.time,
        source: random.Random | None = None,
        limits: Limits | None = None,
        bookmark_every: float = 60.0,
        keep_identity: bool = False,
        short_ways: bool = False,
        equal_writes: bool = False,
    ) -> None:
        """With `keep_identity`, new objects keep the uid and timestamps they bring, as a simulation of a snapshot needs.
        With `short_ways`, as simulations have them, writes that repeat earlier ones are not reviewed again: see
        `wharfinger.store.repeats`. With `equal_writes`, that
        holds for new pods and their bindings: see `wharfinger.store.equal_creates` and `wharfinger.store.equal_bindings`."""
        self.registry = registry
        self.chain = chain if chain is not None else Chain()
        self.now = now
        self._bookmark_every = bookmark_every
        self._ledger = WriteLedger(backend if backend is not None else Memory(), limits or Limits(), now)
        self._writer = Writer(
            registry, self.chain, self._ledger, Identities(now, source or random.Random(), keep_given=keep_identity)
        )
        self._restored: RestoredPods | None = None
        if short_ways:
            self._writer.repeated = RepeatedWrites(self._writer)
            self._writer.creations = self._writer.bindings = self._writer.repeated
        elif equal_writes:
            self._writer.creations = EqualCreates(self._writer)
            self._writer.bindings = EqualBindings(self._writer)
        self.computed: dict[tuple[str, str], Compute] = {}  # by group and plural, for kinds that are computed
        self._deleter = Deleter(self._writer)
        self._pods = Pods(self._writer, self._deleter)

    @classmethod
    def open(cls, path: Path, registry: Registry, **options: Any) -> Store:
        """Opens the store in this data file, creating the file if needed. Raises `DataFileError`."""
        from wharfinger.store.sqlite import DataFile

        return cls(registry, DataFile(path), **options)

    @property
    def version(self) -> int:
        """The latest durable version."""
        return self._ledger.version

    @property
    def writes_at_once(self) -> bool:
        """Whether writes neither wait for a disk nor for remote reviewers."""
        return self._ledger.durable_at_once and not self.chain.waits

    @property
    def fault(self) -> str:
        """Why writes do not become durable; empty when they do."""
        return self._ledger.fault

    def changes(self, after: int) -> list[tuple[str, ObjectChange]]:
        """All durable changes later than a version, in their order, each with the plural of its kind. For those that
        check what happened; history is limited, as it is for watches."""
        return self._ledger.changes(after)

    def forget_read_changes(self) -> None:
        """From now on, drops changes once all open watches have read them. Watches and lists at older versions expire, so
        this is for a process that will not start any."""
        self._ledger.forget_read_changes()

    async def get(self, resource: Resource, name: str, namespace: str = "") -> StoredObject:
        kind = kind_of(self.registry, resource)
        if kind.computed:
            return self._compute_one(kind, name, namespace)
        collection = self._ledger.collection(kind.group, kind.plural)
        stored = collection.visible.objects.get(key_of(namespace if kind.namespaced else "", name))
        if stored is None:
            raise not_found(resource.group, kind.plural, name)
        if kind.conversion is not None:
            return (await present_all(kind, resource, [stored]))[0]
        return present(kind, resource, stored)

    async def get_subresource(self, resource: Resource, name: str, namespace: str, subresource: str) -> Document:
        """The response to `GET …/name/subresource`: a Scale, or the whole object."""
        kind = kind_of(self.registry, resource)
        document = (await self.get(kind.storage, name, namespace)).document()
        if subresource == "scale":
            return scale_of(kind, document)
        self._check_subresource(kind, subresource)
        return await converted(lambda: outgoing(kind, resource, document))

    async def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        labels: Requirements = (),
        fields: Sequence[FieldRequirement] = (),
        limit: int = 0,
        continue_token: str = "",
        version: str = "",
        version_match: str = "",
    ) -> Listing:
        """Lists objects in key order. `version` and `version_match` are `resourceVersion` and `resourceVersionMatch`."""
        kind = kind_of(self.registry, resource)
        if kind.computed:
            selection = ObjectSelector(kind, labels, fields)
            found = [item for item in self._compute(kind, namespace) if selection.empty or selection.matches(item)]
            return Listing(found, self._ledger.version)
        collection, selection = self._selected(kind, resource, labels, fields)
        prefix = _prefix(kind, namespace)
        if selection.converts:  # those of the list together, not each when its turn comes
            await present_all(kind, resource, collection.visible.values(prefix))
        listing = await converted(
            lambda: list_objects(
                collection,
                self._ledger.version,
                selection,
                prefix,
                now=self.now(),
                limit=limit,
                continue_token=continue_token,
                version=version,
                version_match=version_match,
            )
        )
        if not served_as_is(kind, resource):
            listing = replace(listing, items=await present_all(kind, resource, listing.items))
        return listing

    def _compute(self, kind: Kind, namespace: str) -> Iterator[StoredObject]:
        compute = self.computed.get((kind.group, kind.plural))
        for document in compute(namespace if kind.namespaced else "") if compute is not None else ():
            metadata = document["metadata"]
            labels = metadata.get("labels") or {}
            yield StoredObject(
                metadata.get("namespace") or "", metadata["name"], "", self.version, encode(document), 0, labels
            )

    def _compute_one(self, kind: Kind, name: str, namespace: str) -> StoredObject:
        found = next((item for item in self._compute(kind, namespace) if item.name == name), None)
        if found is None:
            raise not_found(kind.group, kind.plural, name)
        return found

    def watch(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        after: int | None,
        labels: Requirements = (),
        fields: Sequence[FieldRequirement] = (),
        bookmarks: bool = False,
        initial_events: bool = False,
    ) -> Watch:
        """Returns the events after a version. With None or 0 the current state comes first, as ADDED events.

        `initial_events` (watch-list) does so too, and marks the end of the current state with a bookmark. Raises Expired if
        the history no longer reaches back to `after`. An object that starts or stops matching is ADDED or DELETED.
        """
        kind = kind_of(self.registry, resource)
        converts = not served_as_is(kind, resource)
        collection, selection = self._selected(kind, resource, labels, fields)
        return Watch(
            collection,
            self._ledger,
            selection,
            _prefix(kind, namespace),
            after=after,
            initial_events=initial_events,
            bookmark_every=self._bookmark_every if bookmarks else None,
            present=(lambda stored: present(kind, resource, stored)) if converts and kind.conversion is None else None,
            present_all=(lambda items: present_all(kind, resource, items)) if converts and kind.conversion else None,
        )

    def _selected(
        self, kind: Kind, resource: Resource, labels: Requirements, fields: Sequence[FieldRequirement]
    ) -> tuple[Collection, ObjectSelector]:
        form = None
        if kind.selectable_in is not None and not served_as_is(kind, resource):
            form = partial(present, kind, resource)
        collection = self._ledger.collection(kind.group, kind.plural)
        selection = ObjectSelector(kind, labels, fields, resource.version, form)
        collection.selected_by_field = collection.selected_by_field or selection.by_field
        return collection, selection

    def peek(self, resource: Resource, name: str, namespace: str = "") -> StoredObject | None:
        """The latest state of an object, durable or not, in the storage version."""
        kind = kind_of(self.registry, resource)
        return self._writer.latest(kind, namespace if kind.namespaced else "", name)

    def scan(self, resource: Resource, namespace: str = "") -> Iterable[StoredObject]:
        """The latest state of all objects, durable or not, in key order and in the storage version."""
        kind = kind_of(self.registry, resource)
        return self._ledger.collection(kind.group, kind.plural).latest.values(_prefix(kind, namespace))

    def number(self, resource: Resource) -> int:
        """How many objects of a kind there are."""
        kind = kind_of(self.registry, resource)
        return len(self._ledger.collection(kind.group, kind.plural).latest.objects)

    def revision(self, resource: Resource) -> int:
        """A number that changes with every change of the kind's objects; values derived from a scan stay valid until then."""
        return self.revisions(resource)()

    def revisions(self, resource: Resource) -> Callable[[], int]:
        """Returns a fast function for `revision` of one kind, for use on every write."""
        kind = kind_of(self.registry, resource)
        latest = self._ledger.collection(kind.group, kind.plural).latest
        return lambda: latest.revision

    def changed_since(self, resource: Resource, namespace: str, revision: int) -> Sequence[str] | None:
        """The names of objects in a namespace that were added, changed or removed since a revision; None: unknown."""
        kind = kind_of(self.registry, resource)
        keys = self._ledger.collection(kind.group, kind.plural).latest.changed_since(revision)
        if keys is None:
            return None
        prefix = _prefix(kind, namespace)
        return sorted(key[len(prefix) :] for key in keys if key.startswith(prefix))

    def generate_name(self, prefix: str) -> str:
        """A name with a random suffix, like those of objects with `generateName`."""
        return self._writer.identities.name(prefix)

    async def send(
        self,
        request: ApiRequest[Document],
        *,
        user: User = SYSTEM,
        finish: Callable[[Document], None] | None = None,
        audit: dict[str, str] | None = None,
        given_away: bool = False,
    ) -> Written:
        """Carries out one write: create, update, patch or delete.

        A body that is `given_away` has no null members, and the caller no longer uses it, so that a create need not copy
        it. `finish` receives the result of a patch, in the requested version, and may change or refuse it. Reviewers put their
        audit annotations into `audit`, also if they refuse the write.
        """
        call = self._call(request, user)
        call.audit, call.owns_document = audit, given_away
        if request.verb == "create":
            return await self._create(call, request.body)
        if request.verb == "update":
            return await self._update(call, request.body)
        if request.verb == "patch":
            return await self._patch(call, request, finish)
        assert request.verb == "delete", f"{request.verb} is not a write of one object"
        return await self._deleter.delete(call, request.delete_options)

    async def _create(self, call: Call, document: Document) -> Written:
        kind = call.kind
        if kind.kind == "Binding" and not kind.group and not call.subresource:
            call.resource = replace(call.resource, plural="pods", kind="Pod")
            call.kind, call.subresource = kind_of(self.registry, call.resource), "binding"
        if not call.subresource:
            return await self._writer.create(call, document)
        self._check_subresource(call.kind, call.subresource)
        if not isinstance(document, dict):
            raise BadRequest("the object provided is unrecognized")
        if rules.is_pod(call.kind) and call.subresource == "binding":
            return await self._pods.bind(call, document)
        if rules.is_pod(call.kind) and call.subresource == "eviction":
            return await self._pods.evict(call, document)
        raise NotFound("the server could not find the requested resource")

    async def _update(self, call: Call, document: Document) -> Written:
        if call.subresource == "scale":
            call.name = call.name or (document.get("metadata") or {}).get("name") or ""
            given = copy(document)
            return await self._scale(call, lambda _: given)
        if call.subresource:
            self._check_subresource(call.kind, call.subresource)
        return await self._writer.update(call, document)

    async def _patch(
        self, call: Call, request: ApiRequest[Document], finish: Callable[[Document], None] | None
    ) -> Written:
        """Applies a patch to the current object, again if the object changes meanwhile."""
        patch, type = request.body, request.patch_type
        if type is PatchType.APPLY and call.subresource in ("", "status"):
            return await self._apply(call, patch, request.field_manager, request.force)
        if request.force:
            raise BadRequest("force may be set for server-side apply only")
        if call.subresource == "scale":

            def rescale(scale: Document) -> Document:
                changed = apply_patch(call.kind, call.resource.version, scale, patch, type)
                if finish is not None:
                    finish(changed)
                return changed

            return await self._scale(call, rescale)
        if call.subresource:
            self._check_subresource(call.kind, call.subresource)
        if self._writer.repeated is not None and finish is None:
            known = self._writer.repeated.patch(call, patch, type)
            if known is not None:
                await self._ledger.settled()
                return known
        given = encoded(patch)
        nulls = b"null" in given  # stored documents hold none, so the patched one can get them only from the patch
        plain = not nulls and b'"$' not in given

        def change(present: Document) -> Document:
            changed = apply_patch(call.kind, call.resource.version, present, decode_document(given), type, plain=plain)
            if finish is not None:
                finish(changed)
            return copy(changed, call.kind) if nulls else changed

        return await self._writer.change(call, change)

    async def _apply(self, call: Call, patch: Any, manager: str, force: bool) -> Written:
        if not isinstance(patch, dict):
            raise BadRequest("error decoding patch: the patch must be an object")
        if call.subresource:
            self._check_subresource(call.kind, call.subresource)
        wanted = Applied(call.resource, call.kind, copy(patch, call.kind), manager, force, call.subresource)
        wanted.check(call.name)
        call.applied = wanted
        if not call.subresource and self._writer.latest(call.kind, call.namespace, call.name) is None:
            apply(wanted, {"metadata": {}})
            return await self._writer.create(call, wanted.config)
        return await self._writer.change(call, lambda present: copy(apply(wanted, present), call.kind))

    async def _scale(self, call: Call, change: Callable[[Document], Document]) -> Written:
        kind = call.kind
        if kind.scale is None:
            raise NotFound("the server could not find the requested resource")
        written = await self._writer.change(
            call, lambda present: scaled(kind, present, change(scale_of(kind, present)))
        )
        scale = scale_of(kind, written.document)
        return replace(written, known=scale, encoded=encode(scale))

    async def delete_collection(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        labels: Requirements = (),
        fields: Sequence[FieldRequirement] = (),
        options: DeleteOptions = NO_DELETE_OPTIONS,
        user: User = SYSTEM,
        dry_run: bool = False,
        audit: dict[str, str] | None = None,
    ) -> Sequence[StoredObject]:
        """Deletes the selected objects one by one and returns them."""
        listing = await self.list(resource, namespace, labels=labels, fields=fields)
        for stored in listing.items:
            request: ApiRequest[Document] = ApiRequest(
                "delete", resource, stored.namespace, stored.name, delete_options=options, dry_run=dry_run
            )
            try:
                await self.send(request, user=user, audit=audit)
            except NotFound:
                continue  # already deleted by somebody else
        return listing.items

    async def restore(self, resource: Resource, document: Document, text: PodText | None = None) -> StoredObject:
        """Stores an object that another server stored, as it is: see `wharfinger.store.restoring`. `text` is the text of a
        pod, if that is known."""
        from wharfinger.store.restoring import RestoredPods, restore

        if self._writer.repeated is not None and self._restored is None:
            self._restored = RestoredPods()
        stored = await converted(lambda: restore(self.registry, self._ledger, resource, document, self._restored, text))
        await self._ledger.settled()
        return stored

    def restore_like_others(self, text: PodText) -> bool:
        """Stores a pod like `restore`, if another one with the same text has been stored. The namespace must exist, as it
        does then."""
        from wharfinger.store.restoring import restore_text

        return self._restored is not None and restore_text(self.registry, self._ledger, text, self._restored)

    async def expire(self, resource: Resource, stored: Iterable[StoredObject]) -> int:
        """Removes expired objects that have not changed since, without admission. Returns the number removed."""
        kind = kind_of(self.registry, resource)
        gone = 0
        for one in stored:
            if self._writer.latest(kind, one.namespace, one.name) is one:
                self._ledger.remove(kind, one)
                gone += 1
        await self._ledger.settled()
        return gone

    async def close(self) -> None:
        """Waits for pending writes, ends all watches and closes the back end."""
        await self._ledger.close()

    def _call(self, request: ApiRequest[Document], user: User) -> Call:
        kind = kind_of(self.registry, request.resource)
        return Call(
            request.resource,
            kind,
            request.namespace if kind.namespaced else "",
            request.name,
            user,
            request.subresource,
            request.dry_run,
            {"fieldManager": request.field_manager} if request.field_manager else {},
        )

    @staticmethod
    def _check_subresource(kind: Kind, subresource: str) -> None:
        known = subresource in kind.subresources or (subresource == "status" and kind.status)
        if not known:
            raise NotFound("the server could not find the requested resource")


def _prefix(kind: Kind, namespace: str) -> str:
    return f"{namespace}/" if namespace and kind.namespaced else ""
