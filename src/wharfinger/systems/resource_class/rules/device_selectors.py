"""The requirements of a ResourceClass as one CEL expression over DRA devices.

The selectors of a DeviceClass are ANDed, while those of a ResourceClass are ORed: so it is one expression. Every look-up
is guarded, because an expression that reads what a device does not have is an error, and an error ends the allocation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from fractions import Fraction

from wharfinger.api.quantity import BadQuantity, parse_nano
from wharfinger.systems.resource_class.rules.properties import Expression, Selector, is_version, parse_amount

_MAX_INT64 = (1 << 63) - 1
_ATTRIBUTE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}")
_LONGEST_DOMAIN = 63


class NotExpressible(ValueError):
    """DRA has no such requirement; the message says which."""


def device_expression(driver: str, selectors: Sequence[Selector]) -> str:
    """The expression that selects the devices of a class. Raises NotExpressible."""
    own = f"device.driver == {_text(driver)}"
    choices = [" && ".join(_requirement(each, driver) for each in selector) for selector in selectors]
    if not choices:
        return own
    if len(choices) == 1:
        return f"{own} && {choices[0]}"
    return f"{own} && ({' || '.join(f'({each})' for each in choices)})"


def device_attribute(driver: str, key: str) -> str:
    """The attribute of devices that a property stands for, with its domain. Raises NotExpressible."""
    domain, name = _qualified(key, driver)
    if not _ATTRIBUTE.fullmatch(name) or len(domain) > _LONGEST_DOMAIN:
        raise NotExpressible(f"{key}: devices cannot have an attribute of this name")
    return f"{domain}/{name}"


def _requirement(expression: Expression, driver: str) -> str:
    domain, name = _qualified(expression.key, driver)
    match expression.operator:
        case "In":
            return _in(domain, name, expression.values)
        case "NotIn":
            return f"!{_in(domain, name, expression.values)}"
        case "Exists":
            return _exists(domain, name)
        case "DoesNotExist":
            return f"!{_exists(domain, name)}"
    return _compared(expression, domain, name)


def _qualified(key: str, driver: str) -> tuple[str, str]:
    domain, slash, name = key.rpartition("/")
    return (domain if slash else driver), name


def _has(part: str, domain: str, name: str) -> str:
    return f"{_text(name)} in device.{part}[{_text(domain)}]"


def _value(part: str, domain: str, name: str) -> str:
    return f"device.{part}[{_text(domain)}][{_text(name)}]"


def _exists(domain: str, name: str) -> str:
    return f"({_has('attributes', domain, name)} || {_has('capacity', domain, name)})"


def _in(domain: str, name: str, values: Sequence[str]) -> str:
    """Properties are text; an attribute may be text, a number, a truth value or a version."""
    attribute, capacity = _value("attributes", domain, name), _value("capacity", domain, name)
    equal = " || ".join(f"{attribute} == {literal}" for value in values for literal in _literals(value))
    found = f"({_has('attributes', domain, name)} && ({equal}))"
    amounts = [value for value in values if _quantity(value) == value]
    if not amounts:
        return found
    same = " || ".join(f"{capacity}.compareTo(quantity({_text(value)})) == 0" for value in amounts)
    return f"({found} || ({_has('capacity', domain, name)} && ({same})))"


def _literals(value: str) -> list[str]:
    found = [_text(value)]
    if value in ("true", "false"):
        found.append(value)
    if value.lstrip("-").isascii() and value.lstrip("-").isdigit() and abs(int(value)) <= _MAX_INT64:
        found.append(str(int(value)))
    return found


def _compared(expression: Expression, domain: str, name: str) -> str:
    (bound,) = expression.values
    if is_version(expression.key, bound):
        raise NotExpressible(f"{expression.key} {expression.operator} {bound}: versions cannot be compared by devices")
    amount = _quantity(bound)
    parsed = parse_amount(bound)
    assert parsed is not None, "validated"
    greater = expression.operator == "Gt"
    capacity, attribute = _value("capacity", domain, name), _value("attributes", domain, name)
    method, sign = ("isGreaterThan", ">") if greater else ("isLessThan", "<")
    parts = []
    if amount is not None:
        parts.append(f"({_has('capacity', domain, name)} && {capacity}.{method}(quantity({_text(amount)})))")
    whole = _whole(parsed.number, greater=greater)
    if abs(whole) <= _MAX_INT64:
        guard = f"{_has('attributes', domain, name)} && type({attribute}) in [int]"
        parts.append(f"({guard} && {attribute} {sign} {whole})")
    if not parts:
        raise NotExpressible(f"{expression.key} {expression.operator} {bound}: too large for a device")
    return parts[0] if len(parts) == 1 else f"({' || '.join(parts)})"


def _whole(number: Fraction, *, greater: bool) -> int:
    """The whole number with which whole numbers compare as with this one."""
    floor = number.numerator // number.denominator
    return floor if greater or floor == number else floor + 1


def _quantity(text: str) -> str | None:
    """An amount without its unit, if Kubernetes has such a quantity."""
    parsed = parse_amount(text)
    if parsed is None:
        return None
    number = text[: len(text) - len(parsed.unit)] if parsed.unit else text
    try:
        parse_nano(number)
    except BadQuantity:
        return None
    return number


def _text(value: str) -> str:
    return json.dumps(value)
