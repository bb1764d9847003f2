"""Writes that repeat earlier ones: of fifty pods of a ReplicaSet, only the first goes through admission and validation.

The pods of a workload are created and reported in the same way, and so are their events. Such writes differ in names,
uids, nodes and addresses, which no rule treats differently as long as they are well-formed. What became of the first write
is remembered, and a repetition is written as bytes, without decoding the object. (Bindings are always written as bytes.)

An outcome is remembered only if no reviewer looks at anything but the request and settings (`Chain.repeats`), and only
until a setting changes: an object of any kind but those that change all the time. It also has the time of the write, so it
is forgotten at the end of that second. Before it is remembered, the repetition is computed for the first write too, and
must give the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from wharfinger.admission.request import Request
from wharfinger.api.kinds.builtin import EVENTS, PODS
from wharfinger.api.known_specs import spec_pattern
from wharfinger.api.names import dns_label, dns_subdomain
from wharfinger.api.registry import Document, Kind
from wharfinger.api.requests import PatchType
from wharfinger.store.objects import StoredObject, Written, encode, head_of
from wharfinger.store.pod_bytes import PodBytes, split_pod
from wharfinger.store.writes import Call, RepeatableWrite, Writer

_MOST = 8192  # remembered outcomes
_MOST_BYTES = 16 * 1024 * 1024  # of their requests and objects
_LONGEST = 32 * 1024  # bytes of an object that is remembered
_ADDRESS = b'"$address"'  # in place of the address of a pod
_NO_LABELS: Mapping[str, str] = {}
_TEXTS = ("name", "uid", "resourceVersion")  # of the object that an event is about
_EVENT_METADATA = {"name", "namespace"}


class _Outcome(msgspec.Struct, frozen=True, gc=False):
    """What became of a write: the status of a changed pod, or what follows the identity of a new object."""

    data: bytes
    labels: Mapping[str, str] = _NO_LABELS
    fields: tuple[str, ...] | None = None


class RepeatedWrites:
    """The outcomes of earlier writes to one store, by everything that they depend on."""

    def __init__(self, writer: Writer, sightings: int = 1) -> None:
        """An outcome is remembered when the same write was seen so often, 1 or 2 times: to remember it takes time, which is
        lost if all writes differ."""
        self._writer = writer
        self._at_once = sightings < 2
        self._seen: set[int] = set()  # hashes of writes of the epoch
        self._epoch: tuple[object, ...] = ()
        self._known: dict[tuple[object, ...], _Outcome] = {}  # of the epoch
        self._bytes = 0  # of requests and outcomes

    # -- creations

    def create(self, call: Call, document: Document) -> Written | None:
        """Creates a pod or an event as an earlier one; None if that has to be done in full."""
        if not _is_plain(call) or not isinstance(document, dict):
            return None
        if call.resource == PODS:
            return self._create_pod(call, document)
        if call.resource == EVENTS and not call.options:
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
                self._remember(write, _Outcome(b""))
        elif stored.name.encode() not in rest and stored.uid.encode() not in rest and len(rest) < len(stored.data):
            self._remember(write, _Outcome(rest, stored.labels, stored._fields))

    def _create_pod(self, call: Call, document: Document) -> Written | None:
        """The name is generated, or given and certain to be valid."""
        metadata = document.get("metadata")
        if not isinstance(metadata, dict) or not call.namespace or metadata.get("uid"):
            return None
        name, prefix = metadata.get("name"), metadata.get("generateName")
        if name:
            if type(name) is not str or dns_label(name) or call.name not in ("", name):
                return None
            document = {**document, "metadata": {**metadata, "name": ""}}
        elif not prefix or type(prefix) is not str:
            return None
        key = self._key(call, "create", document)
        if key is None:
            return None
        known = self._known.get(key)
        if known is None:
            call.repeats = self._repeatable(call, key, document)
            return None
        identities = self._writer.identities
        uid = identities.uid()
        call.name = name or identities.name(str(prefix))
        self._writer.check_namespace(call)
        if (before := self._writer.latest(call.kind, call.namespace, call.name)) is not None:
            raise self._writer.taken(call, before)
        stored = self._writer.ledger.put_data(
            call.kind, call.namespace, call.name, uid, known.data, None, known.labels, known.fields
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
        key = self._key(call, "create", shape)
        if key is None:
            return None
        if key not in self._known:
            call.repeats = self._repeatable(call, key, document)
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
        stored = self._writer.ledger.put_data(call.kind, call.namespace, name, uid, rest, None, _NO_LABELS, None)
        return Written(None, stored.data, True)

    def _event_rest(self, document: Document) -> bytes:
        rest = {name: value for name, value in document.items() if name not in ("apiVersion", "kind", "metadata")}
        return b',"creationTimestamp":"%b"},%b' % (self._writer.identities.time().encode(), encode(rest)[1:])

    # -- changes of pods

    def patch(self, call: Call, patch: Any, type: PatchType) -> Written | None:
        """Changes the status of a pod as that of an earlier one; None if that has to be done in full."""
        if call.subresource != "status" or call.resource != PODS or type is not PatchType.STRATEGIC:
            return None
        if not _is_plain(call, "status") or call.options or not isinstance(patch, dict):
            return None
        if patch.keys() != {"metadata", "status"}:
            return None
        stored = self._writer.latest(call.kind, call.namespace, call.name)
        if stored is None or patch["metadata"] != {"uid": stored.uid} or not isinstance(patch["status"], dict):
            return None
        parts = _parts(call.kind, stored)
        if parts is None or b'"managedFields"' in parts.middle:
            return None
        change, address = encode(patch["status"]), _address(patch["status"])
        if address:
            if address in parts.status:
                return None
            change = change.replace(address, _ADDRESS)
        key = self._key(call, "status", change, spec_pattern(parts.middle).data, parts.status)
        if key is None:
            return None
        known = self._known.get(key)
        if known is None:
            call.repeats = self._repeatable(call, key, patch)
            return None
        status = known.data.replace(_ADDRESS, address) if address else known.data
        after = self._writer.ledger.replace(call.kind, stored, b"%b%b}" % (parts.middle, status))
        return Written(None, after.data)

    def learn_patch(self, call: Call, request: Request, before: StoredObject, after: StoredObject) -> None:
        """Remembers what became of a change of a status that was done in full."""
        write = self._learnt(call, request)
        if write is None:
            return
        old, new = _parts(call.kind, before), _parts(call.kind, after)
        if old is not None and new is not None and old.middle == new.middle and _ADDRESS not in new.status:
            address = _address(write.given["status"])
            self._remember(write, _Outcome(new.status.replace(address, _ADDRESS) if address else new.status))

    # -- what is remembered

    def _key(self, call: Call, what: str, given: Any, *before: bytes) -> tuple[object, ...] | None:
        """What the outcome of a write depends on within an epoch; None if that is too long, or cannot be encoded."""
        self._begin_epoch()
        try:
            data = given if isinstance(given, bytes) else encode(given)
        except (TypeError, ValueError, msgspec.MsgspecError):
            return None
        if len(data) > _LONGEST or any(len(part) > _LONGEST for part in before):
            return None
        user = call.user
        manager = call.options.get("fieldManager") if call.options else None
        extra = tuple(user.extra.items()) if user.extra else ()
        return (what, data, *before, call.namespace, manager, user.name, user.groups, user.uid, extra)

    def _begin_epoch(self) -> None:
        """What every outcome depends on: the settings, the reviewers, which may be added while the chain is in use, and the
        time, which new objects and conditions have in seconds."""
        writer = self._writer
        epoch = (writer.ledger.settings, writer.identities.time(), writer.chain.size)
        if epoch != self._epoch:
            self._epoch, self._bytes = epoch, 0
            self._known.clear()
            self._seen.clear()

    def _repeatable(self, call: Call, key: tuple[object, ...], given: Any) -> RepeatableWrite | None:
        if not self._at_once and (seen := hash(key)) not in self._seen:
            self._seen.add(seen)
            return None
        return RepeatableWrite(self._epoch, key, given, len(call.audit or ()))

    def _learnt(self, call: Call, request: Request) -> RepeatableWrite | None:
        write, call.repeats = call.repeats, None
        if write is None or call.warnings or len(call.audit or ()) != write.annotations:
            return None
        return write if self._writer.chain.repeats(request) else None

    def _remember(self, write: RepeatableWrite, outcome: _Outcome) -> None:
        self._begin_epoch()
        size = len(outcome.data) + sum(len(part) for part in write.key if isinstance(part, bytes))
        if write.epoch != self._epoch or len(outcome.data) > _LONGEST:
            return
        if len(self._known) >= _MOST or self._bytes + size > _MOST_BYTES:
            self._known.clear()
            self._bytes = 0
        self._known[write.key] = outcome
        self._bytes += size


def _is_plain(call: Call, subresource: str = "") -> bool:
    return call.subresource == subresource and not call.dry_run and call.options.keys() <= _PLAIN_OPTIONS


_PLAIN_OPTIONS = {"fieldManager"}


def _head(kind: Kind, stored: StoredObject, version: int) -> bytes:
    return head_of(kind.storage, stored.namespace, stored.name, stored.uid, version)


def _parts(kind: Kind, stored: StoredObject) -> PodBytes | None:
    """None if the pod has something that takes part in more rules, or is not stored in the usual order."""
    return None if b'"deletionTimestamp"' in stored.data else split_pod(kind, stored)


def _address(status: Document) -> bytes:
    """The address of a pod as JSON; empty if it gets none."""
    address = status.get("podIP")
    return encode(address) if type(address) is str and address else b""
