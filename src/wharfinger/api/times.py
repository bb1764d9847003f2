"""Times and durations in the notations of Kubernetes, RFC 3339 and Go durations; in Python they are seconds."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from fractions import Fraction
from functools import lru_cache

_UNITS = {
    "ns": Fraction(1, 1_000_000_000),
    "us": Fraction(1, 1_000_000),
    "µs": Fraction(1, 1_000_000),
    "μs": Fraction(1, 1_000_000),
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "m": Fraction(60),
    "h": Fraction(3600),
}
_PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_LONGEST = 400  # characters of a duration; Go's largest, 292 years to the nanosecond, has 22
LONGEST_DURATION = "2562047h47m16s"  # Go counts nanoseconds in 64 bits
_LONGEST_NANOS = 2**63 - 1


class BadTime(ValueError):
    """The text is not a time or duration."""


@lru_cache(maxsize=1024)
def parse_duration(text: str) -> float:
    """The seconds of a Go duration such as `1h30m`, `0`, `250ms`, `-5s`."""
    body, sign = text, 1
    if body[:1] in "+-" and body:
        sign, body = (-1 if body[0] == "-" else 1), body[1:]
    if body == "0":
        return 0.0
    if len(body) > _LONGEST:
        raise BadTime(f"invalid duration {text[:40]!r}…: too long")
    total, position = Fraction(0), 0
    while position < len(body):
        match = _PART.match(body, position)
        if match is None:
            break
        total += Fraction(match[1]) * _UNITS[match[2]]
        position = match.end()
    if not body or position != len(body):
        raise BadTime(f"invalid duration {text!r}: want numbers with units, such as 90s, 1h30m or 250ms")
    if total * 1_000_000_000 > _LONGEST_NANOS:
        raise BadTime(f"invalid duration {text!r}: longer than {LONGEST_DURATION}")
    return float(sign * total)


def parse_time(text: str) -> float:
    """Seconds since the epoch of an RFC 3339 instant."""
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00") if text.endswith("Z") else text)
    except ValueError:
        raise BadTime(f"invalid time {text!r}: want RFC 3339, such as 2026-01-01T00:00:00Z") from None
    if moment.tzinfo is None:
        raise BadTime(f"invalid time {text!r}: the time zone is missing (append Z for UTC)")
    return moment.timestamp()


def time_or_none(text: object) -> float | None:
    """Seconds since the epoch of an RFC 3339 instant; None if there is none, or another text."""
    try:
        return parse_time(str(text)) if text else None
    except BadTime:
        return None


def format_time(seconds: float) -> str:
    """RFC 3339 to the second, in UTC, as Kubernetes writes `metav1.Time`."""
    return _second(int(seconds // 1))


@lru_cache(1024)
def _second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(seconds: float) -> str:
    """RFC 3339 with microseconds: `metav1.MicroTime`, used by leases and events."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def human_duration(seconds: float) -> str:
    """An age as `kubectl get` shows it: `5s`, `3m20s`, `15m`, `5h10m`, `2d3h`, `40d`, `2y`."""
    total = int(seconds)
    if total < -1:
        return "<invalid>"
    if total < 0:
        return "0s"
    if total < 120:
        return f"{total}s"
    minutes, hours, days, years = total // 60, total // 3600, total // 86400, total // (365 * 86400)
    if minutes < 10:
        return _two_units(minutes, "m", total % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two_units(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two_units(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    return _two_units(years, "y", days % 365, "d") if years < 8 else f"{years}y"


def _two_units(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"
