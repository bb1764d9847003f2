"""Protocol buffers, as far as the device-plugin API needs them: messages are dataclasses whose fields tell their number.

Unknown fields are skipped, as every receiver must do: that is what lets devices carry properties past an old kubelet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, fields
from typing import Any, TypeVar

M = TypeVar("M")

_VARINT, _I64, _LENGTH, _I32 = 0, 1, 2, 5
_DEPTH = 16  # messages within messages; ours have four


class BadMessage(ValueError):
    """Bytes that are no such message."""


def text(number: int) -> Any:
    return field(default="", metadata={"number": number, "kind": "text"})


def flag(number: int) -> Any:
    return field(default=False, metadata={"number": number, "kind": "flag"})


def integer(number: int) -> Any:
    return field(default=0, metadata={"number": number, "kind": "integer"})


def texts(number: int) -> Any:
    return field(default=(), metadata={"number": number, "kind": "text", "many": True})


def mapping(number: int) -> Any:
    """Text to text."""
    return field(default_factory=dict, metadata={"number": number, "kind": "map"})


def message(number: int, type: type[Any]) -> Any:
    return field(default=None, metadata={"number": number, "kind": "message", "type": type})


def messages(number: int, type: type[Any]) -> Any:
    return field(default=(), metadata={"number": number, "kind": "message", "type": type, "many": True})


def encode(value: Any) -> bytes:
    made = bytearray()
    for each in fields(value):
        meta, content = each.metadata, getattr(value, each.name)
        if meta["kind"] == "map":
            for key, item in content.items():
                _put(made, meta["number"], _pair(key, item))
            continue
        for item in content if meta.get("many") else (content,):
            _encode_one(made, meta, item, always=bool(meta.get("many")))
    return bytes(made)


def _encode_one(made: bytearray, meta: Any, item: Any, *, always: bool) -> None:
    number = meta["number"]
    if meta["kind"] == "message":
        if item is not None:
            _put(made, number, encode(item))
    elif meta["kind"] == "text":
        if item or always:
            _put(made, number, item.encode())
    elif item:
        made += _varint(number << 3 | _VARINT) + _varint(int(item) & (1 << 64) - 1)


def _put(made: bytearray, number: int, content: bytes) -> None:
    made += _varint(number << 3 | _LENGTH) + _varint(len(content)) + content


def _pair(key: str, item: str) -> bytes:
    made = bytearray()
    _put(made, 1, key.encode())
    _put(made, 2, item.encode())
    return bytes(made)


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def decode(data: bytes, type: type[M], depth: int = 0) -> M:
    """Raises BadMessage."""
    if depth > _DEPTH:
        raise BadMessage("messages too deep within each other")
    known = {each.metadata["number"]: each for each in fields(type)}  # type: ignore[arg-type]  # messages are dataclasses
    found: dict[str, Any] = {}
    for number, content in _parts(data):
        each = known.get(number)
        if each is None:
            continue
        meta = each.metadata
        if meta["kind"] == "map":
            pair = dict(_parts(_bytes(content)))
            found.setdefault(each.name, {})[_text(pair.get(1, b""))] = _text(pair.get(2, b""))
            continue
        item = _value(meta, content, depth)
        if meta.get("many"):
            found[each.name] = (*found.get(each.name, ()), item)
        else:
            found[each.name] = item
    return type(**found)


def _value(meta: Any, content: int | bytes, depth: int) -> Any:
    match meta["kind"]:
        case "message":
            return decode(_bytes(content), meta["type"], depth + 1)
        case "text":
            return _text(content)
        case kind:
            if not isinstance(content, int):
                raise BadMessage("bytes where a number should be")
            if kind == "flag":
                return bool(content)
            return content - (1 << 64) if content >= 1 << 63 else content


def _parts(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field numbers with what they hold: a number, or bytes."""
    position = 0
    while position < len(data):
        tag, position = _read_varint(data, position)
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise BadMessage("a field without a number")
        if kind == _VARINT:
            value, position = _read_varint(data, position)
            yield number, value
            continue
        if kind == _LENGTH:
            length, position = _read_varint(data, position)
        elif kind in (_I64, _I32):
            length = 8 if kind == _I64 else 4
        else:
            raise BadMessage(f"a field of the unknown wire type {kind}")
        if position + length > len(data):
            raise BadMessage("the message ends within a field")
        yield number, data[position : position + length]
        position += length


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(data) and shift < 64:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            return value & (1 << 64) - 1, position
        shift += 7
    raise BadMessage("a number that does not end")


def _bytes(content: int | bytes) -> bytes:
    if not isinstance(content, bytes):
        raise BadMessage("a number where bytes should be")
    return content


def _text(content: int | bytes) -> str:
    try:
        return _bytes(content).decode()
    except UnicodeDecodeError:
        raise BadMessage("text that is not UTF-8") from None
