"""YAML as Kubernetes reads it: YAML 1.1 words for booleans, timestamps stay strings, duplicate keys are faults.

Reads the events of the C parser without recursion; nesting depth and the expansion of aliases are limited. Scalars
resolve as in sigs.k8s.io/yaml. Files and bodies of requests are read by the same rules; `read_request` adds a limit on the
number of values, since a request comes from somebody else.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from wharfinger.api.block_yaml import NotBlock, read_block

MAX_DEPTH = 200
MAX_ALIASED = 1_000_000  # nodes that aliases may add to one document
MAX_REQUEST_NODES = 40_000  # in a request, aliases expanded: reading them takes a tenth of a second at most

_BaseLoader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
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
_STR = "tag:yaml.org,2002:str"
_QUOTES = {"“": "”", "‘": "’", "”": "”"}


class BadYaml(ValueError):
    """The text is not valid YAML, or exceeds our limits; `line` counts from 1."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


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


@dataclass(slots=True)
class Reading:
    """One document. `faults` are (line, path, message); `repaired` has the corrections."""

    value: Any = None
    empty: bool = True
    line: int = 1
    faults: list[tuple[int, str, str]] = field(default_factory=list)
    repaired: list[tuple[int, str]] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)  # by path, if requested


class _Frame:
    """A mapping or sequence under construction."""

    __slots__ = ("anchor", "container", "key", "merges", "path")

    def __init__(self, container: Any, path: str, anchor: str | None) -> None:
        self.container = container
        self.path = path
        self.anchor = anchor
        self.key: Any = _NO_KEY
        self.merges: list[Any] = []


_NO_KEY: Any = object()
_MERGE: Any = object()


def read(text: str, *, first_line: int = 1, with_lines: bool = False) -> Reading:
    """The first document of a text. Raises BadYaml if parsing cannot continue."""
    if not with_lines:
        try:
            return Reading(read_block(text, resolve, _unremarkable, MAX_DEPTH), empty=False, line=first_line)
        except NotBlock:
            pass
    return _YamlReader(text, first_line, with_lines).read()


def read_request(data: bytes) -> Reading:
    """The first document of a request's body. Raises BadYaml.

    As in kube-apiserver, the last one of duplicate keys counts. Nothing is repaired.
    """
    return _YamlReader(data, 1, False, max_nodes=MAX_REQUEST_NODES, request=True).read()


def _unremarkable(text: str) -> Any:
    try:
        reading = _YamlReader(text, 1, False).read()
    except BadYaml:
        raise NotBlock from None
    if reading.faults or reading.repaired:
        raise NotBlock
    return reading.value


_ENDS = (yaml.StreamEndEvent, yaml.DocumentEndEvent)


