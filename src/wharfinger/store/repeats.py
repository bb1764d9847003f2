"""Writes that repeat earlier ones: of fifty pods of a ReplicaSet, only the first goes through admission and validation.

The pods of a workload are created, bound and reported in the same way, and so are their events. Such writes differ in
names, uids, nodes and addresses, which no rule treats differently as long as they are well-formed. What became of the first
write is remembered, and a repetition is written without decoding or encoding the object: see `wharfinger.store.contents`.

An outcome is remembered only if no reviewer looks at anything but the request and settings (`Chain.repeats`), and only
until a setting changes: an object of any kind but those that change all the time. Before it is remembered, the repetition
is computed for the first write too, and must give the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from wharfinger.admission.request import Request
from wharfinger.api.kinds.builtin import EVENTS, PODS
from wharfinger.api.known_specs import spec_pattern
from wharfinger.api.names import dns_subdomain
from wharfinger.api.registry import Document, Kind
from wharfinger.api.requests import PatchType
from wharfinger.api.views.pods import Pod
from wharfinger.store.contents import (
    ADDRESS,
    END_OF_SPEC,
    NOW,
    CommonPod,
    EventContent,
    EventPattern,
    PodContent,
    StatusPattern,
    address_in,
    status_pattern,
)
from wharfinger.store.objects import StoredObject, Written, encode
from wharfinger.store.pod_bytes import bound_middle, split_pod
from wharfinger.store.writes import Call, RepeatableWrite, Writer

O = TypeVar("O")  # noqa: E741 - an outcome
OutcomeKey = tuple[object, ...]

_MOST = 8192  # remembered outcomes
_NO_LABELS: Mapping[str, str] = {}
_TEXTS = ("name", "uid", "resourceVersion")  # of the object that an event is about
_EVENT_TIMES = ("firstTimestamp", "lastTimestamp")
_EVENT_METADATA = {"name", "namespace"}
_BINDING_METADATA = {"name", "namespace", "uid"}


class _Parts(msgspec.Struct, frozen=True, gc=False):
    """A stored pod as bytes, without the head with its identity and version: the rest of metadata and spec, and the
    status."""

    middle: bytes  # empty for a pod that is not stored as bytes
    pattern: bytes  # the middle without the name of the node
    status: bytes  # with `ADDRESS` in place of the address
    address: bytes  # as JSON; empty if it has none


class RepeatedWrites:
    """The outcomes of earlier writes to one store, by everything that they depend on."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._pods: dict[OutcomeKey, PodContent] = {}  # of creations
        self._statuses: dict[OutcomeKey, StatusPattern] = {}  # of bindings and status patches
        self._events: dict[OutcomeKey, EventPattern] = {}
        self._settings, self._time = 0, ""  # when what is remembered was so

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
        write = self._writer.learnt(call, request)
        if write is None:
            return
        if call.resource == EVENTS:
            time = self._writer.identities.time()
            pattern = _event_pattern(write.given, time)
            if pattern is not None and stored.data == _encoded(
                EventContent(pattern, _texts(write.given), time), stored
            ):
                _remember(self._events, write, pattern)
            return
        content = _new_pod(call.kind, stored)
        if content is not None and stored.data == _encoded(content, stored):
            _remember(self._pods, write, content)

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
        content = self._pods.get(key)
        if content is None or not call.namespace:
            call.repeats = RepeatableWrite(key, document)
            return None
        return self._writer.create_equal(call, "", prefix, content, content.common.labels)

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
        time = self._writer.identities.time()
        key = (*self._basis(call, timed=False), encode(_event_shape(document, time, "", "", "", "")))
        pattern = self._events.get(key)
        if pattern is None:
            call.repeats = RepeatableWrite(key, document)
            return None
        if (call.kind.name_faults or dns_subdomain)(name):
            return None
        if self._writer.latest(call.kind, call.namespace, name) is not None:
            return None
        uid = self._writer.identities.uid()
        self._writer.check_namespace(call)
        content = EventContent(pattern, _texts(document), time)
        stored = self._writer.ledger.put_content(call.kind, call.namespace, name, uid, content, None, _NO_LABELS)
        return Written(None, stored, True)

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
        found = _state(call.kind, stored)
        if found is None:
            return None
        change, address = encode(patch["status"]), _address(patch["status"]) or found.address
        if found.address not in (b"", address) or b"\\" in address:
            return None
        if address:
            change = change.replace(address, ADDRESS)
        key = (*self._basis(call), "status", found.pattern, found.status, change)
        known = self._statuses.get(key)
        if known is None:
            call.repeats = RepeatableWrite(key, patch)
            return None
        content = stored.content
        if isinstance(content, PodContent):
            after: bytes | PodContent = PodContent(content.common, known, content.node, address, content.token)
        else:
            after = b"%b%b}" % (found.middle, known.data.replace(ADDRESS, address) if address else known.data)
        return Written(None, self._writer.ledger.replace(call.kind, stored, after))

    def learn_patch(self, call: Call, request: Request, before: StoredObject, after: StoredObject) -> None:
        """Remembers what became of a change of a status that was done in full."""
        write = self._writer.learnt(call, request)
        if write is None:
            return
        old, new = _parts(call.kind, before), _parts(call.kind, after)
        if old is None or new is None or old.middle != new.middle or ADDRESS in after.data:
            return
        address = _address(write.given["status"]) or old.address
        _remember(self._statuses, write, status_pattern(_filled(new), address))

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
        found = _state(call.kind, stored)
        node = target.get("name")
        if found is None or type(node) is not str or dns_subdomain(node) or len(node) > 63:
            return False
        shape = encode({**document, "metadata": None, "target": {**target, "name": ""}})
        key = (*self._basis(call), "binding", found.pattern, found.status, shape)
        known = self._statuses.get(key)
        if known is None:
            call.repeats = RepeatableWrite(key, document)
            return False
        content = stored.content
        if isinstance(content, PodContent):
            if content.node or not content.common.before or found.address:
                return False
            self._writer.ledger.replace(call.kind, stored, PodContent(content.common, known, node))
            return True
        middle = _bound(found.middle, node)
        if middle is None or found.address:
            return False
        self._writer.ledger.replace(call.kind, stored, b"%b%b}" % (middle, known.data))
        return True

    def learn_binding(self, call: Call, request: Request, before: StoredObject, after: StoredObject) -> None:
        """Remembers what became of a binding that was done in full."""
        write = self._writer.learnt(call, request)
        if write is None:
            return
        old, new = _parts(call.kind, before), _parts(call.kind, after)
        if old is not None and new is not None and new.middle == _bound(old.middle, write.given["target"]["name"]):
            _remember(self._statuses, write, status_pattern(_filled(new), b""))

    # -- what is remembered

    def _basis(self, call: Call, *, timed: bool = True) -> OutcomeKey:
        """What every outcome depends on. New pods and conditions have the time, in seconds; reviewers may be added while the
        chain is in use."""
        settings, time = self._writer.ledger.settings, self._writer.identities.time()
        if (settings, time) != (self._settings, self._time):
            self._pods.clear()  # none of it applies any more
            self._statuses.clear()
            if settings != self._settings:
                self._events.clear()
            self._settings, self._time = settings, time
        return (
            call.namespace,
            call.user.name,
            call.user.groups,
            settings,
            time if timed else "",
            self._writer.chain.size,
        )


