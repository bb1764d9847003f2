"""The functions on lists that Kubernetes adds to CEL."""

from __future__ import annotations

from itertools import pairwise
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


def contains_all(values: list[Any], wanted: list[Any]) -> bool:
    return all(any(_same(value, each) for value in values) for each in wanted)


def equivalent(values: list[Any], others: list[Any]) -> bool:
    return contains_all(values, others) and contains_all(others, values)


def intersects(values: list[Any], others: list[Any]) -> bool:
    return any(_same(value, each) for value in values for each in others)
