"""Estimates the cost of a CEL expression on a document before it is evaluated.

A unit is about one step of the evaluator: a field access, a call, ten characters searched. A macro (`all`, `map`, …) costs its
body times the size of its range: known for literals, else the largest list or map of the document. This is an upper bound, so
the evaluation of an expression within the limit is short.

Expressions are read from the serialized `cel.expr.CheckedExpr` of the CEL library. Nested expressions are declared as bytes and
decoded one level at a time, because protobuf limits how deeply messages may be nested.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from google.protobuf.any_pb2 import Any as AnyMessage

from wharfinger.api.protobuf import message_classes

PER_EXPRESSION = 1_000_000

_SEARCHES = frozenset(
    {
        *("matches", "contains", "startsWith", "endsWith", "find", "findAll", "replace", "split", "join", "format"),
        *("indexOf", "lastIndexOf", "parseJSON", "lowerAscii", "upperAscii", "trim", "substring", "reverse"),
        *("_==_", "_!=_", "_+_", "@in", "isSorted", "sum", "min", "max", "getQuery", "validate"),
    }
)
_CALL = 1.0
_LITERAL_COLLECTION = 10.0  # creating a list or map, as in cel-go


@dataclass(frozen=True, slots=True)
class Extent:
    """Size of a document: elements of its largest list or map, characters of its longest string."""

    breadth: int
    length: int


def extent(document: Any) -> Extent:
    breadth, length = 0, 0
    stack = [document]
    while stack:
        value = stack.pop()
        if isinstance(value, str):
            length = max(length, len(value))
        elif isinstance(value, dict):
            breadth = max(breadth, len(value))
            stack.extend(value.values())
        elif isinstance(value, list):
            breadth = max(breadth, len(value))
            stack.extend(value)
    # Rounded up to powers of two, so that many documents share a cached estimate.
    return Extent(1 << breadth.bit_length(), 1 << length.bit_length())


_MESSAGES = message_classes(
    "cel.expr",
    {
        "CheckedExpr": "bytes expr = 4",
        "Expr": """
            Constant constant = 3; Identifier identifier = 4; Select select = 5; Call call = 6; CreateList list = 7;
            CreateStruct struct = 8; Comprehension comprehension = 9
        """,
        "Constant": "bytes string_value = 6; bytes bytes_value = 7",
        "Identifier": "",
        "Select": "bytes operand = 1",
        "Call": "bytes target = 1; string function = 2; repeated bytes args = 3",
        "CreateList": "repeated bytes elements = 1",
        "CreateStruct": "repeated Entry entries = 2",
        "Entry": "bytes map_key = 3; bytes value = 4",
        "Comprehension": """
            bytes range = 2; bytes initial = 4; bytes condition = 5; bytes step = 6; bytes result = 7
        """,
    },
)
_Expr = _MESSAGES["Expr"]


class CostModel:
    """The cost of one checked expression as a function of a document's extent."""

    def __init__(self, serialized: bytes) -> None:
        checked = _MESSAGES["CheckedExpr"].FromString(AnyMessage.FromString(serialized).value)
        self._root: bytes = checked.expr
        self.functions = frozenset(_functions(self._root))
        self.cost = lru_cache(maxsize=256)(self._cost)

    def _cost(self, size: Extent) -> float:
        return _estimate(self._root, size)[0]


def _estimate(data: bytes, size: Extent) -> tuple[float, float]:
    """The cost of an expression, and an upper bound of the number of elements (or characters) of its value."""
    expr = _Expr.FromString(data)
    if expr.HasField("constant"):
        return 0.0, float(len(expr.constant.string_value or expr.constant.bytes_value))
    if expr.HasField("identifier"):
        return _CALL, float(size.breadth)
    if expr.HasField("select"):
        return _estimate(expr.select.operand, size)[0] + _CALL, float(size.breadth)
    if expr.HasField("call"):
        return _call(expr.call, size)
    if expr.HasField("list"):
        elements = expr.list.elements
        return _LITERAL_COLLECTION + sum(_estimate(each, size)[0] for each in elements), float(len(elements))
    if expr.HasField("struct"):
        entries = expr.struct.entries
        total = sum(_estimate(part, size)[0] for entry in entries for part in (entry.map_key, entry.value))
        return _LITERAL_COLLECTION + total, float(len(entries))
    if expr.HasField("comprehension"):
        return _comprehension(expr.comprehension, size)
    return 0.0, 0.0


def _call(call: Any, size: Extent) -> tuple[float, float]:
    total, largest = _CALL, 0.0
    for part in (call.target, *call.args):
        cost, elements = _estimate(part, size)
        total, largest = total + cost, max(largest, elements)
    if call.function in _SEARCHES:
        total += max(largest, size.length) / 10
    return total, max(largest, float(size.breadth))


def _comprehension(loop: Any, size: Extent) -> tuple[float, float]:
    range_cost, elements = _estimate(loop.range, size)
    once = _estimate(loop.initial, size)[0] + _estimate(loop.result, size)[0]
    each = _estimate(loop.condition, size)[0] + _estimate(loop.step, size)[0]
    return range_cost + once + elements * (each + _CALL), elements


def _functions(data: bytes) -> Iterator[str]:
    """The names of all functions called anywhere in an expression."""
    expr = _Expr.FromString(data)
    if expr.HasField("call"):
        yield expr.call.function
    loop = expr.comprehension
    for part in (
        expr.select.operand,
        expr.call.target,
        *expr.call.args,
        *expr.list.elements,
        *(part for entry in expr.struct.entries for part in (entry.map_key, entry.value)),
        *(loop.range, loop.initial, loop.condition, loop.step, loop.result),
    ):
        if part:
            yield from _functions(part)
