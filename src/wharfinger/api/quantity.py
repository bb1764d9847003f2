"""Exact quantities: `100m`, `1.5Gi`, `2e3`, as integers, never floats.

A quantity is an integer of nano-units, the finest step Kubernetes keeps (finer values round away from zero). Decisions
compare whole units (`value`) or thousandths (`milli_value`), rounded up as in upstream's Quantity.
"""

from __future__ import annotations

import re
from functools import lru_cache

from wharfinger.api.numbers import parse_int64

NANO = 1_000_000_000
_MILLI = 1_000_000  # nano-units in a thousandth

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_SYNTAX = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:([eE])([+-]?[0-9]+)|([KMGTPE]i|[numkMGTPE]|))")
_SIGNIFICANT = 100  # digits; the largest quantity has 28 in nano-units
_LIMIT = (1 << 63) - 1  # Kubernetes caps quantities at the largest int64
_REMEMBERED = 64  # characters of a text up to which its value is remembered; clients may send longer ones

REGEX_MESSAGE = r"quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


class BadQuantity(ValueError):
    """The text is not a quantity."""


def _round_away(numerator: int, denominator: int) -> int:
    quotient, rest = divmod(abs(numerator), denominator)
    magnitude = quotient + (1 if rest else 0)
    return magnitude if numerator >= 0 else -magnitude


def _parse(text: str) -> tuple[int, str]:
    """Nano-units and the suffix family: `binary`, `decimal` or `exponent`."""
    match = _SYNTAX.fullmatch(text)
    if match is None or not (match[2] or match[3]):
        raise BadQuantity(REGEX_MESSAGE)
    text = ((match[2] or "") + (match[3] or "")).lstrip("0")
    scale = -len(match[3] or "")
    if len(text) > _SIGNIFICANT:
        # Further digits only matter for rounding away from zero. Converting many would take quadratic time.
        text, rest = text[:_SIGNIFICANT], text[_SIGNIFICANT:]
        digits, scale = int(text) + bool(rest.strip("0")), scale + len(rest)
    else:
        digits = int(text or "0")
    suffix = match[6] or ""
    numerator, denominator, family = digits * NANO, 1, "decimal"
    if match[4]:
        exponent = parse_int64(match[5])
        if exponent is None or abs(exponent) > 1000:
            raise BadQuantity(REGEX_MESSAGE)
        scale, family = scale + exponent, "exponent"
    elif suffix in _BINARY:
        numerator, family = numerator << _BINARY[suffix], "binary"
    elif suffix in _DECIMAL:
        scale += _DECIMAL[suffix]
    else:
        raise BadQuantity(REGEX_MESSAGE)
    if scale >= 0:
        numerator *= 10 ** min(scale, _SIGNIFICANT)  # anything larger is above the limit, too
    else:
        denominator = 10 ** min(-scale, 2 * _SIGNIFICANT)  # anything smaller rounds to one nano-unit, too
    nano = min(_round_away(numerator, denominator), _LIMIT * NANO)
    return (-nano if match[1] == "-" else nano), family


@lru_cache(maxsize=65536)
def _parse_short(text: str) -> tuple[int, str]:
    return _parse(text.strip())


def _parse_text(text: str) -> tuple[int, str]:
    return _parse_short(text) if len(text) <= _REMEMBERED else _parse(text.strip())


def parse_nano(quantity: str | int | float) -> int:
    """The quantity in nano-units. Numbers are accepted as JSON and YAML write them. Raises BadQuantity."""
    if type(quantity) is str and len(quantity) <= _REMEMBERED:  # the common case
        return _parse_short(quantity)[0]
    if isinstance(quantity, bool):
        raise BadQuantity(REGEX_MESSAGE)
    if isinstance(quantity, int):
        return quantity * NANO
    return _parse_text(quantity if isinstance(quantity, str) else repr(quantity))[0]


def _ceil_div(numerator: int, denominator: int) -> int:
    # Upstream's Value() and MilliValue() round away from zero, so -0.5 becomes -1.
    return _round_away(numerator, denominator)


@lru_cache(maxsize=65536)
def _value_text(text: str) -> int:
    return _ceil_div(_parse_text(text)[0], NANO)


@lru_cache(maxsize=65536)
def _milli_text(text: str) -> int:
    return _ceil_div(_parse_text(text)[0], _MILLI)


def value(quantity: str | int | float) -> int:
    """Whole units, rounded up: `100m` is 1, `1Ki` is 1024."""
    if isinstance(quantity, str) and len(quantity) <= _REMEMBERED:
        return _value_text(quantity)
    return _ceil_div(parse_nano(quantity), NANO)


def milli_value(quantity: str | int | float) -> int:
    """Thousandths, rounded up: `100m` is 100, `2` is 2000."""
    if isinstance(quantity, str) and len(quantity) <= _REMEMBERED:
        return _milli_text(quantity)
    return _ceil_div(parse_nano(quantity), _MILLI)


def _format_decimal(nano: int, *, exponent: bool) -> str:
    if nano == 0:
        return "0"
    for power, suffix in (
        (18, "E"),
        (15, "P"),
        (12, "T"),
        (9, "G"),
        (6, "M"),
        (3, "k"),
        (0, ""),
        (-3, "m"),
        (-6, "u"),
        (-9, "n"),
    ):
        step = 10 ** (power + 9)
        if nano % step == 0:
            return f"{nano // step}e{power}" if exponent and power else f"{nano // step}{'' if exponent else suffix}"
    raise AssertionError("every nano count divides by one")


def format_nano(nano: int, family: str = "decimal") -> str:
    """The canonical text: no fraction, the largest suffix that keeps it whole."""
    if family == "binary":
        # Binary suffixes only serve whole multiples of 1024 and more; anything smaller is written in decimal.
        if abs(nano) >= 1024 * NANO and nano % NANO == 0:
            units = nano // NANO
            for suffix, power in reversed(_BINARY.items()):
                if units % (1 << power) == 0:
                    return f"{units >> power}{suffix}"
            return str(units)
        return _format_decimal(nano, exponent=False)
    return _format_decimal(nano, exponent=family == "exponent")


def family(quantity: str | int | float) -> str:
    """The notation of a quantity, for `format_nano`: `binary`, `decimal` or `exponent`."""
    return _parse_text(quantity if isinstance(quantity, str) else repr(quantity))[1]


def canonical(quantity: str | int | float) -> str:
    """The form in which an API server stores the quantity: `1000m` becomes `1`, `1024Mi` becomes `1Gi`."""
    text = quantity if isinstance(quantity, str) else repr(quantity)
    nano, family = _parse_text(text)
    return format_nano(nano, family)


@lru_cache(maxsize=65536)
def _canonical_milli_text(text: str) -> str:
    nano, family = _parse_text(text)
    return format_nano(_round_away(nano, _MILLI) * _MILLI, family)


def canonical_milli(quantity: str | int | float) -> str:
    """`canonical`, rounded up to thousandths: resource lists hold nothing finer."""
    text = quantity if isinstance(quantity, str) else repr(quantity)
    return (_canonical_milli_text if len(text) <= _REMEMBERED else _canonical_milli_text.__wrapped__)(text)