class _YamlReader:
    def __init__(
        self,
        text: str | bytes,
        first_line: int,
        with_lines: bool,
        *,
        max_nodes: int | None = None,
        request: bool = False,
    ) -> None:
        self.offset = first_line
        self.left = max_nodes
        self.request = request
        self.with_lines = with_lines
        self.result = Reading(line=first_line)
        self.stack: list[_Frame] = []
        self.anchors: dict[str, Any] = {}
        self.aliased = 0
        try:
            self.loader = _BaseLoader(text)
        except yaml.YAMLError as error:
            raise self._bad(error) from error

    def read(self) -> Reading:
        try:
            while True:
                event = self.loader.get_event()
                if event is None or type(event) in _ENDS:
                    break
                self._take(event)
        except yaml.YAMLError as error:
            raise self._bad(error) from error
        except RecursionError:
            # Nested aliases: each may be shallow while their expansion is deep.
            raise BadYaml(f"nested deeper than {MAX_DEPTH} levels", self.offset) from None
        finally:
            self.loader.dispose()
        return self.result

    def _bad(self, error: yaml.YAMLError) -> BadYaml:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
        return BadYaml(str(problem), self.offset + (mark.line if mark is not None else 0))

    def _line(self, event: Any) -> int:
        return int(self.offset + event.start_mark.line)

    def _fault(self, event: Any, path: str, message: str) -> None:
        self.result.faults.append((self._line(event), path, message))

    def _take(self, event: Any) -> None:
        kind = type(event)
        if self.left is not None:
            self._count(event)
        if kind is yaml.ScalarEvent:
            value = self._scalar(event)
            if event.anchor is not None:
                self.anchors[event.anchor] = value
            self._add(value, event)
        elif kind is yaml.MappingStartEvent:
            self._open({}, event)
        elif kind is yaml.SequenceStartEvent:
            self._open([], event)
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            self._close(event)
        elif kind is yaml.AliasEvent:
            self._add(self._alias(event), event)

    def _count(self, event: Any) -> None:
        """Counts an event or a copied node of a request."""
        assert self.left is not None
        self.left -= 1
        if self.left < 0:
            raise BadYaml("document contains too many values, or excessive aliasing", self._line(event))

    def _open(self, container: Any, event: Any) -> None:
        if len(self.stack) >= MAX_DEPTH:
            raise BadYaml(f"nested deeper than {MAX_DEPTH} levels", self._line(event))
        path = self._path()
        if self.with_lines:
            self.result.lines.setdefault(path, self._line(event))
        if event.anchor is not None:
            self.anchors[event.anchor] = _NO_KEY  # an alias to an enclosing node never ends
        self.stack.append(_Frame(container, path, event.anchor))

    def _close(self, event: Any) -> None:
        frame = self.stack.pop()
        for merged in frame.merges:
            for one in merged if isinstance(merged, list) else (merged,):
                if isinstance(one, dict):
                    for key, value in one.items():
                        frame.container.setdefault(key, value)
                else:
                    self._fault(event, frame.path, "map merge requires map or sequence of maps as the value")
        if frame.anchor is not None:
            self.anchors[frame.anchor] = frame.container
        self._add(frame.container, event)

    def _alias(self, event: Any) -> Any:
        value = self.anchors.get(event.anchor, _NO_KEY)
        if value is _NO_KEY:
            raise BadYaml(f"unknown or unfinished anchor '{event.anchor}' referenced", self._line(event))
        return self._copied(value, event)

    def _copied(self, value: Any, event: Any) -> Any:
        """A copy, because documents are modified in place; counted, because nested aliases multiply."""
        self.aliased += 1
        if self.aliased > MAX_ALIASED:
            raise BadYaml("document contains excessive aliasing", self._line(event))
        if self.left is not None:
            self._count(event)
        if isinstance(value, dict):
            return {key: self._copied(item, event) for key, item in value.items()}
        if isinstance(value, list):
            return [self._copied(item, event) for item in value]
        return value

    def _path(self) -> str:
        if not self.stack:
            return ""
        frame = self.stack[-1]
        if isinstance(frame.container, list):
            return f"{frame.path}[{len(frame.container)}]"
        key = "" if frame.key in (_NO_KEY, _MERGE) else frame.key
        return f"{frame.path}.{key}" if frame.path else str(key)

    def _add(self, value: Any, event: Any) -> None:
        if not self.stack:
            self.result.value, self.result.empty = value, False
            return
        frame = self.stack[-1]
        if isinstance(frame.container, list):
            if self.with_lines:
                self.result.lines.setdefault(self._path(), self._line(event))
            frame.container.append(value)
        elif frame.key is _NO_KEY:
            self._take_key(frame, value, event)
        elif frame.key is _MERGE:
            frame.merges.append(value)
            frame.key = _NO_KEY
        else:
            frame.container[frame.key] = value
            frame.key = _NO_KEY

    def _take_key(self, frame: _Frame, value: Any, event: Any) -> None:
        if value == "<<" and not getattr(event, "style", "x"):
            frame.key = _MERGE
            return
        if type(value) is str:
            key = value
        elif isinstance(value, bool):
            key = "true" if value else "false"
        elif value is None:
            key = "null"
        elif isinstance(value, (int, float)):
            key = str(value)
        else:
            self._fault(event, frame.path, "a mapping or list cannot be a key")
            key = "{…}" if isinstance(value, dict) else "[…]"  # the text of nested keys would grow exponentially
        frame.key = key
        if key in frame.container:
            if self.request:
                return
            self._fault(event, self._path(), f'key "{key}" already set in map')
        elif self.with_lines:
            self.result.lines[self._path()] = self._line(event)

    def _scalar(self, event: Any) -> Any:
        text: str = event.value
        tag = event.tag
        if tag is not None and tag != "!":
            return self._tagged(event, tag, text)
        if event.style:  # plain is empty or None, by parser
            return text
        if text and not self.request and text[0] in _QUOTES and len(text) > 1 and text[-1] in "”’":
            self.result.repaired.append((self._line(event), "curly quotes read as plain ones"))
            return text[1:-1]
        value = resolve(text)
        if isinstance(value, float) and not math.isfinite(value):
            self._fault(event, self._path(), f"{text} has no form in JSON")
            return None
        return value

    def _tagged(self, event: Any, tag: str, text: str) -> Any:
        if tag in (_STR, "tag:yaml.org,2002:binary"):
            return text
        kinds = {"int": int, "float": (int, float), "bool": bool, "null": type(None)}
        wanted = kinds.get(tag.removeprefix("tag:yaml.org,2002:"))
        value = resolve(text)
        if wanted is None or not isinstance(value, wanted):  # type: ignore[arg-type]  # a tuple of types is one too
            self._fault(event, self._path(), f"cannot read {text!r} as {tag}")
        return value
