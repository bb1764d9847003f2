"""Bindings that equal earlier ones but for the pod and the node, on the embedded server: they are not reviewed again.

Nearly all Bindings say nothing but which pod gets which node. The first one of a user goes through admission; if all
reviewers look at nothing but the request and settings (`Chain.repeats`), later ones of the same user in the same namespace
are carried out without them until a setting changes. Reviewers may look at the pod as well, so this holds only for pods in
which there is nothing for them to see (`Chain.seen_on_bind`).
"""

from __future__ import annotations

import msgspec

from wharfinger.admission.request import Request
from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.registry import Document, Kind
from wharfinger.store.contents import head_of
from wharfinger.store.objects import StoredObject, encode
from wharfinger.store.pod_bytes import bound_fields, bound_middle, bound_status, split_pod
from wharfinger.store.writes import Call, RepeatableWrite, Writer

_MOST = 1024  # users that are remembered
_MOST_PODS = 256  # pods that are remembered
_LONGEST = 16 * 1024  # bytes of a pod that is remembered
_DOCUMENT = {"apiVersion", "kind", "metadata", "target"}
_METADATA = {"name", "namespace", "uid"}
_TARGET = {"apiVersion", "kind", "name"}
_NODE = b'"$node"'  # in place of the name of the node


class _BindablePod(msgspec.Struct, frozen=True, gc=False):
    """What a pod has in common with those that differ in identity and version: the JSON around the name of the node, and
    the status."""

    before: bytes
    after: bytes
    status: bytes


class EqualBindings:
    """The Bindings that were reviewed, by everything that the outcome depends on."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._epoch: tuple[object, ...] = ()
        self._reviewed: set[tuple[object, ...]] = set()  # in the epoch
        self._pods: dict[bytes, _BindablePod | None] = {}  # by what follows the head; None: not to be bound here

    def bind(self, call: Call, document: Document) -> bool:
        """Binds a pod as an earlier one; False if that has to be done in full."""
        if call.resource != PODS or call.dry_run or document.keys() - _DOCUMENT:
            return False
        metadata, target = document.get("metadata"), document.get("target")
        if not isinstance(metadata, dict) or not isinstance(target, dict) or metadata.keys() - _METADATA:
            return False
        node = target.get("name")
        if type(node) is not str or not node or target.get("kind") != "Node" or target.keys() - _TARGET:
            return False
        name, namespace = call.name, call.namespace
        if metadata.get("name") != name or not name or metadata.get("namespace", namespace) != namespace:
            return False
        self._begin_epoch()
        user = call.user
        extra = tuple(user.extra.items()) if user.extra else ()
        given = document.get("apiVersion"), document.get("kind"), target.get("apiVersion")
        if not all(part is None or type(part) is str for part in given):
            return False
        key = (*given, namespace, call.options.get("fieldManager"), user.name, user.groups, user.uid, extra)
        if key not in self._reviewed:
            call.repeats = RepeatableWrite(key, self._epoch, len(call.audit or ()))
            return False
        stored = self._writer.latest(call.kind, namespace, name)
        if stored is None or metadata.get("uid", stored.uid) != stored.uid:
            return False
        pod = self._bindable(call.kind, stored)
        if pod is None:
            return False
        content = b"%b%b%b%b}" % (
            pod.before,
            encode(node),
            pod.after,
            bound_status(pod.status, self._writer.identities.time()),
        )
        fields = bound_fields(call.kind, stored._fields, node)
        self._writer.ledger.replace(call.kind, stored, content, fields)
        return True

    def learn_binding(self, call: Call, request: Request, before: StoredObject, after: StoredObject) -> None:
        """Remembers that a Binding was reviewed, unless a setting changed while reviewers were awaited."""
        write = self._writer.learnt(call, request)
        self._begin_epoch()
        if write is None or write.given != self._epoch:
            return
        if len(self._reviewed) >= _MOST:
            self._reviewed.clear()
        self._reviewed.add(write.key)

    def _begin_epoch(self) -> None:
        """What every outcome depends on: the settings, and the reviewers, which may be added while the chain is in use."""
        writer = self._writer
        epoch = (writer.ledger.settings, writer.chain.size)
        if epoch != self._epoch:
            self._epoch = epoch
            self._reviewed.clear()
            self._pods.clear()

    def _bindable(self, kind: Kind, stored: StoredObject) -> _BindablePod | None:
        """Most pods equal others but for their identity, and are taken apart once."""
        data = stored.data
        head = head_of(kind.storage, stored.namespace, stored.name, stored.uid, stored.version)
        if not data.startswith(head):
            return None
        rest = data[len(head) :]
        pods = self._pods
        if rest in pods:
            return pods[rest]
        pod = self._take_apart(kind, stored)
        if len(rest) <= _LONGEST:
            if len(pods) >= _MOST_PODS:
                pods.clear()
            pods[rest] = pod
        return pod

    def _take_apart(self, kind: Kind, stored: StoredObject) -> _BindablePod | None:
        if self._writer.chain.sees_on_bind(stored.data):
            return None
        parts = split_pod(kind, stored)
        middle = None if parts is None else bound_middle(parts.middle, "$node")
        if parts is None or middle is None:
            return None
        before, _, after = middle.rpartition(_NODE)
        return _BindablePod(before, after, parts.status)
