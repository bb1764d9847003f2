"""Evaluates ResourceClass selectors on device properties.

`In` and `NotIn` compare text. `Gt` and `Lt` compare amounts exactly: a number, an optional prefix as in Kubernetes
quantities, and an optional unit, as in `15G`, `15Gi` or `40GBPS`. An amount without a unit is comparable with any;
amounts with different units are not comparable.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")

_PREFIXES = {
    **{name: Fraction(10) ** power for name, power in {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6}.items()},
    **{name: Fraction(10) ** power for name, power in {"G": 9, "T": 12, "P": 15, "E": 18}.items()},
    **{f"{name}i": Fraction(1 << 10 * (power + 1)) for power, name in enumerate("KMGTPE")},
}
_SYNTAX = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"(?P<prefix>[KMGTPE]i|[numkMGTPE])?"
    r"(?P<unit>(?:[^\W\d_]|[%°])[\w/%°^]*)?"
)
_LONGEST = 256
_LARGEST_EXPONENT = 1000  # bounds the cost of parsing


@dataclass(frozen=True, slots=True)
class Amount:
    """An exact number and its unit in lower case, empty if none is given."""

    number: Fraction
    unit: str = ""

    def comparable(self, other: Amount) -> bool:
        return not self.unit or not other.unit or self.unit == other.unit


@lru_cache(maxsize=16384)
def parse_amount(text: str) -> Amount | None:
    """Parses an amount; None for other text, such as `fast`."""
    match = _SYNTAX.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        return None
    digits, _, exponent = match["number"].lower().partition("e")
    if exponent and (len(exponent) > 6 or abs(int(exponent)) > _LARGEST_EXPONENT):
        return None
    number = Fraction(digits) * Fraction(10) ** int(exponent or 0)
    if match["prefix"]:
        number *= _PREFIXES[match["prefix"]]
    return Amount(number, (match["unit"] or "").casefold())


@dataclass(frozen=True, slots=True)
class Expression:
    """One requirement of a selector."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def holds(self, properties: Mapping[str, str]) -> bool:
        value = properties.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return value is not None and len(self.values) == 1 and self._compare(value, self.values[0])
        return False

    def _compare(self, value: str, bound: str) -> bool:
        have, than = parse_amount(value), parse_amount(bound)
        if have is None or than is None or not have.comparable(than):
            return False
        return have.number > than.number if self.operator == "Gt" else have.number < than.number


Selector = tuple[Expression, ...]
"""Expressions, ANDed."""


def matches(selectors: Sequence[Selector], properties: Mapping[str, str]) -> bool:
    """Whether any of the selectors matches; an empty list matches everything."""
    return not selectors or any(all(each.holds(properties) for each in selector) for selector in selectors)
