"""YAML for people and for `kubectl`, in block style. Our own writer: a report of 50,000 pods takes seconds instead of
minutes."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from wharfinger.api.yaml_reader import resolve

_INNER = r"(?:[^\s:#,\[\]{}]|:(?=\S)|(?<=\S)#|[,\[\]{}]| (?=\S)(?!#))*"
_WORD = re.compile(rf"(?:[^\W\d]|/){_INNER}")
_NUMBER_LIKE = re.compile(rf"[0-9]{_INNER}")
_OTHER_MEANING = re.compile(r"[0-9]{4}-[0-9]|[0-9][0-9_]*(?::[0-9])")  # dates, and numbers to the base of sixty
_ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


def yaml_text(value: Any) -> str:
    """The document without a final newline; keys keep their order."""
    lines: list[str] = []
    _write(value, "", lines)
    return "\n".join(lines)


def _write(value: Any, pad: str, lines: list[str]) -> None:
    if isinstance(value, dict) and value:
        for name, item in value.items():
            _write_member(f"{pad}{_scalar(str(name))}:", item, pad, lines)
    elif isinstance(value, list | tuple) and value:
        inner, skipped = pad + "  ", len(pad) + 2
        for item in value:
            if isinstance(item, dict | list | tuple) and item:
                first = len(lines)
                _write(item, inner, lines)
                lines[first] = f"{pad}- {lines[first][skipped:]}"
            else:
                lines.append(f"{pad}- {_text(item, inner)}")
    else:
        lines.append(pad + _text(value, pad))


def _write_member(head: str, item: Any, pad: str, lines: list[str]) -> None:
    if isinstance(item, dict) and item:
        lines.append(head)
        _write(item, pad + "  ", lines)
    elif isinstance(item, list | tuple) and item:
        lines.append(head)
        _write(item, pad, lines)
    else:
        lines.append(f"{head} {_text(item, pad + '  ')}")


def _text(value: Any, pad: str) -> str:
    """A scalar, or something empty."""
    if isinstance(value, str):
        return _block(value, pad) if pad and "\n" in value and _fits_block(value) else _scalar(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{}"
    if isinstance(value, int | float):
        number = repr(value)
        return number if "." in number else number.replace("e", ".0e")  # YAML 1.1 needs a decimal point here
    return "[]"


def _fits_block(text: str) -> bool:
    lines = text.split("\n")
    return (
        bool(lines[0])
        and not lines[0].startswith((" ", "\t"))
        and not text.endswith("\n\n")
        and all(line.isprintable() and line == line.rstrip() for line in lines)
    )


def _block(text: str, pad: str) -> str:
    mark = "|" if text.endswith("\n") else "|-"
    return "\n".join([mark, *(pad + line if line else "" for line in text.removesuffix("\n").split("\n"))])


@lru_cache(65536)
def _scalar(text: str) -> str:
    plain = (
        text.isprintable()
        and not text.endswith((":", " "))
        and (
            _WORD.fullmatch(text) is not None
            or (_NUMBER_LIKE.fullmatch(text) is not None and _OTHER_MEANING.match(text) is None)
        )
        and resolve(text) is text
    )
    if plain:
        return text
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(letter: str) -> str:
    if letter in _ESCAPES:
        return _ESCAPES[letter]
    if letter.isprintable():
        return letter
    return f"\\U{ord(letter):08x}" if ord(letter) > 0xFFFF else f"\\u{ord(letter):04x}"
