"""Values that `block_yaml` understands in one line: plain and quoted scalars, and collections in braces or brackets; and
literal texts. What it does not understand raises NotBlock, and is left to the full reader."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec

_NOT_PLAIN = frozenset(" !&*|>%@`\"'#{}[],?:")  # first characters of scalars that are left to the full reader
# Escapes that mean the same in JSON; a surrogate does not.
_DOUBLE_QUOTED = re.compile(r'"(?:[^"\\]|\\["\\bfnrt]|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4})*"')
_SINGLE_QUOTED = re.compile(r"'(?:[^']|'')*'")
_COMMENT = re.compile(r" +#")
_CONTROL = re.compile(r"[^\n -~]")  # of texts in ASCII
_TOKEN = re.compile(
    r"""\ *(?:
        (?P<mark>[{}\[\],])
        |(?P<double>"[^"\\]*")
        |(?P<single>'(?:[^']|'')*')
        |(?P<plain>(?!-[ ,\]}])[A-Za-z0-9_./+-](?:[A-Za-z0-9_./+()=@$^~<>;-]|:(?=[A-Za-z0-9_./-])|\ (?=[A-Za-z0-9_./+(=-]))*)
    )(?P<colon>:(?=\ |$))?\ *""",
    re.VERBOSE,
)
_KEPT = 1 << 16  # scalars to intern
_DEEPEST_FLOW = 20


_TRUE = ("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON")
_FALSE = ("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF")
_WORDS: dict[str, Any] = {
    **dict.fromkeys(_TRUE, True),
    **dict.fromkeys(_FALSE, False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
_NUMERIC = frozenset("0123456789+-.")
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_BASED = re.compile(r"([-+]?)0(?:([xX])([0-9a-fA-F]+)|[oO]?([0-7]+)|[bB]([01]+))")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_LONGEST_INT = 70  # characters: 64 binary digits, the sign and the prefix
_LEAST, _LARGEST = -(1 << 63), (1 << 64) - 1  # integers beyond these are read as floats


class NotBlock(Exception):
    """The text needs the full reader."""


Read = Callable[[str, int], Any]
"""The value of a text by the full reader, and how deep it may be nested. Raises NotBlock if that reports an error or a
repair."""


def resolve(text: str) -> Any:
    """The value of a plain scalar."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMERIC:
        return text
    plain = text.replace("_", "")
    if len(plain) <= _LONGEST_INT:
        if _INT.fullmatch(plain) and _LEAST <= (whole := int(plain)) <= _LARGEST:
            return whole
        if match := _BASED.fullmatch(plain):
            digits, base = (match[3], 16) if match[2] else (match[4], 8) if match[4] else (match[5], 2)
            whole = -int(digits, base) if match[1] == "-" else int(digits, base)
            if _LEAST <= whole <= _LARGEST:
                return whole
    if _FLOAT.fullmatch(plain):
        number = float(plain)
        if math.isinf(number):
            return text  # out of range; Go's parser leaves it a string
        # After conversion to JSON, an integral number has no fraction.
        return int(number) if number.is_integer() and abs(number) < 1 << 53 else number
    return text


def is_strange(text: str) -> bool:
    """Whether a text has tabs, other line breaks, curly quotes or anything that YAML forbids."""
    found = _CONTROL.search(text) if text.isascii() else _strange().search(text)
    return found is not None


@cache
def _strange() -> re.Pattern[str]:  # takes 5 ms to compile
    return re.compile(r"[^\n -~\xa1-\u2017\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")


