"""Writes that repeat earlier ones: of fifty pods of a ReplicaSet, only the first goes through admission and validation.

The pods of a workload are created, bound and reported in the same way, and so are their events. Such writes differ in
names, uids, nodes and addresses, which no rule treats differently as long as they are well-formed. What became of the first
write is remembered, and a repetition is written as bytes, without decoding the object.

An outcome is remembered only if no reviewer looks at anything but the request and settings (`Chain.repeats`), and only
until a setting changes: an object of any kind but those that change all the time. Before it is remembered, the repetition
is computed for the first write too, and must give the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from wharfinger.admission.request import Request
from wharfinger.api.kinds.builtin import EVENTS, PODS
from wharfinger.api.known_specs import spec_pattern
from wharfinger.api.names import dns_subdomain
from wharfinger.api.registry import Document, Kind
from wharfinger.api.requests import PatchType
from wharfinger.store.objects import StoredObject, Written, encode, head_of
from wharfinger.store.writes import Call, RepeatableWrite, Writer

_MOST = 8192  # remembered outcomes
_ADDRESS = b'"$address"'  # in place of the address of a pod
_END_OF_SPEC = b'},"status":'
_NO_LABELS: Mapping[str, str] = {}
_TEXTS = ("name", "uid", "resourceVersion")  # of the object that an event is about
_EVENT_METADATA = {"name", "namespace"}
_BINDING_METADATA = {"name", "namespace", "uid"}


class _Status(msgspec.Struct, gc=False):
    status: msgspec.Raw = msgspec.Raw()


_decode_status = msgspec.json.Decoder(_Status).decode


class _Parts(msgspec.Struct, frozen=True, gc=False):
    """A stored pod as bytes: the head with its identity and version, the rest of metadata and spec, and the status."""

    middle: bytes
    status: bytes
    pattern: bytes  # the middle without the name of the node


class RepeatedWrites:
    """The outcomes of earlier writes to one store, by everything that they depend on."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._known: dict[tuple[object, ...], bytes] = {}
        self._labels: dict[bytes, Mapping[str, str]] = {}  # of new pods, by what follows their identity
        self._moment: tuple[int, str] = (0, "")  # the settings and the time of what is remembered

    # -- creations

    def create(self, call: Call, document: Document) -> Written | None:
        """Creates a pod or an event as an earlier one; None if that has to be done in full."""
        if not _is_plain(call) or not isinstance(document, dict):
            return None
        if call.resource == PODS:
            return self._create_pod(call, document)
        if call.resource == EVENTS:
            return self._create_event(call, document)
        return None

    def learn_creation(self, call: Call, request: Request, stored: StoredObject) -> None:
        """Remembers what became of a creation that was done in full."""
        write = self._learnt(call, request)
        if write is None:
            return
        rest = stored.data.removeprefix(_head(call.kind, stored, stored.version))
        if call.resource == EVENTS:
            if rest == self._event_rest(write.given):
                self._remember(write, b"")
        elif stored.name.encode() not in rest and stored.uid.encode() not in rest and len(rest) < len(stored.data):
            self._remember(write, rest)
            self._labels[rest] = stored.labels

    def _create_pod(self, call: Call, document: Document) -> Written | None:
        """Only pods with generated names and uids, which are new and valid."""
        metadata = document.get("metadata")
        prefix = metadata.get("generateName") if isinstance(metadata, dict) else None
        if not isinstance(metadata, dict) or not isinstance(prefix, str) or not prefix:
            return None
        if metadata.get("name") or metadata.get("uid"):
            return None
        try:
            key = (*self._basis(call), encode(document))
        except (TypeError, ValueError, msgspec.MsgspecError):
            return None
        rest = self._known.get(key)
        if rest is None or not call.namespace:
            call.repeats = RepeatableWrite(key, document)
            return None
        identities = self._writer.identities
        uid = identities.uid()
        call.name = identities.name(prefix)
        self._writer.check_namespace(call)
        if (before := self._writer.latest(call.kind, call.namespace, call.name)) is not None:
            raise self._writer.taken(call, before)
        stored = self._writer.ledger.put_data(
            call.kind, call.namespace, call.name, uid, rest, None, self._labels.get(rest, _NO_LABELS)
        )
        return Written(None, stored.data, True)

    def _create_event(self, call: Call, document: Document) -> Written | None:
        """Events differ in what they are about and in their message, which may be any text."""
        metadata, about, message = document.get("metadata"), document.get("involvedObject"), document.get("message")
        if not isinstance(metadata, dict) or metadata.keys() != _EVENT_METADATA or type(message) is not str:
            return None
        name = metadata["name"]
        if not isinstance(about, dict) or type(name) is not str or metadata["namespace"] != call.namespace:
            return None
        if not all(type(about.get(field)) is str and about[field] for field in _TEXTS):
            return None
        shape = {
            **document,
            "metadata": None,
            "involvedObject": {**about, "name": "", "uid": "", "resourceVersion": ""},
            "message": "",
        }
        key = (*self._basis(call), encode(shape))
        if key not in self._known:
            call.repeats = RepeatableWrite(key, document)
            return None
        rest = self._event_rest(document)
        if (
            b"null" in rest
            or (call.kind.name_faults or dns_subdomain)(name)
            or self._writer.latest(call.kind, call.namespace, name) is not None
        ):
            return None
        uid = self._writer.identities.uid()
        self._writer.check_namespace(call)
        stored = self._writer.ledger.put_data(call.kind, call.namespace, name, uid, rest, None, _NO_LABELS)
        return Written(None, stored.data, True)

    def _event_rest(self, document: Document) -> bytes:
        rest = {name: value for name, value in document.items() if name not in ("apiVersion", "kind", "metadata")}
        return b',"creationTimestamp":"%b"},%b' % (self._writer.identities.time().encode(), encode(rest)[1:])

    # -- changes of pods

    def patch(self, call: Call, patch: Any, type: PatchType) -> Written | None:
        """Changes the status of a pod as that of an earlier one; None if that has to be done in full."""
        if call.subresource != "status" or call.resource != PODS or type is not PatchType.STRATEGIC:
            return None
        if not _is_plain(call, "status") or not isinstance(patch, dict) or patch.keys() != {"metadata", "status"}:
            return None
        stored = self._writer.latest(call.kind, call.namespace, call.name)
        if stored is None or patch["metadata"] != {"uid": stored.uid} or not isinstance(patch["status"], dict):
            return None
        parts = _parts(call.kind, stored)
        if parts is None:
            return None
        change, address = encode(patch["status"]), _address(patch["status"])
        if address:
            if address in parts.status:
                return None
            change = change.replace(address, _ADDRESS)
        key = (*self._basis(call), "status", parts.pattern, parts.status, change)
        known = self._known.get(key)
        if known is None:
            call.repeats = RepeatableWrite(key, patch)
            return None
        status = known.replace(_ADDRESS, address) if address else known
        return Written(None, self._put(call, stored, parts.middle, status).data)

    def learn_patch(self, call: Call, request: Request, before: StoredObject, after: StoredObject) -> None:
        """Remembers what became of a change of a status that was done in full."""
        write = self._learnt(call, request)
        if write is None:
            return
        old, new = _parts(call.kind, before), _parts(call.kind, after)
        if old is not None and new is not None and old.middle == new.middle and _ADDRESS not in new.status:
            address = _address(write.given["status"])
            self._remember(write, new.status.replace(address, _ADDRESS) if address else new.status)

    def bind(self, call: Call, document: Document) -> bool:
        """Binds a pod as an earlier one; False if that has to be done in full."""
        if call.resource != PODS or not _is_plain(call, "binding") or not isinstance(document, dict):
            return False
        metadata, target = document.get("metadata"), document.get("target")
        if not isinstance(metadata, dict) or metadata.keys() != _BINDING_METADATA or not isinstance(target, dict):
            return False
        stored = self._writer.latest(call.kind, call.namespace, call.name)
        identity = {"name": call.name, "namespace": call.namespace}
        if stored is None or metadata != {**identity, "uid": stored.uid}:
            return False
        parts = _parts(call.kind, stored)
        middle = None if parts is None else _bound(parts.middle, target.get("name"))
        if parts is None or middle is None:
            return False
        shape = encode({**document, "metadata": None, "target": {**target, "name": ""}})
        key = (*self._basis(call), "binding", parts.pattern, parts.status, shape)
        status = self._known.get(key)
        if status is None:
            call.repeats = RepeatableWrite(key, document)
            return False
        self._put(call, stored, middle, status)
        return True

    def learn_binding(self, call: Call, request: Request, before: StoredObject, after: StoredObject) -> None:
        """Remembers what became of a binding that was done in full."""
        write = self._learnt(call, request)
        if write is None:
            return
        old, new = _parts(call.kind, before), _parts(call.kind, after)
        if old is not None and new is not None and new.middle == _bound(old.middle, write.given["target"]["name"]):
            self._remember(write, new.status)

    def _put(self, call: Call, stored: StoredObject, middle: bytes, status: bytes) -> StoredObject:
        rest = b"%b%b}" % (middle, status)
        return self._writer.ledger.put_data(
            call.kind, stored.namespace, stored.name, stored.uid, rest, stored, stored.labels
        )

    # -- what is remembered

    def _basis(self, call: Call) -> tuple[object, ...]:
        """What every outcome depends on. New objects and conditions have the time, in seconds; reviewers may be added while
        the chain is in use."""
        chain = self._writer.chain
        moment = (self._writer.ledger.settings, self._writer.identities.time())
        if moment != self._moment:
            self._moment = moment
            self._forget()  # none of it applies any more
        return (
            call.namespace,
            call.user.name,
            call.user.groups,
            *moment,
            len(chain.mutating),
            len(chain.validating),
            len(chain.final),
        )

    def _learnt(self, call: Call, request: Request) -> RepeatableWrite | None:
        write, call.repeats = call.repeats, None
        if write is None or call.warnings or not self._writer.chain.repeats(request):
            return None
        return write

    def _remember(self, write: RepeatableWrite, outcome: bytes) -> None:
        if len(self._known) >= _MOST:
            self._forget()
        self._known[write.key] = outcome

    def _forget(self) -> None:
        self._known.clear()
        self._labels.clear()