def _remember(known: dict[OutcomeKey, O], write: RepeatableWrite, outcome: O) -> None:
    if len(known) >= _MOST:
        known.clear()
    known[write.key] = outcome


def _is_plain(call: Call, subresource: str = "") -> bool:
    return not (
        call.subresource != subresource
        or call.dry_run
        or call.options
        or call.audit is not None
        or call.user.extra
        or call.user.uid
    )


def _encoded(content: PodContent | EventContent, stored: StoredObject) -> bytes:
    return content.encoded(stored.namespace, stored.name, stored.uid, stored.version)


def _event_shape(document: Document, time: str, name: str, uid: str, version: str, message: str) -> Document:
    """An event with these texts in place of those in which events differ."""
    involved = {**document["involvedObject"], "name": name, "uid": uid, "resourceVersion": version}
    shape = {**document, "metadata": None, "involvedObject": involved, "message": message}
    for field in _EVENT_TIMES:
        if shape.get(field) == time:
            shape[field] = NOW
    return shape


def _event_pattern(document: Document, time: str) -> EventPattern | None:
    """None if the texts in which events differ are not in the usual order."""
    marks = ("$name", "$uid", "$version", "$message")
    shape = _event_shape(document, time, *marks)
    rest = {name: value for name, value in shape.items() if name not in ("apiVersion", "kind", "metadata")}
    text = b',"creationTimestamp":%b},%b' % (encode(NOW), encode(rest)[1:])
    pieces = []
    for mark in marks:
        piece, found, text = text.partition(encode(mark))
        if not found:
            return None
        pieces.append(piece)
    return EventPattern((*pieces, text))


def _texts(event: Document) -> tuple[str, ...]:
    about = event["involvedObject"]
    return about["name"], about["uid"], about["resourceVersion"], event["message"]


def _new_pod(kind: Kind, stored: StoredObject) -> PodContent | None:
    """A new pod as those that repeat it; None if they may differ in more than their identity."""
    parts = _parts(kind, stored)
    if parts is None or not parts.middle.endswith(END_OF_SPEC):
        return None
    rest = parts.middle + parts.status
    if parts.address:
        return None
    if stored.name.encode() in rest or stored.uid.encode() in rest:
        return None
    bound = _bound(parts.middle, "n")
    common = CommonPod(
        parts.middle,
        b"" if bound is None else parts.middle.removesuffix(END_OF_SPEC) + b',"nodeName":"',
        b"" if bound is None else b'"' + END_OF_SPEC,
        parts.pattern,
        b"" if bound is None else spec_pattern(bound).data,
        stored.view(Pod),
        stored.labels,
    )
    return PodContent(common, status_pattern(parts.status, b""))


def _state(kind: Kind, stored: StoredObject) -> _Parts | None:
    """What outcomes of writes to a pod depend on, as `_parts` of its JSON."""
    content = stored.content
    if type(content) is PodContent:
        return _Parts(b"", content.pattern, content.status.data, content.address)
    return _parts(kind, stored)


def _parts(kind: Kind, stored: StoredObject) -> _Parts | None:
    """None if the pod has something that takes part in more rules, or is not stored in the usual order."""
    data = stored.data
    if b'"managedFields"' in data or b'"deletionTimestamp"' in data or (parts := split_pod(kind, stored)) is None:
        return None
    middle, status = parts.middle, parts.status
    address = address_in(status)
    return _Parts(middle, spec_pattern(middle).data, status.replace(address, ADDRESS) if address else status, address)


def _filled(parts: _Parts) -> bytes:
    return parts.status.replace(ADDRESS, parts.address) if parts.address else parts.status


def _bound(middle: bytes, node: object) -> bytes | None:
    """Metadata and spec of a pod with the name of a node at the end; None if it cannot be bound so."""
    if type(node) is not str or dns_subdomain(node) or len(node) > 63:
        return None
    return bound_middle(middle, node)


def _address(status: Document) -> bytes:
    """The address of a pod as JSON; empty if it gets none."""
    address = status.get("podIP")
    return encode(address) if type(address) is str and address else b""
