"""The wire format of the Kubernetes API: requests encoded into HTTP; objects, lists, watch events and errors decoded.

Nothing is sent here. Response bytes are decoded straight into views where possible.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import nullcontext
from functools import lru_cache
from typing import Any, Generic, TypeVar, cast
from urllib.parse import quote, urlencode

import msgspec

from wharfinger.api.errors import ApiError, BadRequest, InternalError, from_status
from wharfinger.api.registry import Document, Resource
from wharfinger.api.requests import NO_DELETE_OPTIONS, ApiRequest, Verb
from wharfinger.api.views import Pod, decode
from wharfinger.api.views.shared_pods import decode_pod
from wharfinger.client.interface import EventType, ListPage, WatchEvent
from wharfinger.client.memory import gc_paused
from wharfinger.client.transport import Response

T = TypeVar("T")

JSON = "application/json"

BIG = 256 * 1024  # bytes of a list from which on garbage collection is paused during decoding

_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
_is_plain = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9._-]*)?").fullmatch  # a name that needs no quoting: most do not
_METHODS: dict[Verb, str] = {
    "get": "GET",
    "list": "GET",
    "watch": "GET",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
    "deletecollection": "DELETE",
}


class HttpRequest(msgspec.Struct, frozen=True, gc=False):
    method: str
    path: str  # with the query
    body: bytes | None = None
    content_type: str = JSON


def encode_request(request: ApiRequest[Any], field_manager: str) -> HttpRequest:
    """`field_manager` is used for writes that set none. A watch must have a timeout."""
    verb, method = request.verb, _METHODS[request.verb]
    if verb == "get":
        return HttpRequest(method, _path(request))
    if verb == "delete":
        return HttpRequest(method, _path(request), msgspec.json.encode(_delete_options(request)))
    if verb in ("create", "update", "patch"):
        query = _write_query(request.dry_run, request.field_manager or field_manager, request.force)
        content_type = request.patch_type.value if verb == "patch" else JSON
        return HttpRequest(method, _path(request) + query, msgspec.json.encode(request.body), content_type)
    given = request.delete_options != NO_DELETE_OPTIONS
    body = msgspec.json.encode(_delete_options(request)) if given else None
    return HttpRequest(method, _path(request) + _query(_list_options(request)), body)


def _path(request: ApiRequest[Any]) -> str:
    namespace, name = request.namespace, request.name
    if request.verb in ("create", "update"):
        metadata = request.body.get("metadata") or {}
        namespace = namespace or str(metadata.get("namespace") or "")
        if request.verb == "update":
            name = name or str(metadata.get("name") or "")
            if not name:
                raise BadRequest("metadata.name: an update needs the name of its object")
    return object_path(request.resource, namespace, name, request.subresource)


def object_path(resource: Resource, namespace: str = "", name: str = "", subresource: str = "") -> str:
    if not _is_plain(namespace) or not _is_plain(name):
        for part in (namespace, name):
            if part in (".", ".."):
                raise BadRequest(f'"{part}" is not a name')
        namespace, name = quote(namespace, safe=""), quote(name, safe=":")
    return resource.path(namespace, name, subresource)


def _query(parameters: dict[str, str]) -> str:
    given = {name: value for name, value in parameters.items() if value}
    return "?" + urlencode(given, quote_via=quote) if given else ""


@lru_cache(maxsize=64)
def _write_query(dry_run: bool, manager: str, force: bool) -> str:
    return _query({"fieldManager": manager, "force": "true" if force else "", "dryRun": "All" if dry_run else ""})


def _list_options(request: ApiRequest[Any]) -> dict[str, str]:
    watch = request.verb == "watch"
    return {
        "watch": "true" if watch else "",
        "allowWatchBookmarks": "true" if watch else "",
        "timeoutSeconds": str(max(1, round(request.timeout))) if request.timeout is not None else "",
        "labelSelector": request.label_selector,
        "fieldSelector": request.field_selector,
        "limit": str(request.limit) if request.limit else "",
        "continue": request.continue_token,
        "resourceVersion": request.resource_version,
        "resourceVersionMatch": request.version_match,
    }


def _delete_options(request: ApiRequest[Any]) -> Document:
    given = request.delete_options
    options: Document = {"kind": "DeleteOptions", "apiVersion": "v1"}
    if given.grace_period is not None:
        options["gracePeriodSeconds"] = given.grace_period
    if given.propagation:
        options["propagationPolicy"] = given.propagation
    conditions = (("uid", given.uid), ("resourceVersion", given.resource_version))
    if preconditions := {key: value for key, value in conditions if value}:
        options["preconditions"] = preconditions
    if request.dry_run:
        options["dryRun"] = ["All"]
    return options


def decode_response(request: ApiRequest[Any], body: bytes) -> Any:
    """Decodes the body of a successful response: a page for a list, otherwise one object."""
    view: type[Any] = request.view if request.view is not None else dict
    if request.verb != "list":
        return read_object(body, view)
    page = read_page(body, view)
    if view is dict:
        resource = request.resource
        for item in page.items:
            # API servers omit from the items what the list itself states.
            item.setdefault("apiVersion", resource.api_version)
            item.setdefault("kind", resource.kind)
    return page


class _ListMeta(msgspec.Struct):
    resource_version: str | None = msgspec.field(default=None, name="resourceVersion")
    continue_token: str | None = msgspec.field(default=None, name="continue")


class _List(msgspec.Struct, Generic[T]):
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[T] | None = None


class _RawEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _BookmarkMeta(msgspec.Struct):
    resource_version: str = msgspec.field(default="", name="resourceVersion")
    annotations: dict[str, str] | None = None


class _Bookmark(msgspec.Struct):
    metadata: _BookmarkMeta = msgspec.field(default_factory=_BookmarkMeta)


_event_decoder = msgspec.json.Decoder(_RawEvent)
_bookmark_decoder = msgspec.json.Decoder(_Bookmark)
_raw_list_decoder = msgspec.json.Decoder(_List[msgspec.Raw])


_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
_list_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def _decoder(view: type[T]) -> msgspec.json.Decoder[T]:
    found = _decoders.get(view)
    if found is None:
        found = _decoders[view] = msgspec.json.Decoder(view)
    return found


def _list_decoder(view: type[T]) -> msgspec.json.Decoder[_List[T]]:
    found = _list_decoders.get(view)
    if found is None:
        found = _list_decoders[view] = msgspec.json.Decoder(_List[view])  # type: ignore[valid-type]  # a value here
    return found


def read_object(body: bytes, view: type[T]) -> T:
    try:
        return decode(body, view)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise InternalError(f"cannot decode the server's response: {error}") from error


def read_page(body: bytes, view: type[T]) -> ListPage[T]:
    with gc_paused() if len(body) > BIG else nullcontext():
        try:
            if view is Pod:  # of which there are many: their views share what they have in common
                return _read_raw(body, cast("Callable[[msgspec.Raw], T]", decode_pod))
            try:
                found = _list_decoder(view).decode(body)
            except msgspec.ValidationError:  # a field may be null: decode each item leniently
                return _read_raw(body, lambda item: decode(item, view))
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise InternalError(f"cannot decode the server's list: {error}") from error
        return _page(found, found.items or ())


def _read_raw(body: bytes, read: Callable[[msgspec.Raw], T]) -> ListPage[T]:
    found = _raw_list_decoder.decode(body)
    return _page(found, map(read, found.items or ()))


def _page(found: _List[Any], items: Iterable[T]) -> ListPage[T]:
    return ListPage(tuple(items), found.metadata.resource_version or "", found.metadata.continue_token or "")


def read_event(line: bytes, view: type[T]) -> WatchEvent[T]:
    try:
        event = _event_decoder.decode(line)
        if event.type == "BOOKMARK":
            metadata = _bookmark_decoder.decode(event.object).metadata
            ended = (metadata.annotations or {}).get("k8s.io/initial-events-end") == "true"
            return WatchEvent(EventType.BOOKMARK, None, metadata.resource_version, ended)
        if event.type == "ERROR":
            raise from_status(msgspec.json.decode(event.object))
        try:
            item = _decoder(view).decode(event.object)
        except msgspec.ValidationError:
            item = decode(event.object, view)
        return WatchEvent(EventType(event.type), item, _version(item, event.object))
    except (msgspec.DecodeError, msgspec.ValidationError, ValueError) as error:
        raise InternalError(f"cannot decode the server's watch event: {error}") from error


def _version(item: Any, raw: msgspec.Raw) -> str:
    """The resourceVersion of an event's object, even if the view omits it."""
    metadata = getattr(item, "metadata", None)
    version = getattr(metadata, "resource_version", "")
    return version or _bookmark_decoder.decode(raw).metadata.resource_version


