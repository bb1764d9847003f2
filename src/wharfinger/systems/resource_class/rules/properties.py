"""Evaluates ResourceClass selectors on device properties.

`In` and `NotIn` compare text. `Gt` and `Lt` compare amounts exactly: a number, an optional prefix as in Kubernetes
quantities, and an optional unit, as in `15G`, `15Gi` or `40GBPS`. An amount without a unit is comparable with any;
amounts with different units are not comparable.

Versions are compared part by part instead: `535.104` is greater than `535.54`. They are known by the name of the
property, or by a leading `v` or a second dot in what it is compared with.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache

import msgspec

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


class Amount(msgspec.Struct, frozen=True):
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


_VERSION = re.compile(r"[vV]?(?P<numbers>[0-9]{1,18}(?:\.[0-9]{1,18})*)(?P<pre>-[\w.-]+)?(?:\+[\w.-]+)?")
_VERSION_KEYS = ("version", "driver", "firmware", "release")

Version = tuple[tuple[int, ...], bool, str]
"""The numbers without zeros at the end, whether it is a release, and the name of the pre-release."""


@lru_cache(maxsize=16384)
def parse_version(text: str) -> Version | None:
    """Parses a version such as `535.104.05`, `v1.2` or `2.0-rc1`, which comes before `2.0`; None for other text."""
    match = _VERSION.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        return None
    numbers = [int(part) for part in match["numbers"].split(".")]
    while len(numbers) > 1 and not numbers[-1]:
        numbers.pop()
    return tuple(numbers), match["pre"] is None, match["pre"] or ""


def is_version(key: str, bound: str, value: str = "0") -> bool:
    """Whether the values of a property are compared with this bound as versions."""
    if parse_version(bound) is None:
        return False
    name = key.rpartition("/")[2].casefold()
    if any(word in name for word in _VERSION_KEYS) and parse_version(value) is not None:
        return True
    return bound[0] in "vV" or bound.partition("-")[0].count(".") > 1


def is_bound(key: str, text: str) -> bool:
    """Whether `Gt` and `Lt` can compare with this."""
    return parse_amount(text) is not None or is_version(key, text)


class Expression(msgspec.Struct, frozen=True):
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
        if is_version(self.key, bound, value):
            newer, older = parse_version(value), parse_version(bound)
            if newer is None or older is None:
                return False
            return newer > older if self.operator == "Gt" else newer < older
        have, than = parse_amount(value), parse_amount(bound)
        if have is None or than is None or not have.comparable(than):
            return False
        return have.number > than.number if self.operator == "Gt" else have.number < than.number


Selector = tuple[Expression, ...]
"""Expressions, ANDed."""


def matches(selectors: Sequence[Selector], properties: Mapping[str, str]) -> bool:
    """Whether any of the selectors matches; an empty list matches everything."""
    return not selectors or any(all(each.holds(properties) for each in selector) for selector in selectors)
