"""Pod specs that were found to be in order before: the pods of a workload have equal ones.

Once they are bound, they differ in the node, and in the random name of the volume with their token. Neither makes a
difference to defaults and validity.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import msgspec

from wharfinger.api.token_volumes import TOKEN_VOLUME

F = TypeVar("F")  # a fault

_encode = msgspec.json.Encoder().encode

_LABEL = rb"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
# As long as a label may be: then it is also valid as the value of a label of that name.
_NODE = re.compile(rb'"nodeName":"(?=[^"]{1,63}")(%b(?:\.%b)*)"' % (_LABEL, _LABEL))
_TOKEN_NAME = TOKEN_VOLUME.encode()
_TOKEN = re.compile(rb'"%b([a-z0-9]{5})"' % _TOKEN_NAME)
_LONGEST = 32 * 1024  # bytes of a spec that is remembered


class SpecPattern(NamedTuple):
    """A spec as JSON, with the same node and token volume for all; empty where it has none."""

    data: bytes
    node: bytes = b""
    token: bytes = b""

    def filled(self, data: bytes) -> bytes:
        """Another spec in this form with the node and the token volume of this one."""
        if self.token:
            data = data.replace(_token(b"00000"), _token(self.token))
        return data.replace(_node(b"n"), _node(self.node), 1) if self.node else data


def spec_pattern(data: bytes) -> SpecPattern:
    if b'"nodeName":"' in data:
        return _pattern(data)
    if _TOKEN_NAME not in data:
        return SpecPattern(data)
    return _pattern(data) if len(data) > _LONGEST else _unbound_pattern(data)


def _pattern(data: bytes) -> SpecPattern:
    node, token = _NODE.search(data), set(_TOKEN.findall(data))
    if node is not None:
        data = data.replace(node[0], _node(b"n"), 1)
    if len(token) != 1:
        return SpecPattern(data, b"" if node is None else node[1])
    (suffix,) = token
    data = data.replace(_token(suffix), _token(b"00000"))
    return SpecPattern(data, b"" if node is None else node[1], suffix)


_unbound_pattern = lru_cache(512)(_pattern)


def _node(name: bytes) -> bytes:
    return b'"nodeName":"%b"' % name


def _token(suffix: bytes) -> bytes:
    return b'"%b%b"' % (_TOKEN_NAME, suffix)


class KnownSpecs:
    """A bounded set of specs, held as JSON."""

    _MOST = 1024

    def __init__(self) -> None:
        self._known: set[bytes] = set()

    def __contains__(self, key: bytes) -> bool:
        return key in self._known

    @staticmethod
    def key(spec: Any) -> bytes:
        """What a spec is found by; empty if it cannot be encoded as JSON."""
        try:
            return spec_pattern(_encode(spec)).data
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
            return b""

    def add(self, key: bytes) -> None:
        if key and len(key) < _LONGEST:
            if len(self._known) >= self._MOST:
                self._known.clear()
            self._known.add(key)


class KnownParts:
    """Parts of specs, such as tolerations, that were found to be in order before: specs that differ have most of them in
    common."""

    _MOST, _LONGEST = 1024, 1024

    def __init__(self) -> None:
        self._known: set[bytes] = set()

    def faults(self, part: Any, find: Callable[[Any, str], Iterable[F]], path: str) -> Sequence[F]:
        """What `find` finds in a part at a path."""
        try:
            key = _encode(part)
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
            return list(find(part, path))
        if key in self._known:
            return ()
        found = list(find(part, path))
        if not found and len(key) < self._LONGEST:
            if len(self._known) >= self._MOST:
                self._known.clear()
            self._known.add(key)
        return found
