"""The protocol-buffer wire format: fields are written and read back, and malformed messages are refused."""

from __future__ import annotations

import pytest

from wharfinger.apiserver.protobuf_wire import (
    MalformedMessage,
    delimited_field,
    double_field,
    fields,
    signed,
    varint_field,
)


def test_fields_are_read_back() -> None:
    message = varint_field(1, 300) + delimited_field(2, b"text") + double_field(16, 1.5) + varint_field(3, -1)
    found = list(fields(message))
    assert found[:2] == [(1, 300), (2, b"text")]
    assert found[2][0] == 16
    assert [(number, signed(value)) for number, value in found[3:] if isinstance(value, int)] == [(3, -1)]


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        (b"\x0a\x05abc", "in the middle of a field"),
        (b"\x08\x80", "in the middle of a number"),
        (b"\x08" + b"\xff" * 10 + b"\x01", "more than 64 bits"),
        (b"\x0b", "wire type 3"),
    ],
)
def test_malformed_messages_are_refused(message: bytes, fault: str) -> None:
    with pytest.raises(MalformedMessage, match=fault):
        list(fields(message))
