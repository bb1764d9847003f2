"""Pod views that share their parts: the pods of a workload have equal specs but for the node, and equal statuses but for
the address. A view with parts of its own takes five times the memory."""

from __future__ import annotations

import re
from copy import copy

import msgspec
from msgspec import Raw
from msgspec.structs import force_setattr

from wharfinger.api.views.base import decode
from wharfinger.api.views.meta import ObjectMeta
from wharfinger.api.views.pods import Pod, PodIP, PodSpec, PodStatus

_MOST = 4096  # specs, and statuses, that are remembered
_NODE = re.compile(rb'"nodeName":"([^"\\]*)"')
_ADDRESS = re.compile(rb'"podIP":("[^"\\]*")')


class _PodParts(msgspec.Struct, gc=False):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: Raw = Raw(b"{}")
    status: Raw = Raw(b"{}")


_decode_parts = msgspec.json.Decoder(_PodParts).decode
_decode_spec = msgspec.json.Decoder(PodSpec).decode
_decode_whole_status = msgspec.json.Decoder(PodStatus).decode
_decode_text = msgspec.json.Decoder(str).decode

_specs: dict[bytes, PodSpec] = {}
"""By JSON without the name of the node."""
_statuses: dict[bytes, PodStatus] = {}
"""By JSON without the address."""


def decode_pod(data: bytes) -> Pod:
    """As `decode(data, Pod)`."""
    try:
        parts = _decode_parts(data)
        return Pod(parts.metadata, _spec(bytes(parts.spec)), decode_status(bytes(parts.status)))
    except msgspec.ValidationError:
        return decode(data, Pod)


def _spec(data: bytes) -> PodSpec:
    found = _NODE.search(data)
    name = found[1].decode() if found is not None else ""
    pattern = data[: found.start()] + data[found.end() :] if found is not None else data
    known = _specs.get(pattern)
    if known is None:
        known = _decode_spec(data)
        if known.node_name == name and (found is None or _NODE.search(data, found.end()) is None):  # no label
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
    own = copy(spec)
    force_setattr(own, "node_name", name)
    return own


def with_address(status: PodStatus, address: str) -> PodStatus:
    if status.pod_ip == address:
        return status
    own = copy(status)
    force_setattr(own, "pod_ip", address)
    force_setattr(
        own, "pod_ips", tuple([PodIP(address) if each.ip == status.pod_ip else each for each in status.pod_ips])
    )
    return own


def _remember(known: dict[bytes, PodSpec] | dict[bytes, PodStatus], pattern: bytes, part: PodSpec | PodStatus) -> None:
    if len(known) >= _MOST:
        known.clear()
    known[pattern] = part  # type: ignore[assignment]  # of the same type
