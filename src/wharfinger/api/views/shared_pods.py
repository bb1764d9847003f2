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
_decode_status = msgspec.json.Decoder(PodStatus).decode
_decode_text = msgspec.json.Decoder(str).decode

_specs: dict[bytes, PodSpec] = {}
"""By JSON without the name of the node."""
_statuses: dict[bytes, PodStatus] = {}
"""By JSON without the address."""


def decode_pod(data: bytes) -> Pod:
    """As `decode(data, Pod)`."""
    try:
        parts = _decode_parts(data)
        return Pod(parts.metadata, _spec(bytes(parts.spec)), _status(bytes(parts.status)))
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
    if known.node_name == name:
        return known
    own = copy(known)
    force_setattr(own, "node_name", name)
    return own


def _status(data: bytes) -> PodStatus:
    found = _ADDRESS.search(data)
    address = found[1] if found is not None else b""
    text = _decode_text(address) if address else ""
    pattern = data.replace(address, b'""') if address else data
    known = _statuses.get(pattern)
    if known is None:
        known = _decode_status(data)
        places = 1 + sum(each.ip == known.pod_ip for each in known.pod_ips)
        if not address or (known.pod_ip == text and data.count(address) == places and b'""' not in data):
            _remember(_statuses, pattern, known)
        return known
    if known.pod_ip == text:
        return known
    own = copy(known)
    force_setattr(own, "pod_ip", text)
    force_setattr(own, "pod_ips", tuple([PodIP(text) if each.ip == known.pod_ip else each for each in known.pod_ips]))
    return own


def _remember(known: dict[bytes, PodSpec] | dict[bytes, PodStatus], pattern: bytes, part: PodSpec | PodStatus) -> None:
    if len(known) >= _MOST:
        known.clear()
    known[pattern] = part  # type: ignore[assignment]  # of the same type