class ScalarValues(dict[str, Any]):
    """The values of scalars by their text; equal strings are shared. Only scalars that hold nothing mutable."""

    def __init__(self) -> None:
        super().__init__()
        self._keys: dict[str, str] = {}

    def __missing__(self, text: str) -> Any:
        if is_strange(text):
            raise NotBlock
        made = self._meaning(text)
        if len(self) < _KEPT:
            self[text] = made
        return made

    def key(self, text: str) -> str:
        known = self._keys.get(text)
        if known is None:
            if resolve(text) != text:
                raise NotBlock
            known = text
            if len(self._keys) < _KEPT:
                self._keys[text] = text
        return known

    def flow(self, text: str) -> Any:
        """The value of a collection in braces or brackets."""
        return _Flow(text).read()

    def literal(self, header: str, text: str) -> str:
        """The value of the lines after `|`, `|-` or `|+`."""
        lines = text.split("\n")
        if lines.pop():  # no line break at the end of the text
            raise NotBlock
        first = next((line for line in lines if line.strip(" ")), None)
        if first is None:
            raise NotBlock
        indent = len(first) - len(first.lstrip(" "))
        margin, content, begun = " " * indent, [], False
        for line in lines:
            if line.startswith(margin):
                content.append(line[indent:])
                if not begun and not line.strip(" ") and len(line) > indent:
                    raise NotBlock
                begun = begun or bool(line.strip(" "))
            elif line.strip(" "):
                raise NotBlock
            else:
                content.append("")
        made = "\n".join(content) + "\n"
        if header == "|+":
            return made
        return made.rstrip("\n") + ("" if header == "|-" else "\n")

    def _meaning(self, text: str) -> Any:
        if not text:
            raise NotBlock
        if text[0] in "\"'":
            return self._quoted(text)
        if " #" in text:
            text = text[: text.index(" #")].rstrip(" ")
        if not text or text[0] in _NOT_PLAIN or text[-1] in ": " or text == "-" or text[:2] == "- " or ": " in text:
            raise NotBlock
        made = resolve(text)
        if type(made) is float and not math.isfinite(made):
            raise NotBlock
        return made

    def is_open(self, text: str) -> bool:
        """Whether a quoted scalar does not end in its line."""
        return text not in self and _quotation(text) is None

    def folded(self, text: str, start: int) -> tuple[str, int]:
        """The value of a quoted scalar of several lines, and the position after its last line."""
        match = _quotation(text, start)
        if match is None:
            raise NotBlock
        end = text.find("\n", match.end())
        end = len(text) if end < 0 else end
        rest = text[match.end() : end].strip(" ")
        first, *lines = match[0].split("\n")
        if rest or not all(map(str.strip, lines)):
            raise NotBlock
        *between, last = lines
        joined = " ".join((first.rstrip(" "), *(line.strip(" ") for line in between), last.lstrip(" ")))
        return self._quoted(joined), end + 1

    def continued(self, plain: str, more: str) -> str:
        """A plain scalar that goes on in the next line."""
        more = more.rstrip(" ")
        if plain[0] in "\"'" or " #" in plain or " #" in more or ": " in more or more[-1] == ":":
            raise NotBlock
        return f"{plain} {more}"

    def _quoted(self, text: str) -> str:
        match = _quotation(text)
        if match is None or (match.end() != len(text) and not _COMMENT.match(text, match.end())):
            raise NotBlock
        quoted = match[0]
        if quoted[0] == "'":
            return quoted[1:-1].replace("''", "'")
        return str(msgspec.json.decode(quoted)) if "\\" in quoted else quoted[1:-1]


def _quotation(text: str, start: int = 0) -> re.Match[str] | None:
    """The quoted scalar that begins there; None if it does not end, or has escapes that are left to the full reader."""
    return (_SINGLE_QUOTED if text[start] == "'" else _DOUBLE_QUOTED).match(text, start)


class _Flow:
    """Reads one collection in braces or brackets, which ends with the line or a comment."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._depth = 0

    def read(self) -> Any:
        made = self._value(self._next())
        rest = self._text[self._position :]
        if rest and not (rest[0] == "#" and self._text[self._position - 1] == " "):
            raise NotBlock
        return made

    def _next(self) -> re.Match[str]:
        match = _TOKEN.match(self._text, self._position)
        if match is None:
            raise NotBlock
        self._position = match.end()
        return match

    def _value(self, token: re.Match[str]) -> Any:
        if token["colon"]:
            raise NotBlock
        mark = token["mark"]
        if not mark:
            return self._scalar(token)
        if mark not in "{[" or self._depth > _DEEPEST_FLOW:
            raise NotBlock
        self._depth += 1
        made = self._mapping() if mark == "{" else self._sequence()
        self._depth -= 1
        return made

    def _scalar(self, token: re.Match[str]) -> Any:
        if token["plain"] is None:
            return token["double"][1:-1] if token["double"] else token["single"][1:-1].replace("''", "'")
        made = resolve(token["plain"])
        if type(made) is float and not math.isfinite(made):
            raise NotBlock
        return made

    def _mapping(self) -> dict[str, Any]:
        made: dict[str, Any] = {}
        token = self._next()
        while token["mark"] != "}":
            if not token["colon"] or token["mark"]:
                raise NotBlock
            key = self._scalar(token)
            if type(key) is not str or key in made:
                raise NotBlock
            made[key] = self._value(self._next())
            token = self._after_value("}")
        if token["colon"]:
            raise NotBlock
        return made

    def _sequence(self) -> list[Any]:
        made: list[Any] = []
        token = self._next()
        while token["mark"] != "]":
            made.append(self._value(token))
            token = self._after_value("]")
        if token["colon"]:
            raise NotBlock
        return made

    def _after_value(self, end: str) -> re.Match[str]:
        """The end of the collection, or what follows the comma."""
        token = self._next()
        if token["mark"] != end and (token["mark"] != "," or token["colon"]):
            raise NotBlock
        return token if token["mark"] == end else self._next()
