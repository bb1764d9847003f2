"""Quantities as floats, exactly as upstream's `resource.Quantity.AsApproximateFloat64` computes them.

Scores are truncated, so the last bit of a float can decide between two scores.
"""

from __future__ import annotations

import re
from functools import lru_cache

from wharfinger.api.quantity import NANO, BadQuantity, parse_nano

_SYNTAX = re.compile(r"([+-]?)0*([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]+)|([KMGTPE]i|[numkMGTPE]|))")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


@lru_cache(maxsize=65536)
def _of_text(text: str) -> float:
    nano = parse_nano(text)
    match = _SYNTAX.fullmatch(text.strip())
    if match is None:
        raise BadQuantity(text)
    sign, whole, fraction, exponent, suffix = match.groups()
    fraction = fraction or ""
    digits = (whole or "0") + fraction
    # Upstream stores short numbers as an integer and a power of ten, all others in whole nano-units.
    if suffix in _BINARY:
        power = _BINARY[suffix]
        if not fraction and 15 - len(whole or "0") - power * 3 // 10 - 1 >= 0:
            amount = int(digits) << power
            return float(-amount if sign == "-" else amount)
    else:
        scale = (int(exponent) if exponent else _DECIMAL[suffix or ""]) - len(fraction)
        if len(digits) <= 18 and scale >= -9:
            number = float(-int(digits) if sign == "-" else int(digits))
            return number if scale == 0 else number * _power_of_ten(scale)
    return float(nano) * _power_of_ten(-9)


def _power_of_ten(exponent: int) -> float:
    return float(10**exponent) if exponent >= 0 else 1.0 / float(10**-exponent)


def approximate(quantity: str | int | float) -> float:
    """The quantity as a float. Raises BadQuantity."""
    if isinstance(quantity, str):
        return _of_text(quantity)
    if isinstance(quantity, int):
        return float(quantity)
    return parse_nano(quantity) / NANO
