"""Whole numbers in text, read as Go's strconv reads them: ASCII digits only, and within 64 bits.

Python's `int` and `str.isdigit` also accept the digits of other scripts, and `int` fails on very long numbers.
"""

from __future__ import annotations

import re

_SIGNED = re.compile(r"[+-]?[0-9]+")
_UNSIGNED = re.compile(r"[0-9]+")
_LONGEST = 4000  # digits that are converted; more, not counting leading zeros, are out of range anyway


def parse_int64(text: str) -> int | None:
    """As strconv.ParseInt(text, 10, 64): digits with an optional sign. None if the text is something else."""
    if not _SIGNED.fullmatch(text) or len(text) > _LONGEST:
        return None
    number = int(text)
    return number if -(1 << 63) <= number < 1 << 63 else None


def parse_uint64(text: str) -> int | None:
    """As strconv.ParseUint(text, 10, 64): digits only. None if the text is something else."""
    if not _UNSIGNED.fullmatch(text) or len(text) > _LONGEST:
        return None
    number = int(text)
    return number if number < 1 << 64 else None
