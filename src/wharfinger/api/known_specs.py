"""Pod specs that were found to be in order before: the pods of a workload have equal ones.

Once they are bound, they differ in the node, and in the random name of the volume with their token. Neither makes a
difference to defaults and validity.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from wharfinger.api.token_volumes import TOKEN_VOLUME

_encode = msgspec.json.Encoder().encode

_LABEL = rb"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
# As long as a label may be: then it is also valid as the value of a label of that name.
_NODE = re.compile(rb'"nodeName":"(?=[^"]{1,63}")(%b(?:\.%b)*)"' % (_LABEL, _LABEL))
_TOKEN = re.compile(rb'"%b([a-z0-9]{5})"' % TOKEN_VOLUME.encode())
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
    if b'"nodeName":"' in data or len(data) > _LONGEST:
        return _pattern(data)
    return _unbound_pattern(data)


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
    return b'"%b%b"' % (TOKEN_VOLUME.encode(), suffix)


class KnownSpecs:
    """A bounded set of specs, held as JSON."""

    _MOST = 1024

    def __init__(self) -> None:
        self._known: set[bytes] = set()

    def __contains__(self, spec: Any) -> bool:
        try:
            return spec_pattern(_encode(spec)).data in self._known
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
            return False  # cannot be encoded as JSON

    def add(self, spec: Any) -> None:
        try:
            data = spec_pattern(_encode(spec)).data
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
            return
        if len(data) < _LONGEST:
            if len(self._known) >= self._MOST:
                self._known.clear()
            self._known.add(data)
