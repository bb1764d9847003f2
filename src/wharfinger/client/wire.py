"""What API servers answer, read into objects: lists, watch events, errors. Bytes go straight into views where they can."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable
from contextlib import nullcontext
from typing import Any, Generic, TypeVar

import msgspec

from wharfinger.api.errors import ApiError, InternalError, from_status
from wharfinger.api.views import decode
from wharfinger.client.interface import EventType, Page, WatchEvent
from wharfinger.client.memory import gc_paused
from wharfinger.client.transport import Response

T = TypeVar("T")

_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
BIG = 256 * 1024  # bytes of a list from which on the collector is kept out


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
        raise InternalError(f"the server's answer cannot be read: {error}") from error


def read_page(body: bytes, view: type[T]) -> Page[T]:
    with gc_paused() if len(body) > BIG else nullcontext():
        try:
            try:
                found = _list_decoder(view).decode(body)
                items: Iterable[T] = found.items or ()
            except msgspec.ValidationError:
                raw = _raw_list_decoder.decode(body)  # some field is null: look at each item more patiently
                items = [decode(item, view) for item in raw.items or ()]
                return Page(tuple(items), raw.metadata.resource_version or "", raw.metadata.continue_token or "")
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise InternalError(f"the server's list cannot be read: {error}") from error
        return Page(tuple(items), found.metadata.resource_version or "", found.metadata.continue_token or "")


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
        raise InternalError(f"the server's watch cannot be read: {error}") from error


def _version(item: Any, raw: msgspec.Raw) -> str:
    """The resourceVersion of an event's object, whether or not its view shows it."""
    metadata = getattr(item, "metadata", None)
    version = getattr(metadata, "resource_version", "")
    return version or _bookmark_decoder.decode(raw).metadata.resource_version


async def lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Complete lines, however long; half a line at the end of a broken connection is nothing."""
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


def read_error(answer: Response) -> ApiError:
    try:
        document = msgspec.json.decode(answer.body)
    except msgspec.DecodeError:
        document = None
    if not isinstance(document, dict) or document.get("kind") != "Status":
        text = answer.body[:200].decode("utf-8", "replace").strip()
        document = {"message": f"the server answered {answer.status}{': ' + text if text else ''}"}
    error = from_status(document, answer.status)
    header = answer.headers.get("Retry-After", "")
    if header.isdecimal():
        error.retry_after = float(header)
    return error


def read_warnings(answer: Response) -> list[str]:
    """What the server warned of; each warning has the form `299 - "text"`."""
    every = getattr(answer.headers, "getall", None)  # one transport keeps repeated headers apart, the other joins them
    header = ", ".join(every("Warning", ())) if every is not None else answer.headers.get("Warning", "")
    return [re.sub(r"\\(.)", r"\1", found) for found in _WARNING.findall(header)]
