"""Pod views that share their parts: the pods of a workload have equal metadata but for the identity, equal specs but for the
node and the token volume, and equal statuses but for the address. A view with parts of its own takes five times the memory."""

from __future__ import annotations

import re
from sys import intern
from typing import TypeVar

import msgspec
from msgspec import Raw
from msgspec.structs import force_setattr

from wharfinger.api.token_volumes import TOKEN_VOLUME
from wharfinger.api.views.base import decode
from wharfinger.api.views.meta import ObjectMeta, OwnerReference
from wharfinger.api.views.pods import Pod, PodIP, PodSpec, PodStatus

T = TypeVar("T")

_MOST = 4096  # parts of each kind that are remembered
_NODE = re.compile(rb'"nodeName":"([^"\\]*)"')
_ADDRESS = re.compile(rb'"podIP":("[^"\\]*")')
_TOKEN_NAME = TOKEN_VOLUME.encode()
_TOKEN = re.compile(rb'"%b[a-z0-9]{5}"' % _TOKEN_NAME)


class _MetadataParts(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    deletion_grace_period_seconds: int | None = None
    labels: Raw = Raw(b"")
    annotations: Raw = Raw(b"")
    owner_references: Raw = Raw(b"")
    finalizers: tuple[str, ...] = ()


class _PodParts(msgspec.Struct, gc=False):
    metadata: _MetadataParts = msgspec.field(default_factory=_MetadataParts)
    spec: Raw = Raw(b"{}")
    status: Raw = Raw(b"{}")


_decode_parts = msgspec.json.Decoder(_PodParts).decode
_decode_spec = msgspec.json.Decoder(PodSpec).decode
_decode_whole_status = msgspec.json.Decoder(PodStatus).decode
_decode_text = msgspec.json.Decoder(str).decode
_decode_texts = msgspec.json.Decoder(dict[str, str])
_decode_owners = msgspec.json.Decoder(tuple[OwnerReference, ...])
_encode = msgspec.json.Encoder().encode

_texts: dict[bytes, dict[str, str]] = {}
"""Labels and annotations by JSON."""
_owners: dict[bytes, tuple[OwnerReference, ...]] = {}
"""Owner references by JSON."""
_specs: dict[bytes, PodSpec] = {}
"""By JSON without the name of the node and of the token volume."""
_statuses: dict[bytes, PodStatus] = {}
"""By JSON without the address."""


def decode_pod(data: bytes) -> Pod:
    """As `decode(data, Pod)`."""
    try:
        parts = _decode_parts(data)
        return Pod(_metadata(parts.metadata), _spec(bytes(parts.spec)), decode_status(bytes(parts.status)))
    except msgspec.ValidationError:
        return decode(data, Pod)


def _metadata(parts: _MetadataParts) -> ObjectMeta:
    return ObjectMeta(
        parts.name,
        intern(parts.namespace),
        parts.uid,
        parts.resource_version,
        parts.generation,
        intern(parts.creation_timestamp),
        parts.deletion_timestamp,
        parts.deletion_grace_period_seconds,
        _part(_texts, bytes(parts.labels), _decode_texts) if parts.labels else {},
        _part(_texts, bytes(parts.annotations), _decode_texts) if parts.annotations else {},
        _part(_owners, bytes(parts.owner_references), _decode_owners) if parts.owner_references else (),
        parts.finalizers,
    )


def _part(known: dict[bytes, T], data: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    found = known.get(data)
    if found is None:
        found = decoder.decode(data)
        _remember(known, data, found)
    return found


def _spec(data: bytes) -> PodSpec:
    found = _NODE.search(data)
    name = intern(found[1].decode()) if found is not None else ""
    pattern = data[: found.start()] + data[found.end() :] if found is not None else data
    has_token = _TOKEN_NAME in pattern
    if has_token:  # as the name of a volume, which views do not have, and of its mounts
        pattern = _TOKEN.sub(b'"%b"' % _TOKEN_NAME, pattern)
    known = _specs.get(pattern)
    if known is None:
        known = _decode_spec(data)
        if known.node_name != name or (found is not None and _NODE.search(data, found.end()) is not None):
            return known  # it is a label
        if not (has_token and _TOKEN_NAME in _encode(known)):
            _remember(_specs, pattern, known)
        return known
    return with_node(known, name)


def decode_status(data: bytes) -> PodStatus:
    found = _ADDRESS.search(data)
    address = found[1] if found is not None else b""
    text = _decode_text(address) if address else ""
    pattern = data.replace(address, b'""') if address else data
    known = _statuses.get(pattern)
    if known is None:
        known = _decode_whole_status(data)
        if not address or (known.pod_ip == text and b'""' not in data and is_own_address(known, data, address)):
            _remember(_statuses, pattern, known)
        return known
    return with_address(known, text)


def is_own_address(status: PodStatus, data: bytes, address: bytes) -> bool:
    """Whether the address of a pod, as JSON, is in its status only as that, so that `with_address` replaces all of it."""
    return data.count(address) == 1 + sum(each.ip == status.pod_ip for each in status.pod_ips)


def with_identity(metadata: ObjectMeta, name: str, uid: str, version: int) -> ObjectMeta:
    own: ObjectMeta = metadata.__copy__()  # type: ignore[attr-defined]  # of all structs
    force_setattr(own, "name", name)
    force_setattr(own, "uid", uid)
    force_setattr(own, "resource_version", str(version))
    return own


def with_node(spec: PodSpec, name: str) -> PodSpec:
    if spec.node_name == name:
        return spec
    own: PodSpec = spec.__copy__()  # type: ignore[attr-defined]  # of all structs
    force_setattr(own, "node_name", name)
    return own


def with_address(status: PodStatus, address: str) -> PodStatus:
    if status.pod_ip == address:
        return status
    own: PodStatus = status.__copy__()  # type: ignore[attr-defined]
    force_setattr(own, "pod_ip", address)
    force_setattr(
        own, "pod_ips", tuple([PodIP(address) if each.ip == status.pod_ip else each for each in status.pod_ips])
    )
    return own


def _remember(known: dict[bytes, T], pattern: bytes, part: T) -> None:
    if len(known) >= _MOST:
        known.clear()
    known[pattern] = part
