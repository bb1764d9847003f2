"""Matchers for a field of an expectation: a plain value, or one of `in`, `not`, `contains`, `exists`, `regex`, `lt`, `gt`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from wharfinger.api.fields import FieldError, show
from wharfinger.api.quantity import BadQuantity, parse_nano
from wharfinger.scenario.paths import ABSENT, scalar_text

Matcher = Callable[[Any], bool]
OPERATORS = ("in", "not", "contains", "exists", "regex", "lt", "gt")


def matcher(wanted: Any, path: str) -> tuple[Matcher, list[FieldError]]:
    """The predicate for `wanted`, and errors in it. Several operators must all hold."""
    if not isinstance(wanted, dict) or not wanted or not all(key in OPERATORS for key in wanted):
        return (lambda value: same(value, wanted)), []
    tests, errors = [], []
    for operator, operand in wanted.items():
        fault = _fault(operator, operand)
        if fault:
            errors.append(FieldError(f"{path}.{operator}", "FieldValueInvalid", fault))
        else:
            tests.append(_test(operator, operand))
    return (lambda value: all(test(value) for test in tests)), errors


def same(value: Any, wanted: Any) -> bool:
    """Equality; a number equals a string with the same text, because quantities and annotations are strings."""
    if value is ABSENT:
        return wanted is None
    if isinstance(value, dict) and isinstance(wanted, dict):
        return value.keys() == wanted.keys() and all(same(value[key], wanted[key]) for key in wanted)
    if isinstance(value, list) and isinstance(wanted, list):
        return len(value) == len(wanted) and all(map(same, value, wanted))
    if isinstance(value, str) != isinstance(wanted, str) and not isinstance(value, dict | list):
        return not isinstance(wanted, dict | list) and scalar_text(value) == scalar_text(wanted)
    return bool(value == wanted) and isinstance(value, bool) == isinstance(wanted, bool)


def _fault(operator: str, operand: Any) -> str:
    if operator == "in" and not isinstance(operand, list):
        return f"must be a list of values, not {show(operand)}"
    if operator == "exists" and not isinstance(operand, bool):
        return f"must be true or false, not {show(operand)}"
    if operator == "regex":
        try:
            re.compile(str(operand))
        except re.error as error:
            return f"is not a regular expression: {error}"
    if operator in ("lt", "gt") and _number(operand) is None:
        return f"must be a number or a quantity, not {show(operand)}"
    return ""


def _test(operator: str, operand: Any) -> Matcher:
    if operator == "in":
        return lambda value: any(same(value, item) for item in operand)
    if operator == "not":
        return lambda value: not same(value, operand)
    if operator == "contains":
        return lambda value: _contains(value, operand)
    if operator == "exists":
        return lambda value: (value is not ABSENT and value is not None) is operand
    if operator == "regex":
        pattern = re.compile(str(operand))
        return lambda value: value is not ABSENT and pattern.search(scalar_text(value)) is not None
    return lambda value: _compares(operator, value, operand)


def _contains(value: Any, wanted: Any) -> bool:
    """A substring, a list item or a map key; a list item may be an object with at least these fields."""
    if isinstance(value, str):
        return scalar_text(wanted) in value
    if isinstance(value, list):
        return any(_covers(item, wanted) for item in value)
    if isinstance(value, dict):
        return _covers(value, wanted) if isinstance(wanted, dict) else scalar_text(wanted) in value
    return False


def _covers(value: Any, wanted: Any) -> bool:
    if isinstance(value, dict) and isinstance(wanted, dict):
        return all(key in value and _covers(value[key], item) for key, item in wanted.items())
    return same(value, wanted)


def _compares(operator: str, value: Any, bound: Any) -> bool:
    number, limit = _number(value), _number(bound)
    if number is None or limit is None:
        return False
    return number < limit if operator == "lt" else number > limit


def _number(value: Any) -> int | None:
    """In nano-units, so that quantities such as `500m` compare exactly with numbers."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        return parse_nano(value)
    except BadQuantity:
        return None