async def lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yields complete lines of any length; an incomplete line at the end of a broken connection is dropped."""
    parts: list[bytes] = []
    async for chunk in chunks:
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            parts.append(chunk[start:end])
            line = b"".join(parts) if len(parts) > 1 else parts[0]
            parts.clear()
            start = end + 1
            if line.strip():
                yield line
        if start < len(chunk):
            parts.append(chunk[start:] if start else chunk)


def read_error(response: Response) -> ApiError:
    try:
        document = msgspec.json.decode(response.body)
    except msgspec.DecodeError:
        document = None
    if not isinstance(document, dict) or document.get("kind") != "Status":
        text = response.body[:200].decode("utf-8", "replace").strip()
        document = {"message": f"the server answered {response.status}{': ' + text if text else ''}"}
    error = from_status(document, response.status)
    header = response.headers.get("Retry-After", "")
    if header.isdecimal():
        error.retry_after = float(header)
    return error


def read_warnings(response: Response) -> list[str]:
    """The server's warnings; each has the form `299 - "text"`."""
    every = getattr(response.headers, "getall", None)  # aiohttp keeps repeated headers apart, our pool joins them
    header = ", ".join(every("Warning", ())) if every is not None else response.headers.get("Warning", "")
    return [re.sub(r"\\(.)", r"\1", found) for found in _WARNING.findall(header)]