def _is_plain(call: Call, subresource: str = "") -> bool:
    return not (
        call.subresource != subresource
        or call.dry_run
        or call.options
        or call.audit is not None
        or call.user.extra
        or call.user.uid
    )


def _head(kind: Kind, stored: StoredObject, version: int) -> bytes:
    return head_of(kind.storage, stored.namespace, stored.name, stored.uid, version)


def _parts(kind: Kind, stored: StoredObject) -> _Parts | None:
    """None if the pod has something that takes part in more rules, or is not stored in the usual order."""
    data = stored.data
    head = _head(kind, stored, stored.version)
    if b'"managedFields"' in data or b'"deletionTimestamp"' in data or not data.startswith(head):
        return None
    status = bytes(_decode_status(data).status)
    if not status or not data.endswith(b'"status":%b}' % status):
        return None
    middle = data[len(head) : -len(status) - 1]
    return _Parts(middle, status, spec_pattern(middle).data)


def _bound(middle: bytes, node: object) -> bytes | None:
    """Metadata and spec of a pod with the name of a node at the end; None if it cannot be bound so."""
    if type(node) is not str or dns_subdomain(node) or len(node) > 63:
        return None
    if b'"nodeName"' in middle or b'"schedulingGates"' in middle or not middle.endswith(_END_OF_SPEC):
        return None
    return b'%b,"nodeName":"%b"%b' % (middle.removesuffix(_END_OF_SPEC), node.encode(), _END_OF_SPEC)


def _address(status: Document) -> bytes:
    """The address of a pod as JSON; empty if it gets none."""
    address = status.get("podIP")
    return encode(address) if type(address) is str and address else b""
