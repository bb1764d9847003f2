"""The functions on lists and the regular-expression searches that Kubernetes adds to CEL."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from re import _constants, _parser  # type: ignore[attr-defined]  # the parser of `re` is not public
from typing import Any


def _ordered(values: list[Any]) -> None:
    kinds = {
        bool if isinstance(value, bool) else float if isinstance(value, int | float) else type(value)
        for value in values
    }
    if len(kinds) > 1 or kinds & {dict, list, type(None)}:
        raise ValueError("no such overload: the elements cannot be compared")


def is_sorted(values: list[Any]) -> bool:
    _ordered(values)
    return all(left <= right for left, right in pairwise(values))


def total(values: list[Any]) -> Any:
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in values):
        raise ValueError("no such overload: only numbers can be summed")
    return sum(values) if values else 0


def smallest(values: list[Any]) -> Any:
    if not values:
        raise ValueError("min called on empty list")
    _ordered(values)
    return min(values)


def largest(values: list[Any]) -> Any:
    if not values:
        raise ValueError("max called on empty list")
    _ordered(values)
    return max(values)


def _same(left: Any, right: Any) -> bool:
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


def index_of(values: list[Any], wanted: Any) -> int:
    return next((index for index, value in enumerate(values) if _same(value, wanted)), -1)


def last_index_of(values: list[Any], wanted: Any) -> int:
    return next((index for index in range(len(values) - 1, -1, -1) if _same(values[index], wanted)), -1)


@lru_cache(maxsize=1024)
def _expression(pattern: str) -> re.Pattern[str]:
    """Compiles expressions that RE2 accepts and that Python's engine matches in bounded time; raises ValueError for others.

    Python's engine backtracks, so nested repetitions could take exponential time. RE2 has no look-around and no
    back-references.
    """
    try:
        parsed = _parser.parse(pattern)
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"illegal regex: {error}") from None
    _refuse_costly(parsed, inside_repeat=False)
    return compiled


def _refuse_costly(parsed: Any, inside_repeat: bool) -> None:
    for code, argument in parsed:
        if code in (_constants.ASSERT, _constants.ASSERT_NOT, _constants.GROUPREF, _constants.GROUPREF_EXISTS):
            raise ValueError("illegal regex: look-around and back-references are not supported")
        if code in (_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT):
            _low, high, body = argument
            if inside_repeat and high > 1:
                raise ValueError("illegal regex: nested repetitions are not supported")
            _refuse_costly(body, inside_repeat or high > 1)
        elif code is _constants.SUBPATTERN:
            _refuse_costly(argument[3], inside_repeat)
        elif code is _constants.BRANCH:
            for branch in argument[1]:
                _refuse_costly(branch, inside_repeat)


def find(text: str, pattern: str) -> str:
    match = _expression(pattern).search(text)
    return match[0] if match else ""


def find_all(text: str, pattern: str) -> list[str]:
    return [match[0] for match in _expression(pattern).finditer(text)]


def find_all_limited(text: str, pattern: str, limit: int) -> list[str]:
    found = find_all(text, pattern)
    return found if limit < 0 else found[:limit]
