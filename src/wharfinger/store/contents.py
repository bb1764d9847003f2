"""Objects whose JSON is put together when somebody reads it: what the pods of a workload, and their events, have in common
is held once.

Nearly all of them are read as views only, or never.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from wharfinger.api.kinds.builtin import EVENTS, PODS
from wharfinger.api.known_specs import SpecPattern
from wharfinger.api.registry import Resource
from wharfinger.api.views.pods import Pod, PodStatus
from wharfinger.api.views.shared_pods import (
    decode_pod,
    decode_status,
    is_own_address,
    with_address,
    with_identity,
    with_node,
)

ADDRESS = b'"$address"'  # in place of the address of a pod
NOW = "$now"  # in place of the time at which an event is created
END_OF_SPEC = b'},"status":'

_POD_IP = re.compile(rb'"podIP":("[^"\\]+")')
_encode = msgspec.json.Encoder().encode


class CommonPod(msgspec.Struct, frozen=True, gc=False):
    """What all pods of a workload have in common. Their JSON from behind the version to the status is `unbound`, or the
    name of the node between `before` and `after`. Their token volumes have the same name here."""

    unbound: bytes  # empty if they are bound
    before: bytes  # empty if they cannot be bound in this way
    after: bytes
    pattern: bytes  # what outcomes of writes to such a pod are found by, and...
    bound_pattern: bytes  # ...once it is bound
    view: Pod
    labels: Mapping[str, str]


class StatusPattern(msgspec.Struct, frozen=True, gc=False):
    """The status of pods as JSON, with `ADDRESS` in place of their addresses."""

    data: bytes
    view: PodStatus | None  # with the address of one of them; None if another field depends on the address


def address_in(status: bytes) -> bytes:
    """The address in the status of a pod, as JSON; empty if it has none."""
    found = _POD_IP.search(status)
    return b"" if found is None else found[1]


def status_pattern(data: bytes, address: bytes) -> StatusPattern:
    status: PodStatus | None = decode_status(data)
    if not address:
        return StatusPattern(data, status)
    if status is not None and not is_own_address(status, data, address):
        status = None
    return StatusPattern(data.replace(address, ADDRESS), status)


class PodContent(msgspec.Struct, frozen=True, gc=False):
    common: CommonPod
    status: StatusPattern
    node: str = ""
    address: bytes = b""  # as JSON
    token: bytes = b""  # suffix of the name of the token volume, if that differs from pod to pod

    @property
    def pattern(self) -> bytes:
        return self.common.bound_pattern if self.node else self.common.pattern

    @property
    def size(self) -> int:
        """About how many bytes it has."""
        return len(self.common.unbound or self.common.before) + len(self.common.after) + len(self.status.data)

    def encoded(self, namespace: str, name: str, uid: str, version: int) -> bytes:
        head = head_of(PODS, namespace, name, uid, version)
        status = self.status.data
        if self.address:
            status = status.replace(ADDRESS, self.address)
        common = self.common
        if not self.node:
            return b"".join((head, common.unbound, status, b"}"))
        text = b"".join((common.before, self.node.encode(), common.after))
        if self.token:
            text = SpecPattern(b"", token=self.token).filled(text)
        return b"".join((head, text, status, b"}"))

    def pod(self, namespace: str, name: str, uid: str, version: int) -> Pod:
        """As decoded from the JSON."""
        model, status = self.common.view, self.status.view
        if status is None or self.token:
            return decode_pod(self.encoded(namespace, name, uid, version))
        return Pod(
            with_identity(model.metadata, name, uid, version),
            with_node(model.spec, self.node) if self.node else model.spec,
            with_address(status, self.address[1:-1].decode()) if self.address else status,
        )


class EventPattern(msgspec.Struct, frozen=True, gc=False):
    """What events have in common: the JSON around the texts in which they differ, with `NOW` where the time belongs."""

    pieces: tuple[bytes, ...]


class EventContent(msgspec.Struct, frozen=True, gc=False):
    pattern: EventPattern
    texts: tuple[str, ...]
    time: str

    @property
    def size(self) -> int:
        """About how many bytes it has."""
        return sum(map(len, self.pattern.pieces)) + sum(map(len, self.texts))

    def encoded(self, namespace: str, name: str, uid: str, version: int) -> bytes:
        mark, time = _encode(NOW), _encode(self.time)
        first, *others = (piece.replace(mark, time) for piece in self.pattern.pieces)
        parts = [head_of(EVENTS, namespace, name, uid, version), first]
        for text, piece in zip(self.texts, others, strict=True):
            parts += (_encode(text), piece)
        return b"".join(parts)


def head_of(resource: Resource, namespace: str, name: str, uid: str, version: int) -> bytes:
    """The beginning of an arranged document as JSON, for names and uids that need no escapes."""
    place = f'"namespace":"{namespace}",' if namespace else ""
    return (
        f'{{"apiVersion":"{resource.api_version}","kind":"{resource.kind}",'
        f'"metadata":{{"name":"{name}",{place}"uid":"{uid}","resourceVersion":"{version}"'
    ).encode()
