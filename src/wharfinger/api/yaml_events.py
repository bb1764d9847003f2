"""The full reader of YAML: reads the events of the C parser without recursion; nesting depth and the expansion of aliases
are limited. It knows lines."""

from __future__ import annotations

import math
from typing import Any

import yaml

from wharfinger.api.yaml_document import MAX_ALIASED, MAX_DEPTH, BadYaml, Reading
from wharfinger.api.yaml_scalars import resolve

_BaseLoader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_STR = "tag:yaml.org,2002:str"
_QUOTES = {"“": "”", "‘": "’", "”": "”"}


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


_ENDS = (yaml.StreamEndEvent, yaml.DocumentEndEvent)


class EventReader:
    def __init__(
        self,
        text: str | bytes,
        first_line: int,
        with_lines: bool,
        *,
        max_depth: int = MAX_DEPTH,
        max_nodes: int | None = None,
        request: bool = False,
    ) -> None:
        self.offset = first_line
        self.max_depth = max_depth
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
        if len(self.stack) >= self.max_depth:
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
