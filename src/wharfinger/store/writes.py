"""Creations and updates: from the caller's document through admission and validation to the ledger.

Nothing is awaited between the last read of the current state and the write, so versions, names and final reviewers are
exact. If the object changed while remote reviewers were awaited, the write starts over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from wharfinger.admission.request import Request, User
from wharfinger.api.errors import (
    AlreadyExists,
    BadRequest,
    MethodNotAllowed,
    already_exists,
    conflict,
    forbidden,
    invalid_object,
    not_found,
)
from wharfinger.api.fields import invalid, wrong_type
from wharfinger.api.kinds.builtin import NAMESPACES
from wharfinger.api.numbers import parse_uint64
from wharfinger.api.registry import Document, Kind, Registry, Resource
from wharfinger.api.validation import metadata as rules_of_metadata
from wharfinger.store import metadata, namespaces, rules
from wharfinger.store.apply import Applied, track
from wharfinger.store.chain import Chain
from wharfinger.store.ledger import WriteLedger
from wharfinger.store.metadata import Identities
from wharfinger.store.objects import StoredObject, Written, decode_document, encode, key_of
from wharfinger.store.versions import converted, copy, current, identified, incoming, outgoing, stored_as_is

if TYPE_CHECKING:
    from wharfinger.store.contents import PodContent
    from wharfinger.store.equal_bindings import EqualBindings
    from wharfinger.store.equal_creates import EqualCreates
    from wharfinger.store.repeats import RepeatedWrites

_GENERATED_NAMES = 8  # attempts to generate a unique name, as upstream
_OTHER_NAMESPACE = "the namespace of the provided object does not match the namespace sent on the request"
_ATTEMPTS = 5  # of a change to an object that others change too, as in upstream's patch


class RepeatableWrite(msgspec.Struct, frozen=True):
    """A write that later ones may repeat: what its outcome depends on, and the body of the request."""

    key: tuple[object, ...]
    given: Any
    annotations: int = 0  # number of audit annotations before the review


class Call(msgspec.Struct):
    """One write in progress: the request, its user, and the warnings collected so far."""

    resource: Resource
    kind: Kind
    namespace: str
    name: str
    user: User
    subresource: str = ""
    dry_run: bool = False
    options: dict[str, object] = msgspec.field(default_factory=dict)
    warnings: list[str] = msgspec.field(default_factory=list)
    applied: Applied | None = None  # for server-side apply
    owners: Any = None  # metadata.managedFields of an update
    audit: dict[str, str] | None = None  # where reviewers put their audit annotations
    owns_document: bool = False  # the document of a create may be changed, and has no null members
    repeats: RepeatableWrite | None = None

    def request(self, operation: str, new: Document | None, old: Document | None) -> Request:
        return Request(
            operation,
            self.resource,
            self.namespace,
            self.name,
            self.user,
            new,
            old,
            self.subresource,
            self.dry_run,
            dict(self.options),
            self.audit,
        )

    async def answer(self, document: Document, stored: StoredObject | None, *, created: bool = False) -> Written:
        if created and self.options:  # managedFields of a new object are already encoded
            data = stored.data if stored is not None else encode(document)
            if stored_as_is(self.kind, self.resource):
                return Written(None, data, created, tuple(self.warnings))
            document = decode_document(data)
        if self.kind.conversion is None:
            shown = outgoing(self.kind, self.resource, document)
        else:
            shown = await converted(lambda: outgoing(self.kind, self.resource, document))
        data = stored.data if stored is not None and shown is document else encode(shown)
        return Written(shown, data, created, tuple(self.warnings))


ChangeFn = Callable[[Document], Document]
"""Computes the new document from the current one, in the requested version; may change it in place."""


class Overtaken(Exception):
    """The object changed while reviewers were awaited."""


def _check_name(call: Call, meta: Document) -> None:
    """The document must have the name of the object."""
    name = meta.get("name")
    if not name:
        raise BadRequest(f"the name of the object ({call.name} based on URL) was undeterminable: name must be provided")
    if name != call.name:
        raise BadRequest(f"the name of the object ({name}) does not match the name on the URL ({call.name})")


class Writer:
    def __init__(self, registry: Registry, chain: Chain, ledger: WriteLedger, identities: Identities) -> None:
        self.registry = registry
        self.chain = chain
        self.ledger = ledger
        self.identities = identities
        # What is known of earlier writes, and of earlier creations and bindings alone, if that may be used.
        self.repeated: RepeatedWrites | None = None
        self.creations: RepeatedWrites | EqualCreates | None = None
        self.bindings: RepeatedWrites | EqualBindings | None = None

    def latest(self, kind: Kind, namespace: str, name: str) -> StoredObject | None:
        return self.ledger.collection(kind.group, kind.plural).latest.objects.get(key_of(namespace, name))

    def existing(self, call: Call) -> StoredObject:
        stored = self.latest(call.kind, call.namespace, call.name)
        if stored is None:
            raise not_found(call.resource.group, call.kind.plural, call.name)
        return stored

    async def create(self, call: Call, document: Document) -> Written:
        """Creates an object; does not change `document` unless the call owns it."""
        if "get" not in call.kind.verbs:
            raise MethodNotAllowed(f"{call.resource.group_plural} are answered, not stored")
        generated = 0
        # A document without a name is needed again if the generated one is taken.
        own = call.owns_document and isinstance(meta := document.get("metadata"), dict) and meta.get("name")
        while True:
            try:
                if self.creations is not None and (known := self.creations.create(call, document)) is not None:
                    await self.ledger.settled()
                    return known
                return await self._create(call, document if own else copy(document, call.kind))
            except AlreadyExists:
                # Retry only with a generated name.
                generated += 1
                given = copy(document).get("metadata") or {}
                if given.get("name") or not given.get("generateName"):
                    raise
                if generated == _GENERATED_NAMES:
                    raise self._no_free_name(call) from None
                call.warnings.clear()

    def _no_free_name(self, call: Call) -> AlreadyExists:
        error = already_exists(call.resource.group, call.kind.plural, call.name)
        text = f"{error.message}, the server was not able to generate a unique name for the object"
        return AlreadyExists(text, details=error.details, retry_after=1)

    async def _create(self, call: Call, document: Document) -> Written:
        kind = call.kind
        new = identified(call.resource, document)
        meta = new["metadata"]
        if meta.get("resourceVersion"):
            raise BadRequest("resourceVersion should not be set on objects to be created")
        self._check_types(call, new)
        call.namespace = self._agree_namespace(call, meta)
        metadata.initialise(kind, meta, self.identities)
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = self.identities.name(meta["generateName"])
        call.name = meta.get("name", "")
        inside = self.check_namespace(call) if kind.namespaced else None
        if not stored_as_is(kind, call.resource):
            new = await self._received(call, new)
        if kind.default is not None:
            kind.default(new)
        self._prepare(kind, new)
        self._track(call, new, None)  # before admission: as upstream, nobody owns what reviewers add
        owners = new["metadata"].pop("managedFields", None)
        request = call.request("CREATE", new, None)
        if self.chain.mutates:
            await self.chain.mutate(request, call.warnings)
            new = request.object or new
            self._check_types(call, new)
            if kind.default is not None:
                kind.default(new)
        meta = new["metadata"]
        faults = rules_of_metadata.create_faults(kind, meta)
        if kind.validate is not None:
            faults = [*faults, *kind.validate(new, None)]
        faults = [*faults, *self.chain.faults(request, faults)]
        if faults:
            raise invalid_object(kind.group, kind.kind, call.name, faults)
        self._warn(call, new, None)
        if rules.is_namespace(kind):
            namespaces.label(new)
        await self.chain.validate(request, call.warnings)
        if inside is not None and self._namespace(call) is not inside:  # it changed while reviewers were awaited
            self.check_namespace(call)
        before = self.latest(kind, call.namespace, call.name)
        if before is not None:
            raise self.taken(call, before)
        if owners is not None:
            new["metadata"]["managedFields"] = owners
        self.chain.finish(request, call.warnings)
        if call.dry_run:
            return await call.answer(new, None, created=True)
        new, stored = self.ledger.put(kind, new, None)
        if call.repeats is not None and self.creations is not None:
            self.creations.learn_creation(call, request, stored)
        await self.ledger.settled()
        return await call.answer(new, stored, created=True)

    def create_equal(
        self,
        call: Call,
        name: str,
        prefix: str,
        content: bytes | PodContent,
        labels: Mapping[str, str],
        fields: tuple[str, ...] | None = None,
    ) -> Written:
        """Creates an object that has been reviewed, with a name that is given or generated. It need not be durable yet."""
        uid = self.identities.uid()
        call.name = name or self.identities.name(prefix)
        self.check_namespace(call)
        if (before := self.latest(call.kind, call.namespace, call.name)) is not None:
            raise self.taken(call, before)
        stored = self.ledger.put_content(call.kind, call.namespace, call.name, uid, content, None, labels, fields)
        return Written(None, stored, True)

    def learnt(self, call: Call, request: Request) -> RepeatableWrite | None:
        """A write that was done in full, if later ones may repeat it."""
        write, call.repeats = call.repeats, None
        if write is None or call.warnings or len(call.audit or ()) != write.annotations:
            return None
        return write if self.chain.repeats(request) else None

    async def _received(self, call: Call, document: Document) -> Document:
        """A caller's document in the storage version. As upstream, it must be valid in the version in which it was given."""
        kind, resource = call.kind, call.resource
        if kind.conversion is None or stored_as_is(kind, resource):
            return incoming(kind, resource, document)
        faults = kind.conversion.faults(identified(resource, document), resource.version)
        if faults:
            raise invalid_object(kind.group, kind.kind, call.name, faults)
        return await converted(lambda: incoming(kind, resource, document))

    def _check_types(self, call: Call, new: Document) -> None:
        """Checks the types of metadata fields, which a client or a mutating webhook may have got wrong."""
        meta = new.get("metadata")
        if not isinstance(meta, dict):
            faults = [wrong_type("metadata", meta, "object")]
        else:
            faults = rules_of_metadata.type_faults(meta)
        if faults:
            name = call.name or (str(meta.get("name", "")) if isinstance(meta, dict) else "")
            raise invalid_object(call.kind.group, call.kind.kind, name, faults)

    def _prepare(self, kind: Kind, new: Document) -> None:
        if kind.status and not kind.status_on_create:
            new.pop("status", None)
        if kind.prepare_create is not None:
            kind.prepare_create(new)

    def _agree_namespace(self, call: Call, meta: Document) -> str:
        if not call.kind.namespaced:
            meta.pop("namespace", None)
            return ""
        own = meta.get("namespace", "")
        wanted = call.namespace or own
        if not wanted:
            raise BadRequest("an empty namespace may not be set during creation")
        if own and own != wanted:
            raise BadRequest(_OTHER_NAMESPACE)
        meta["namespace"] = wanted
        return str(wanted)

    def _namespace(self, call: Call) -> StoredObject | None:
        namespace_kind = self.registry.of_plural(NAMESPACES.group, NAMESPACES.plural)
        return None if namespace_kind is None else self.latest(namespace_kind, "", call.namespace)

    def check_namespace(self, call: Call) -> StoredObject | None:
        """Returns the namespace of a new object; None only if the registry has no namespaces."""
        stored = self._namespace(call)
        if stored is None:
            if self.registry.of_plural(NAMESPACES.group, NAMESPACES.plural) is None:
                return None
            raise not_found("", "namespaces", call.namespace)
        if namespaces.terminating(stored):
            why = f"unable to create new content in namespace {call.namespace} because it is being terminated"
            error = forbidden(call.resource.group, call.kind.plural, call.name, why)
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {call.namespace} is being terminated",
                "field": "metadata.namespace",
            }
            error.details["causes"] = [cause]
            raise error
        return stored

    def taken(self, call: Call, before: StoredObject) -> AlreadyExists:
        error = already_exists(call.resource.group, call.kind.plural, call.name)
        if before.document()["metadata"].get("deletionTimestamp"):
            error.message = f"object is being deleted: {error.message}"
            error.args = (error.message,)
        return error

    async def update(self, call: Call, document: Any) -> Written:
        own = document.get("metadata") if isinstance(document, dict) else None
        if not isinstance(own, dict):
            raise BadRequest(f"the object provided is unrecognized (must be of type {call.resource.kind})")
        if not call.name:
            call.name = own.get("name") or ""
        if not call.name:
            raise BadRequest("name must be provided")
        _check_name(call, own)
        if call.kind.namespaced:
            call.namespace = call.namespace or own.get("namespace") or ""
            if own.get("namespace") and own["namespace"] != call.namespace:
                raise BadRequest(_OTHER_NAMESPACE)
        before = self.latest(call.kind, call.namespace, call.name)
        if before is None and not call.subresource and call.kind.create_on_update:
            given = {**document, "metadata": {**own, "name": call.name}}
            given["metadata"].pop("resourceVersion", None)
            return await self.create(call, given)
        if own.get("uid") and before is not None and own["uid"] != before.uid:
            why = f"Precondition failed: UID in precondition: {own['uid']}, UID in object meta: {before.uid}"
            raise conflict(call.resource.group, call.kind.plural, call.name, why)
        return await self.change(call, lambda _: copy(document, call.kind), update=True)

    async def change(self, call: Call, change: ChangeFn, *, update: bool = False) -> Written:
        """Applies a change to the current object, and again if the object changed meanwhile.

        An update with a resource version fails with a conflict then, which the caller has to resolve.
        """
        for attempt in range(_ATTEMPTS):
            try:
                return await self._change(call, change, update)
            except Overtaken:
                if attempt == _ATTEMPTS - 1:
                    break
        raise conflict(call.resource.group, call.kind.plural, call.name)

    async def _change(self, call: Call, change: ChangeFn, update: bool) -> Written:
        kind = call.kind
        stored = self.existing(call)
        if kind.conversion is None:
            old = current(kind, stored)
            new = incoming(kind, call.resource, change(outgoing(kind, call.resource, current(kind, stored))))
        else:
            old = await converted(lambda: current(kind, stored))
            shown = await converted(lambda: outgoing(kind, call.resource, current(kind, stored)))
            new = await self._received(call, change(shown))
        meta = new["metadata"]
        self._check_types(call, new)
        call.owners = meta.get("managedFields")
        _check_name(call, meta)
        if kind.namespaced:
            if meta.setdefault("namespace", call.namespace) != call.namespace:
                raise BadRequest(_OTHER_NAMESPACE)
        else:
            meta.pop("namespace", None)
        self._check_version(call, meta, stored, update)
        self._seal(call, new, old)
        default = kind.defaulter(call.subresource)
        if default is not None:
            default(new)
        request = call.request("UPDATE", new, old)
        request.verb = "update" if update else "patch"
        if self.chain.mutates:
            await self.chain.mutate(request, call.warnings)
            new = request.object or new
            self._check_types(call, new)
            if default is not None:
                default(new)
            self._seal(call, new, old)
        if kind.generation and _counts(kind, new, old):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        faults = rules_of_metadata.update_faults(kind, new["metadata"], old["metadata"])
        validate = kind.validator(call.subresource)
        if validate is not None:
            faults = faults + validate(new, old)
        faults = [*faults, *self.chain.faults(request, faults)]
        if faults:
            raise invalid_object(kind.group, kind.kind, call.name, faults)
        self._warn(call, new, old)
        await self.chain.validate(request, call.warnings)
        if self.latest(kind, call.namespace, call.name) is not stored:
            raise Overtaken
        self._track(call, new, old)
        self.chain.finish(request, call.warnings)
        written = await self.write(call, new, old, stored)
        if call.repeats is not None and self.repeated is not None:
            after = self.latest(kind, call.namespace, call.name)
            if after is not None and after is not stored:
                self.repeated.learn_patch(call, request, stored, after)
        return written

    def _warn(self, call: Call, new: Document, old: Document | None) -> None:
        """Warnings are for users; our own components, which write without a field manager, do not read them."""
        warn = call.kind.warn
        if warn is not None and call.options.get("fieldManager") and not call.subresource:
            call.warnings += warn(new, old)

    def _track(self, call: Call, new: Document, old: Document | None) -> None:
        track(
            call.kind,
            # Documents are tracked as they are stored. Only `apply` has seen the requested version.
            call.resource if call.kind.conversion is None or call.applied is not None else call.kind.storage,
            new,
            old,
            manager=str(call.options.get("fieldManager") or ""),
            subresource=call.subresource,
            applied=call.applied,
            given=call.owners,
            now=self.identities.time(),
        )

    def _check_version(self, call: Call, meta: Document, stored: StoredObject, update: bool) -> None:
        given = meta.get("resourceVersion") or ""
        if given in ("", "0"):
            if update and call.kind.needs_version:
                fault = invalid("metadata.resourceVersion", 0, "must be specified for an update")
                raise invalid_object(call.resource.group, call.kind.plural, call.name, [fault])
        elif (version := parse_uint64(given)) is None:
            fault = invalid("metadata.resourceVersion", given, f'strconv.ParseUint: parsing "{given}": invalid syntax')
            raise invalid_object(call.resource.group, call.kind.plural, call.name, [fault])
        elif version != stored.version:
            raise conflict(call.resource.group, call.kind.plural, call.name)
        meta["resourceVersion"] = str(stored.version)

    def _seal(self, call: Call, new: Document, old: Document) -> None:
        """Restores the fields that this request cannot change."""
        metadata.keep_server_fields(new, old)
        rules.separate(call.kind, call.subresource, new, old)

    async def write(self, call: Call, new: Document, old: Document, stored: StoredObject) -> Written:
        """Writes the new state. An unchanged state is not written; one whose last finalizer is gone is a removal."""
        if _finished(call.kind, new, old):
            return await self._remove(call, new, stored)
        if new == old:
            await self.ledger.settled()
            return await call.answer(new, stored)
        if call.dry_run:
            return await call.answer(new, None)
        new, written = self.ledger.put(call.kind, new, stored)
        await self.ledger.settled()
        return await call.answer(new, written)

    async def _remove(self, call: Call, new: Document, stored: StoredObject) -> Written:
        if not call.dry_run:
            self.ledger.remove(call.kind, stored)
            await self.ledger.settled()
        return replace(await call.answer(new, None), deleted=True)


def _counts(kind: Kind, new: Document, old: Document) -> bool:
    """Whether a change increments metadata.generation; changes of metadata and of a status subresource do not."""
    if kind.annotations_in_generation and new["metadata"].get("annotations") != old["metadata"].get("annotations"):
        return True
    silent = ("apiVersion", "kind", "metadata", "status") if kind.status else ("apiVersion", "kind", "metadata")
    return any(new.get(name) != old.get(name) for name in new.keys() | old.keys() if name not in silent)


def _finished(kind: Kind, new: Document, old: Document) -> bool:
    """Whether the last finalizer of a deleted object was removed."""
    before = old["metadata"]
    return bool(
        before.get("deletionTimestamp")
        and not new["metadata"].get("finalizers")
        and not before.get("deletionGracePeriodSeconds")
        and not (rules.is_namespace(kind) and (new.get("spec") or {}).get("finalizers"))
    )
