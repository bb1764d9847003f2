"""Regular expressions that users write, in schemas and in CEL: those of RE2, whose syntax Go and CEL have.

RE2 matches in time linear in the text, without the backtracking of `re`.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import islice
from typing import Any

_MAX_MEMORY = 1 << 20  # bytes of one expression
_MAX_PROGRAM = 5000  # instructions; matching takes time proportional to the program, too


@lru_cache(maxsize=128)
def compiled(pattern: str) -> Any:
    """Raises ValueError."""
    import re2  # loading it takes 20 ms, and few commands need it

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_MEMORY
    try:
        found = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise ValueError(f"illegal regex: {text}") from None
    if found.programsize > _MAX_PROGRAM:
        raise ValueError("illegal regex: pattern too large")
    return found


def program_size(pattern: str) -> float:
    """The number of instructions; infinite for one that is too large, and 0 if it is invalid and ends in an error."""
    try:
        return float(compiled(pattern).programsize)
    except ValueError as error:
        return float("inf") if "too large" in str(error) else 0.0


def find(text: str, pattern: str) -> str:
    match = compiled(pattern).search(text)
    return str(match[0]) if match else ""


def find_all(text: str, pattern: str) -> list[str]:
    return [match[0] for match in compiled(pattern).finditer(text)]


def find_all_limited(text: str, pattern: str, limit: int) -> list[str]:
    found = compiled(pattern).finditer(text)
    return [match[0] for match in (found if limit < 0 else islice(found, limit))]
