"""Running pods of a snapshot, held as the text that they were read from: what the pods of a workload have in common is held
once, and a document is made when somebody asks for it.

They differ in name, uid, version, node, token volume and status, and statuses in the address. A mark that no JSON contains
stands in for each of these.
"""

from __future__ import annotations

import re
from typing import Any, Literal, cast

import msgspec

from wharfinger.api.names import dns_subdomain
from wharfinger.api.registry import Document
from wharfinger.api.token_volumes import TOKEN_VOLUME

_NAME, _UID, _VERSION, _NODE, _TOKEN, _ADDRESS = (b'"\x00%b"' % each for each in (b"n", b"u", b"v", b"h", b"t", b"a"))

_LONGEST_NODE = 63  # as long as a label may be, see `wharfinger.api.known_specs`
_is_uid = re.compile(r"[0-9A-Za-z-]+").fullmatch
_is_version = re.compile(r"[0-9]+").fullmatch
_is_address = re.compile(r"[0-9a-f.:]+").fullmatch
_tokens_in = re.compile(rb'"%b([a-z0-9]{5})"' % TOKEN_VOLUME.encode()).findall

_encode = msgspec.json.Encoder().encode
_decode = cast("Any", msgspec.json.Decoder()).decode


class _IdentifyingMetadata(msgspec.Struct, gc=False):
    name: str
    namespace: str
    uid: str
    resourceVersion: str = ""  # noqa: N815 - as on the wire
    deletionTimestamp: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET  # noqa: N815


class _RunningSpec(msgspec.Struct, gc=False):
    nodeName: str  # noqa: N815


class _AddressedStatus(msgspec.Struct, gc=False):
    podIP: str = ""  # noqa: N815


class _IdentifyingMembers(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    apiVersion: Literal["v1"]  # noqa: N815
    kind: Literal["Pod"]
    metadata: _IdentifyingMetadata
    spec: _RunningSpec
    status: msgspec.Raw


_decode_members = msgspec.json.Decoder(_IdentifyingMembers).decode
_decode_status = msgspec.json.Decoder(_AddressedStatus).decode


class PodFront(msgspec.Struct, eq=False):
    """All that precedes the status, of all pods in which it is the same but for the marks."""

    text: bytes
    namespace: str
    outline: Document  # metadata with the identity of one of them, and the volumes of its spec


class StatusText(msgspec.Struct, eq=False, gc=False):
    """A status, of all pods in which it is the same but for the address."""

    data: bytes  # JSON as our encoder writes it
    members: tuple[str, ...]


class PodText(msgspec.Struct, frozen=True, eq=False, gc=False):
    """One pod. It has a valid name and uid, is bound, and is not being deleted."""

    front: PodFront
    status: StatusText
    name: str
    uid: str
    version: str
    node: str
    token: bytes  # suffix of the name of the token volume; empty if it has none
    address: bytes  # as JSON; empty if it has none

    def status_data(self) -> bytes:
        return self.status.data.replace(_ADDRESS, self.address) if self.address else self.status.data

    def data(self) -> bytes:
        """The pod as JSON."""
        text = self.front.text.replace(_NAME, _quoted(self.name)).replace(_UID, _quoted(self.uid))
        text = text.replace(_VERSION, _quoted(self.version)).replace(_NODE, _quoted(self.node))
        if self.token:
            text = text.replace(_TOKEN, _token(self.token))
        return b"%b%b}" % (text, self.status_data())

    def document(self) -> Document:
        return cast("Document", _decode(self.data()))

    def outline(self) -> Document:
        """A document without status, of whose spec there are only the volumes, and those of another pod of the workload."""
        shared = self.front.outline
        return {**shared, "metadata": {**shared["metadata"], "name": self.name, "uid": self.uid}}


class PodTexts:
    """Reads pods, and finds what they have in common."""

    def __init__(self) -> None:
        self._fronts: dict[bytes, PodFront] = {}
        self._statuses: dict[bytes, StatusText] = {}

    def read(self, item: bytes) -> PodText | None:
        """None for anything else, and for pods that cannot be held in this way. Raises DecodeError if it is not JSON."""
        try:
            members = _decode_members(item)
            raw = bytes(members.status)
            address = _decode_status(raw).podIP
        except msgspec.ValidationError:
            return None
        metadata, node = members.metadata, members.spec.nodeName
        front = item.rstrip().removesuffix(b"}").rstrip()
        if not front.endswith(raw) or not _is_plain(metadata, node, address) or b"\x00" in item:
            return None
        front = front[: -len(raw)]
        texts = ((metadata.name, _NAME), (metadata.uid, _UID), (metadata.resourceVersion, _VERSION), (node, _NODE))
        for text, mark in texts:
            if text:
                quoted = _quoted(text)
                if front.count(quoted) != 1:  # elsewhere it may be a key, or a value that depends on it
                    return None
                front = front.replace(quoted, mark)
        tokens = set(_tokens_in(front))
        if len(tokens) > 1:
            return None
        token = tokens.pop() if tokens else b""
        if token:
            front = front.replace(_token(token), _TOKEN)
        shared, status = self._front(front, item), self._status(raw, address)
        if shared is None or status is None:
            return None
        quoted = _quoted(address) if address else b""
        return PodText(shared, status, metadata.name, metadata.uid, metadata.resourceVersion, node, token, quoted)

    def _front(self, text: bytes, item: bytes) -> PodFront | None:
        found = self._fronts.get(text)
        if found is None:
            document = _decode(item)
            volumes = document["spec"].get("volumes") or []
            if not isinstance(volumes, list) or not all(isinstance(each, dict) for each in volumes):
                return None
            outline = {name: document[name] for name in ("apiVersion", "kind", "metadata")}
            outline["spec"] = {"volumes": volumes}
            found = self._fronts[text] = PodFront(text, document["metadata"]["namespace"], outline)
        return found

    def _status(self, raw: bytes, address: str) -> StatusText | None:
        quoted = _quoted(address)
        text = raw.replace(quoted, _ADDRESS) if address else raw
        found = self._statuses.get(text)
        if found is None:
            document = _decode(raw)
            try:
                data = _encode(document)
            except (msgspec.MsgspecError, OverflowError, ValueError):
                return None
            if address:
                data = data.replace(quoted, _ADDRESS)
            found = self._statuses[text] = StatusText(data, tuple(document))
        return found


def _is_plain(metadata: _IdentifyingMetadata, node: str, address: str) -> bool:
    return bool(
        metadata.namespace
        and metadata.deletionTimestamp is msgspec.UNSET
        and not dns_subdomain(metadata.name)
        and _is_uid(metadata.uid)
        and not dns_subdomain(node)
        and len(node) <= _LONGEST_NODE
        and (not metadata.resourceVersion or _is_version(metadata.resourceVersion))
        and (not address or _is_address(address))
    )


def _quoted(text: str) -> bytes:
    return b'"%b"' % text.encode()


def _token(suffix: bytes) -> bytes:
    return b'"%b%b"' % (TOKEN_VOLUME.encode(), suffix)
