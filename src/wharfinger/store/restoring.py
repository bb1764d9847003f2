"""Objects that another API server stored, put into this store as they are.

Admission is not asked, and nothing that a server or controller wrote is dropped: uids, deletion timestamps, statuses and
records stay. Validation treats the object as an update without a change, so that it accepts what servers accept only
from themselves, such as selectors with merged label keys.
"""

from __future__ import annotations

import re

import msgspec

from wharfinger.api.errors import invalid_object
from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.known_specs import SpecPattern, spec_pattern
from wharfinger.api.names import dns_subdomain
from wharfinger.api.pod_texts import PodFront, PodText, StatusText
from wharfinger.api.registry import Document, Kind, Registry, Resource
from wharfinger.api.validation import metadata as rules_of_metadata
from wharfinger.api.views.pods import Pod
from wharfinger.store.contents import (
    ADDRESS,
    CommonPod,
    PodContent,
    StatusPattern,
    address_in,
    head_of,
    status_pattern,
)
from wharfinger.store.ledger import WriteLedger
from wharfinger.store.objects import StoredObject, encode, key_of
from wharfinger.store.versions import copy, incoming, kind_of

# Field owners take much memory, and no decision depends on them; the version is assigned by this store.
_NOT_KEPT = ("managedFields", "selfLink", "resourceVersion")
_IDENTITY = {"name", "namespace", "uid", *_NOT_KEPT}


class _GivenPod(msgspec.Struct, frozen=True, gc=False):
    """A pod of a snapshot, taken apart."""

    namespace: str
    name: str
    uid: str
    key: tuple[object, ...]  # everything but identity, node, token volume and status
    spec: SpecPattern
    status: bytes


class RestoredPods:
    """Pods of workloads whose pods were found to be in order: others that differ only in their identity, node, token volume
    and status are neither decoded nor encoded."""

    _MOST = 8192  # workloads and statuses that are remembered

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], CommonPod] = {}
        self._statuses: dict[bytes, StatusPattern] = {}
        self._known_texts: dict[tuple[PodFront, tuple[str, ...]], CommonPod] = {}
        self._known_statuses: dict[StatusText, StatusPattern | None] = {}  # None: to be restored in full

    def content(self, given: _GivenPod) -> PodContent | None:
        common = self._known.get(given.key)
        return None if common is None else self._content(common, given)

    def _content(self, common: CommonPod, given: _GivenPod) -> PodContent:
        address = address_in(given.status)
        return PodContent(
            common, self._status(given.status, address), given.spec.node.decode(), address, given.spec.token
        )

    def _status(self, data: bytes, address: bytes) -> StatusPattern:
        text = data.replace(address, ADDRESS) if address else data
        status = self._statuses.get(text)
        if status is None:
            if len(self._statuses) >= self._MOST:
                self._statuses.clear()
            status = self._statuses[text] = status_pattern(data, address)
        return status

    def content_of(self, pod: PodText) -> PodContent | None:
        """The same for the text of a pod. None if no other with the same text is known, or its status is unusual."""
        common = self._known_texts.get((pod.front, pod.status.members))
        if common is None:
            return None
        known = self._known_statuses
        if pod.status in known:
            status = known[pod.status]
        else:
            if len(known) >= self._MOST:
                known.clear()
            data = pod.status_data()
            usual = address_in(data) == pod.address and ADDRESS not in data and b"null" not in data
            status = known[pod.status] = self._status(data, pod.address) if usual else None
        return None if status is None else PodContent(common, status, pod.node, pod.address, pod.token)

    def learn_text(self, pod: PodText, given: _GivenPod) -> None:
        """Remembers the text of a pod that was restored from its document."""
        common = self._known.get(given.key)
        if common is not None and (given.spec.node.decode(), given.spec.token) == (pod.node, pod.token):
            if len(self._known_texts) >= self._MOST:
                self._known_texts.clear()
            self._known_texts[pod.front, pod.status.members] = common

    def learn(self, given: _GivenPod, stored: StoredObject) -> None:
        """Remembers a pod that was restored in full."""
        data = stored.data
        head = head_of(PODS, stored.namespace, stored.name, stored.uid, stored.version)
        text = data.removeprefix(head).removesuffix(given.status + b"}")
        pattern = spec_pattern(text)
        before, found, after = pattern.data.partition(_NODE)
        if not found or text.count(b'"nodeName":"') > 1 or stored.name.encode() in text or stored.uid.encode() in text:
            return
        common = CommonPod(
            b"", before + found[:-2], found[-1:] + after, b"", pattern.data, stored.view(Pod), stored.labels
        )
        content = self._content(common, given)
        if content.encoded(stored.namespace, stored.name, stored.uid, stored.version) == data:
            if len(self._known) >= self._MOST:
                self._known.clear()
            self._known[given.key] = common


