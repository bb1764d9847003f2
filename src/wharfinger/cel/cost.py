"""An approximate cost of a CEL expression on a document, in our own units, known before it is evaluated.

A unit is about one step of the evaluator: a field read, a call, a tenth of a character searched. A macro (`all`, `map`,
…) costs its body times the size of what it runs over: known for literals, else the largest list or map of the document.
That is an upper bound, so an expression within the limits is sure to end soon.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from wharfinger.api.protobuf_wire import fields

PER_EXPRESSION = 1_000_000
PER_CLUSTER = 10_000_000  # of all expressions of one predicate on one cluster

_SEARCHES = frozenset(
    {
        *("matches", "contains", "startsWith", "endsWith", "find", "findAll", "replace", "split", "join", "format"),
        *("indexOf", "lastIndexOf", "parseJSON", "lowerAscii", "upperAscii", "trim", "substring", "reverse"),
        *("_==_", "_!=_", "_+_", "@in", "isSorted", "sum", "min", "max", "getQuery", "validate"),
    }
)
_CALL = 1.0
_LITERAL_COLLECTION = 10.0  # building a list or map, as cel-go counts it


@dataclass(frozen=True, slots=True)
class Extent:
    """How big a document is: members of its largest list or map, characters of its longest text."""

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
    # Rounded up to powers of two, so that many documents share one estimate.
    return Extent(1 << breadth.bit_length(), 1 << length.bit_length())


class CostModel:
    """The cost of one checked expression as a function of a document's extent."""

    def __init__(self, serialized: bytes) -> None:
        checked = _field(serialized, 2)  # google.protobuf.Any.value
        self._root = _field(checked, 4)  # cel.expr.CheckedExpr.expr
        self.functions = frozenset(_functions(self._root))
        self.cost = lru_cache(maxsize=256)(self._cost)

    def _cost(self, size: Extent) -> float:
        return _estimate(self._root, size)[0]


def _estimate(expr: bytes, size: Extent) -> tuple[float, float]:
    """Cost of a node, and a bound of the number of members (or characters) of its value."""
    for number, value in fields(expr):
        if not isinstance(value, bytes):
            continue
        match number:
            case 3:  # constant
                text = next((part for kind, part in fields(value) if kind in (6, 7) and isinstance(part, bytes)), b"")
                return 0.0, float(len(text))
            case 4:  # identifier
                return _CALL, float(size.breadth)
            case 5:  # field selection
                return _estimate(_field(value, 1), size)[0] + _CALL, float(size.breadth)
            case 6:
                return _call(value, size)
            case 7:
                parts = [_estimate(part, size) for kind, part in fields(value) if kind == 1 and isinstance(part, bytes)]
                return _LITERAL_COLLECTION + sum(cost for cost, _ in parts), float(len(parts))
            case 8:
                entries = [entry for kind, entry in fields(value) if kind == 2 and isinstance(entry, bytes)]
                total = sum(
                    _estimate(part, size)[0]
                    for entry in entries
                    for kind, part in fields(entry)
                    if kind in (3, 4) and isinstance(part, bytes)
                )
                return _LITERAL_COLLECTION + total, float(len(entries))
            case 9:
                return _comprehension(value, size)
    return 0.0, 0.0


def _call(call: bytes, size: Extent) -> tuple[float, float]:
    name = _field(call, 2).decode()
    total, largest = _CALL, 0.0
    for number, part in fields(call):
        if number in (1, 3) and isinstance(part, bytes):
            cost, members = _estimate(part, size)
            total, largest = total + cost, max(largest, members)
    if name in _SEARCHES:
        total += max(largest, size.length) / 10
    return total, max(largest, float(size.breadth))


def _comprehension(comprehension: bytes, size: Extent) -> tuple[float, float]:
    range_cost, members = _estimate(_field(comprehension, 2), size)
    once = sum(_estimate(_field(comprehension, part), size)[0] for part in (4, 7))
    each = sum(_estimate(_field(comprehension, part), size)[0] for part in (5, 6))
    return range_cost + once + members * (each + _CALL), members


def _functions(expr: bytes) -> Iterator[str]:
    for number, value in fields(expr):
        if isinstance(value, bytes) and number in (5, 6, 7, 8, 9):
            if number == 6:
                yield _field(value, 2).decode()
            for kind, part in fields(value):
                if not isinstance(part, bytes):
                    continue
                if number == 8 and kind == 2:
                    for _, nested in fields(part):
                        if isinstance(nested, bytes):
                            yield from _functions_of(nested)
                elif _is_expression(number, kind):
                    yield from _functions(part)


def _functions_of(part: bytes) -> Iterator[str]:
    try:
        yield from _functions(part)
    except (ValueError, IndexError, UnicodeDecodeError):
        return  # a field name, not an expression


def _is_expression(node: int, field: int) -> bool:
    return {5: field == 1, 6: field in (1, 3), 7: field == 1, 9: field in (2, 4, 5, 6, 7)}.get(node, False)


def _field(message: bytes, wanted: int) -> bytes:
    return next((value for number, value in fields(message) if number == wanted and isinstance(value, bytes)), b"")
