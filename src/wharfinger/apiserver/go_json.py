"""Error messages of Go's JSON decoder for malformed JSON. Used only after decoding has failed.

Anybody can send a large body with an error at its end, so only so many values are read in search of it.
"""

from __future__ import annotations

import re

_MAX_VALUES = 20_000
_SPACES = re.compile(rb"[ \t\r\n]*")
_PLAIN_TEXT = re.compile(rb'[^"\\\x00-\x1f]*')
_ALL_DIGITS = re.compile(rb"[0-9]*")
_END = "unexpected end of JSON input"
_DIGITS = b"0123456789"
_HEX = b"0123456789abcdefABCDEF"


class _SyntaxError(Exception):
    pass


def syntax_error(data: bytes) -> str:
    """The message for the first syntax error; empty if Go accepts the data, or if it was not found early enough."""
    try:
        reader = _GoJsonReader(data)
        reader.value()
        reader.space()
        if reader.at < len(data):
            reader.refuse("after top-level value")
    except _SyntaxError as fault:
        return str(fault)
    except RecursionError:
        return "exceeded max depth"
    return ""


class _GoJsonReader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0
        self._left = _MAX_VALUES

    def refuse(self, where: str) -> None:
        if self.at >= len(self._data):
            raise _SyntaxError(_END)
        byte = self._data[self.at]
        shown = {0x27: "'\\''", 0x22: "'\"'"}.get(byte) or _quoted(byte)
        raise _SyntaxError(f"invalid character {shown} {where}")

    def _peek(self) -> bytes:
        return self._data[self.at : self.at + 1]

    def space(self) -> None:
        self._skip(_SPACES)

    def _skip(self, pattern: re.Pattern[bytes]) -> None:
        found = pattern.match(self._data, self.at)
        assert found is not None  # it matches nothing, too
        self.at = found.end()

    def value(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise _SyntaxError("")
        self.space()
        match self._peek():
            case b"{":
                self._object()
            case b"[":
                self._array()
            case b'"':
                self._text()
            case b"t":
                self._literal("true")
            case b"f":
                self._literal("false")
            case b"n":
                self._literal("null")
            case first if first and first in b"-0123456789":
                self._number()
            case _:
                self.refuse("looking for beginning of value")

    def _object(self) -> None:
        if self._empty(b"}"):
            return
        while True:
            self.space()
            if self._peek() != b'"':
                self.refuse("looking for beginning of object key string")
            self._text()
            self.space()
            if self._peek() != b":":
                self.refuse("after object key")
            self.at += 1
            self.value()
            self.space()
            if self._closed(b"}", "after object key:value pair"):
                return

    def _array(self) -> None:
        if self._empty(b"]"):
            return
        while True:
            self.value()
            self.space()
            if self._closed(b"]", "after array element"):
                return

    def _empty(self, bracket: bytes) -> bool:
        """Reads the opening bracket, and the closing one if it follows."""
        self.at += 1
        self.space()
        if self._peek() != bracket:
            return False
        self.at += 1
        return True

    def _closed(self, bracket: bytes, where: str) -> bool:
        following = self._peek()
        if following not in (b",", bracket):
            self.refuse(where)
        self.at += 1
        return following == bracket

    def _text(self) -> None:
        self.at += 1
        self._skip(_PLAIN_TEXT)
        while (here := self._peek()) != b'"':
            if not here or here < b" ":
                self.refuse("in string literal")
            self.at += 1
            if here == b"\\":
                self._left -= 1
                if self._left < 0:
                    raise _SyntaxError("")
                self._escape()
            self._skip(_PLAIN_TEXT)
        self.at += 1

    def _escape(self) -> None:
        here = self._peek()
        if not here or here not in b'bfnrt\\/"u':
            self.refuse("in string escape code")
        self.at += 1
        if here == b"u":
            for _ in range(4):
                self._one_of(_HEX, "in \\u hexadecimal character escape")

    def _literal(self, word: str) -> None:
        for character in word:
            self._one_of(character.encode(), f"in literal {word} (expecting '{character}')")

    def _number(self) -> None:
        if self._peek() == b"-":
            self.at += 1
        first = self._peek()
        self._one_of(_DIGITS, "in numeric literal")
        if first != b"0":
            self._digits()
        if self._peek() == b".":
            self.at += 1
            self._one_of(_DIGITS, "after decimal point in numeric literal")
            self._digits()
        if self._peek() in (b"e", b"E"):
            self.at += 1
            if self._peek() in (b"+", b"-"):
                self.at += 1
            self._one_of(_DIGITS, "in exponent of numeric literal")
            self._digits()

    def _digits(self) -> None:
        self._skip(_ALL_DIGITS)

    def _one_of(self, allowed: bytes, where: str) -> None:
        if not self._peek() or self._peek() not in allowed:
            self.refuse(where)
        self.at += 1


_ESCAPES = {7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r", 0x5C: "\\\\"}


def _quoted(byte: int) -> str:
    """A byte as Go's `%q` formats it."""
    if byte in _ESCAPES:
        return f"'{_ESCAPES[byte]}'"
    if byte < 0x20 or byte == 0x7F:
        return f"'\\x{byte:02x}'"
    return f"'{chr(byte)}'" if chr(byte).isprintable() else f"'\\u{byte:04x}'"