_NODE = b'"nodeName":"n"'  # as in patterns of specs
_is_uid = re.compile(r"[0-9A-Za-z-]+").fullmatch


def _given(document: Document) -> _GivenPod | None:
    """None if the pod is not bound, is being deleted, or is not as servers write it."""
    metadata, spec, status = (document.get(part) for part in ("metadata", "spec", "status"))
    if not (isinstance(metadata, dict) and isinstance(spec, dict) and isinstance(status, dict)):
        return None
    name, namespace, uid = (metadata.get(field) for field in ("name", "namespace", "uid"))
    if not (isinstance(name, str) and isinstance(namespace, str) and isinstance(uid, str)):
        return None
    if not namespace or dns_subdomain(name) or not _is_uid(uid) or "deletionTimestamp" in metadata:
        return None
    try:
        rest = encode({field: value for field, value in metadata.items() if field not in _IDENTITY})
        pattern, text = spec_pattern(encode(spec)), encode(status)
    except (TypeError, ValueError, msgspec.MsgspecError):
        return None
    if not pattern.node or (pattern.token and pattern.token in rest) or ADDRESS in text:
        return None
    if b"null" in rest or b"null" in pattern.data or b"null" in text:
        return None
    return _GivenPod(
        namespace, name, uid, (namespace, tuple(document), rest, pattern.data, tuple(status)), pattern, text
    )


def restore(
    registry: Registry,
    ledger: WriteLedger,
    resource: Resource,
    document: Document,
    pods: RestoredPods | None = None,
    text: PodText | None = None,
) -> StoredObject:
    """Stores an object in place of one with the same name, if any. Raises ApiError for an invalid one. With `pods`, those
    that repeat an earlier one are not looked at again; `text` is that of a pod, if it is known."""
    kind = kind_of(registry, resource)
    given = _given(document) if pods is not None and resource == PODS else None
    if pods is None or given is None:
        return _restore(ledger, kind, resource, document)
    content = pods.content(given)
    if content is not None:
        stored = _put_content(ledger, kind, given.namespace, given.name, given.uid, content)
    else:
        stored = _restore(ledger, kind, resource, document)
        pods.learn(given, stored)
    if text is not None:
        pods.learn_text(text, given)
    return stored


def restore_text(registry: Registry, ledger: WriteLedger, pod: PodText, pods: RestoredPods) -> bool:
    """Stores a pod that repeats an earlier one, as `restore` would; False if it has to be restored from its document."""
    content = pods.content_of(pod)
    if content is None:
        return False
    _put_content(ledger, kind_of(registry, PODS), pod.front.namespace, pod.name, pod.uid, content)
    return True


def _put_content(
    ledger: WriteLedger, kind: Kind, namespace: str, name: str, uid: str, content: PodContent
) -> StoredObject:
    before = ledger.collection(kind.group, kind.plural).latest.objects.get(key_of(namespace, name))
    return ledger.put_content(kind, namespace, name, uid, content, before, content.common.labels)


def _restore(ledger: WriteLedger, kind: Kind, resource: Resource, document: Document) -> StoredObject:
    new = incoming(kind, resource, copy(document, kind))
    metadata = new["metadata"]
    for field in _NOT_KEPT:
        metadata.pop(field, None)
    name = str(metadata.get("name") or "")
    faults = rules_of_metadata.type_faults(metadata)
    if not faults:
        if kind.namespaced:
            metadata.setdefault("namespace", "default")
        else:
            metadata.pop("namespace", None)
        if kind.default is not None:
            kind.default(new)
        faults = rules_of_metadata.create_faults(kind, metadata)
        if kind.validate is not None:
            faults = [*faults, *kind.validate(new, new)]
    if faults:
        raise invalid_object(kind.group, kind.kind, name, faults)
    before = ledger.collection(kind.group, kind.plural).latest.objects.get(key_of(metadata.get("namespace", ""), name))
    return ledger.put(kind, new, before)[1]
