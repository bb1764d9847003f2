"""Pods that equal earlier ones but for their names, on the embedded server: they are not reviewed again.

For their bindings, see `wharfinger.store.equal_bindings`. Simulations repeat more (`wharfinger.store.repeats`): also events
and changes of status, from the second on, as contents without JSON. There, most writes repeat others, and users have
neither field managers nor audit annotations. A server needs the JSON for its data file and its answers, has all sorts of users, whose writes may all differ, and runs for
months. So an outcome is remembered here only when a write is seen for the second time, it may have managed fields, and the
memory that all outcomes take is bounded.

Both follow the same rule: an outcome is remembered only if no reviewer looks at anything but the request and settings
(`Chain.repeats`), and only until a setting changes: an object of any kind but those that change all the time. New pods have
the time of the write, so what is remembered is forgotten at the end of that second too.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from wharfinger.admission.request import Request
from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.names import dns_label
from wharfinger.api.registry import Document
from wharfinger.store.contents import head_of
from wharfinger.store.objects import StoredObject, Written, encode
from wharfinger.store.writes import Call, RepeatableWrite, Writer

_MOST = 8192  # remembered outcomes
_MOST_BYTES = 16 * 1024 * 1024  # of their requests and objects
_LONGEST = 32 * 1024  # bytes of an object that is remembered
_PLAIN_OPTIONS = {"fieldManager"}


class _NewPod(msgspec.Struct, frozen=True, gc=False):
    """What became of a write: what follows the identity and version of the pod, and what its selectors look at."""

    data: bytes
    labels: Mapping[str, str]
    fields: tuple[str, ...] | None


class EqualCreates:
    """The outcomes of earlier creations of pods in one store, by everything that they depend on."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._epoch: tuple[object, ...] = ()
        self._seen: set[int] = set()  # hashes of documents that were written in the epoch
        self._known: dict[tuple[object, ...], _NewPod] = {}  # of the epoch
        self._bytes = 0  # of requests and outcomes

    def create(self, call: Call, document: Document) -> Written | None:
        """Creates a pod as an earlier one; None if that has to be done in full."""
        if call.resource != PODS or call.subresource or call.dry_run or not isinstance(document, dict):
            return None
        metadata = document.get("metadata")
        if not isinstance(metadata, dict) or metadata.get("uid"):
            return None
        if not call.namespace or not call.options.keys() <= _PLAIN_OPTIONS:
            return None
        name, prefix = metadata.get("name"), metadata.get("generateName")
        if name:  # it must be certain to be valid
            if type(name) is not str or dns_label(name) or call.name not in ("", name):
                return None
            document = {**document, "metadata": {**metadata, "name": ""}}
        elif not prefix or type(prefix) is not str:
            return None
        data = self._repeated(document)
        if data is None:
            return None
        key = self._key(call, data)
        known = self._known.get(key)
        if known is None:
            call.repeats = RepeatableWrite(key, document, len(call.audit or ()))
            return None
        return self._writer.create_equal(call, name or "", prefix or "", known.data, known.labels, known.fields)

    def learn_creation(self, call: Call, request: Request, stored: StoredObject) -> None:
        """Remembers what became of a creation that was done in full."""
        write = self._writer.learnt(call, request)
        if write is None:
            return
        head = head_of(call.kind.storage, stored.namespace, stored.name, stored.uid, stored.version)
        rest = stored.data.removeprefix(head)
        if stored.name.encode() not in rest and stored.uid.encode() not in rest and len(rest) < len(stored.data):
            self._remember(write, _NewPod(rest, stored.labels, stored._fields))

    def _repeated(self, document: Document) -> bytes | None:
        """The JSON of a document that was written before in this epoch. None for the first of such writes, since to
        remember it takes time, which is lost if all writes differ; and for one that is too long or cannot be encoded."""
        self._begin_epoch()
        try:
            data = encode(document)
        except (TypeError, ValueError, msgspec.MsgspecError):
            return None
        if len(data) > _LONGEST:
            return None
        mark = hash(data)
        if mark in self._seen:
            return data
        self._seen.add(mark)
        return None

    def _key(self, call: Call, data: bytes) -> tuple[object, ...]:
        """What the outcome of a write depends on."""
        user = call.user
        manager = call.options.get("fieldManager")
        extra = tuple(user.extra.items()) if user.extra else ()
        return (self._epoch, data, call.namespace, manager, user.name, user.groups, user.uid, extra)

    def _begin_epoch(self) -> None:
        """What every outcome depends on: the settings, the reviewers, which may be added while the chain is in use, and the
        time, in seconds."""
        writer = self._writer
        epoch = (writer.ledger.settings, writer.identities.time(), writer.chain.size)
        if epoch != self._epoch:
            self._epoch, self._bytes = epoch, 0
            self._known.clear()
            self._seen.clear()

    def _remember(self, write: RepeatableWrite, outcome: _NewPod) -> None:
        self._begin_epoch()
        if (
            write.key[0] != self._epoch or len(outcome.data) > _LONGEST
        ):  # settings may change while reviewers are awaited
            return
        size = len(outcome.data) + sum(len(part) for part in write.key if isinstance(part, bytes))
        if len(self._known) >= _MOST or self._bytes + size > _MOST_BYTES:
            self._known.clear()
            self._bytes = 0
        self._known[write.key] = outcome
        self._bytes += size
