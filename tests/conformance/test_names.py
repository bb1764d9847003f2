"""The DNS server of the specs' pods, by its packets."""

from __future__ import annotations

import struct

import pytest
from tests.conformance.names import answer

NAMES = {"web.shop.svc.cluster.local": ["10.88.0.5", "10.88.0.6"], "idle.shop.svc.cluster.local": []}


def query(name: str, kind: int = 1) -> bytes:
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!HH", kind, 1)


@pytest.mark.parametrize(
    ("name", "kind", "code", "addresses"),
    [
        ("web.shop.svc.cluster.local", 1, 0, [b"\x0a\x58\x00\x05", b"\x0a\x58\x00\x06"]),
        ("web.shop.svc.cluster.local", 28, 0, []),
        ("idle.shop.svc.cluster.local", 1, 0, []),
        ("example.com", 1, 3, []),
    ],
)
def test_answers(name: str, kind: int, code: int, addresses: list[bytes]) -> None:
    asked = query(name, kind)
    said = answer(asked, NAMES.get)
    identity, flags, questions, answers, _, _ = struct.unpack("!HHHHHH", said[:12])
    assert (identity, flags >> 15, flags & 15, questions, answers) == (7, 1, code, 1, len(addresses))
    assert said[12:].startswith(asked[12:])
    records = said[len(asked) :]
    assert [records[at + 12 : at + 16] for at in range(0, len(records), 16)] == addresses
