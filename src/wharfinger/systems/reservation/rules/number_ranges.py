"""Sets of numbers as text, such as `0-4,7`. Pure."""

from __future__ import annotations

from collections.abc import Iterable

MOST = 1 << 20  # numbers in one range; nobody writes longer ones


def ranges_text(numbers: Iterable[int]) -> str:
    parts: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if parts and number == parts[-1][1] + 1:
            parts[-1] = (parts[-1][0], number)
        else:
            parts.append((number, number))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def numbers_in(text: str) -> set[int]:
    """The numbers of a text; parts that are malformed are ignored."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal() and int(last or first) - int(first) < MOST:
            found.update(range(int(first), int(last or first) + 1))
    return found
