"""Stored pods as bytes. A binding changes two places of a pod, and the rest need not be decoded."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from wharfinger.api.conditions import set_condition
from wharfinger.api.registry import Document, Kind
from wharfinger.store.contents import END_OF_SPEC, head_of
from wharfinger.store.objects import StoredObject, decode_document, encode

_HINDRANCES = (b'"nodeName":', b'"schedulingGates":', b'"deletionTimestamp":')
_AFTER_BINDING = {"status.nominatedNodeName": ""}  # selectable fields besides the name of the node


class _PodMembers(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """The members of a pod, none of which are decoded."""

    apiVersion: msgspec.Raw  # noqa: N815 - as on the wire
    kind: msgspec.Raw
    metadata: msgspec.Raw
    spec: msgspec.Raw = msgspec.Raw()
    status: msgspec.Raw = msgspec.Raw()


_decode_members = msgspec.json.Decoder(_PodMembers).decode


class PodBytes(msgspec.Struct, frozen=True, gc=False):
    """What follows the identity and version of a stored pod: the rest of its metadata and the spec, and the status."""

    middle: bytes
    status: bytes


def split_pod(kind: Kind, stored: StoredObject) -> PodBytes | None:
    """None if the pod is not stored in the usual order, or has other members."""
    data = stored.data
    head = head_of(kind.storage, stored.namespace, stored.name, stored.uid, stored.version)
    try:
        members = _decode_members(data)
    except msgspec.ValidationError:
        return None
    status = bytes(members.status)
    end = b'%b,"status":%b}' % (bytes(members.spec), status)
    if not status or not data.startswith(head) or not data.endswith(end):
        return None
    return PodBytes(data[len(head) : -len(status) - 1], status)


def bound_middle(middle: bytes, node: str) -> bytes | None:
    """Metadata and spec with the name of a node at the end; None if the pod cannot be bound, or not in this way."""
    for hindrance in _HINDRANCES:
        if hindrance in middle:
            return None
    if not middle.endswith(END_OF_SPEC):
        return None
    return b'%b,"nodeName":%b%b' % (middle.removesuffix(END_OF_SPEC), encode(node), END_OF_SPEC)


@lru_cache(256)
def bound_status(status: bytes, now: str) -> bytes:
    """The status of a pod once it is bound. Most pods have the same one until then."""
    document: Document = decode_document(status)
    set_bound(document, now)
    return encode(document)


def set_bound(status: Document, now: str) -> None:
    """Changes the status of a pod that is bound."""
    status.pop("nominatedNodeName", None)
    set_pod_condition(status, {"type": "PodScheduled", "status": "True"}, now)


def set_pod_condition(status: Document, condition: Document, now: str) -> None:
    conditions = set_condition(status.get("conditions") or (), {**condition, "lastTransitionTime": now})
    status["conditions"] = [{key: value for key, value in item.items() if value is not None} for item in conditions]


def bound_fields(kind: Kind, fields: tuple[str, ...] | None, node: str) -> tuple[str, ...] | None:
    """The selectable fields of a pod once it is bound; None if they were not known before."""
    if fields is None:
        return None
    changed = {**_AFTER_BINDING, "spec.nodeName": node}
    return tuple(changed.get(path, text) for path, text in zip(kind.selectable, fields))
