"""Checks of literals in an expression that Kubernetes makes beyond types: all elements of a list or a map have one type, and
patterns, durations and times that are constants can be parsed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from google.protobuf.any_pb2 import Any as AnyMessage

from wharfinger.api.regex import compiled
from wharfinger.api.times import parse_duration, parse_time
from wharfinger.cel.expressions import MESSAGES, parts_of

_Expr = MESSAGES["Expr"]


def literal_faults(serialized: bytes) -> Iterator[str]:
    """What is wrong with the literals of a checked expression."""
    checked = MESSAGES["CheckedExpr"].FromString(AnyMessage.FromString(serialized).value)
    types = {each.id: bytes(each.type) for each in checked.types}
    yield from _faults(bytes(checked.expr), types)


def _faults(data: bytes, types: Mapping[int, bytes]) -> Iterator[str]:
    expr = _Expr.FromString(data)
    if expr.HasField("list"):
        yield from _mixed(list(expr.list.elements), types)
    elif expr.HasField("struct") and not expr.struct.message_name:
        yield from _mixed([each.map_key for each in expr.struct.entries], types)
        yield from _mixed([each.value for each in expr.struct.entries], types)
    elif expr.HasField("call"):
        yield from _unreadable(expr.call)
    for part in parts_of(expr):
        yield from _faults(bytes(part), types)


def _mixed(parts: list[bytes], types: Mapping[int, bytes]) -> Iterator[str]:
    """What is not known, such as an attribute, has a type of its own. An empty literal goes with any others."""
    known = {types.get(_Expr.FromString(each).id, b"") for each in parts if not _has_empty(each)}
    if len(known) > 1:
        yield "expected all elements of a literal to have the same type"


def _has_empty(data: bytes) -> bool:
    """Whether a literal is empty, or has parts that are: the types of their elements are open."""
    expr = _Expr.FromString(data)
    if expr.HasField("list"):
        return not expr.list.elements or any(map(_has_empty, expr.list.elements))
    if expr.HasField("struct") and not expr.struct.message_name:
        return not expr.struct.entries or any(_has_empty(each.value) for each in expr.struct.entries)
    return bool(expr.HasField("call")) and expr.call.function == "optional.none"


def _pattern(text: str) -> None:
    try:
        compiled(text)
    except ValueError as error:
        if "too large" not in str(error):  # a limit of ours
            raise


_PARSERS: Mapping[str, tuple[Callable[[str], object], str]] = {
    "matches": (_pattern, "invalid matches argument"),
    "duration": (parse_duration, "invalid duration argument"),
    "timestamp": (parse_time, "invalid timestamp argument"),
}


def _unreadable(call: Any) -> Iterator[str]:
    parse, why = _PARSERS.get(call.function, (None, ""))
    if parse is None or not call.args:
        return
    last = _Expr.FromString(call.args[-1])
    if last.HasField("constant") and last.constant.string_value:
        try:
            parse(bytes(last.constant.string_value).decode())
        except ValueError:
            yield why
