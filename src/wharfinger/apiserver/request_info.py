"""The resource and verb of a request from its path and query parameters, like RequestInfo of kube-apiserver."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar
from urllib.parse import parse_qsl

import msgspec

from wharfinger.api.errors import BadRequest
from wharfinger.api.numbers import parse_int64
from wharfinger.api.selectors import (
    BadSelector,
    FieldRequirement,
    Requirements,
    parse_field_selector,
    parse_label_selector,
)

_VERBS = {
    "GET": "get",
    "HEAD": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
# The subresources of a namespace; any other segment after its name is a collection in the namespace.
_NAMESPACE_SUBRESOURCES = frozenset(("status", "finalize"))
_LONG_RUNNING = frozenset(("attach", "exec", "log", "portforward", "proxy"))  # besides watches


_R = TypeVar("_R")


class QueryParameters:
    """Query parameters. The first value of a repeated parameter counts."""

    __slots__ = ("_values",)

    def __init__(self, text: bytes) -> None:
        self._values: dict[str, str] = {}
        if text:
            try:
                pairs = parse_qsl(text.decode("ascii"), keep_blank_values=True, max_num_fields=200)
            except ValueError as error:
                raise BadRequest(f"invalid query: {error}") from None
            for key, value in pairs:
                self._values.setdefault(key, value)

    @property
    def empty(self) -> bool:
        return not self._values

    def text(self, name: str, default: str = "") -> str:
        return self._values.get(name, default)

    def has(self, name: str) -> bool:
        return name in self._values

    def flag(self, name: str) -> bool:
        """True unless missing, `0` or `false`: Kubernetes' conversion of query values to bool."""
        value = self._values.get(name)
        return value is not None and value.lower() not in ("0", "false")

    def number(self, name: str, default: int | None = None) -> int | None:
        value = self._values.get(name)
        if not value:
            return default
        number = parse_int64(value)
        if number is None:
            raise BadRequest(f'strconv.ParseInt: parsing "{value}": invalid syntax')
        return number

    def labels(self) -> Requirements:
        return self._selector("labelSelector", parse_label_selector)

    def fields(self) -> tuple[FieldRequirement, ...]:
        return self._selector("fieldSelector", parse_field_selector)

    def _selector(self, name: str, parse: Callable[[str], tuple[_R, ...]]) -> tuple[_R, ...]:
        text = self.text(name)
        try:
            return parse(text) if text else ()
        except BadSelector as error:
            raise BadRequest(str(error)) from None


class RequestInfo(msgspec.Struct, frozen=True):
    """A request for a resource. Whether group, version and resource exist is not checked yet."""

    verb: str
    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def long_running(self) -> bool:
        """Whether the request lasts as long as the client likes."""
        return self.verb == "watch" or self.subresource in _LONG_RUNNING


def request_info(parts: list[str], method: str, query: QueryParameters) -> RequestInfo | None:
    """`parts` are the segments of the path. None if it is not a request for a resource."""
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    verb = _VERBS.get(method, "")
    watching = False
    if rest[0] == "watch" and len(rest) > 1:
        # Deprecated form of a watch: /api/v1/watch/pods.
        watching, rest = True, rest[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and rest[2] not in _NAMESPACE_SUBRESOURCES:
            rest = rest[2:]
    plural = rest[0]
    name = rest[1] if len(rest) > 1 else ""
    # What follows `proxy` is the path on another server.
    subresource = "proxy" if rest[2:3] == ["proxy"] else "/".join(rest[2:])
    if not name:
        if verb == "get":
            verb = "watch" if watching or query.flag("watch") else "list"
        elif verb == "delete":
            verb = "deletecollection"
    elif watching and verb == "get":
        verb = "watch"
    return RequestInfo(verb, group, version, plural, namespace, name, subresource)
