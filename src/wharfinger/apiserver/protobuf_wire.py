"""The protocol-buffer wire format: fields of a message as numbers and bytes.

For Kubernetes objects and OpenAPI documents, which are converted from and to JSON field by field with tables of their
layout: building message objects of the protobuf library in between would be a second conversion. Protocols of which we
use the messages themselves are described with `wharfinger.api.protobuf`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5
_MASK = (1 << 64) - 1


class MalformedMessage(ValueError):
    """Bytes that are not a protocol-buffer message."""


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field numbers and values: an int for a varint, bytes for anything else."""
    position, end = 0, len(message)
    while position < end:
        tag = message[position]
        if tag < 0x80:  # most numbers have one byte
            position += 1
        else:
            tag, position = _read_varint(message, position)
        wire = tag & 7
        if wire == DELIMITED:
            if position < end and (size := message[position]) < 0x80:
                position += 1
            else:
                size, position = _read_varint(message, position)
        elif wire == VARINT:
            value, position = _read_varint(message, position)
            yield tag >> 3, value
            continue
        elif wire == FIXED64:
            size = 8
        elif wire == FIXED32:
            size = 4
        else:
            raise MalformedMessage(f"wire type {wire}")
        if position + size > end:
            raise MalformedMessage("the message ends in the middle of a field")
        yield tag >> 3, message[position : position + size]
        position += size


def _read_varint(message: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    try:
        while shift < 64:
            byte = message[position]
            position += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number & _MASK, position
            shift += 7
    except IndexError:
        raise MalformedMessage("the message ends in the middle of a number") from None
    raise MalformedMessage("a number of more than 64 bits")


def signed(number: int) -> int:
    """A varint as the two's complement of 64 bits."""
    return number - (1 << 64) if number >= 1 << 63 else number


def varint_field(number: int, value: int) -> bytes:
    return varint(number << 3 | VARINT) + varint(value & _MASK)


def delimited_field(number: int, value: bytes) -> bytes:
    """A field of text, bytes or an embedded message."""
    return varint(number << 3 | DELIMITED) + varint(len(value)) + value


def double_field(number: int, value: float) -> bytes:
    return varint(number << 3 | FIXED64) + struct.pack("<d", value)


def varint(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)
