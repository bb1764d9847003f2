"""One HTTP request and its response, for the handlers of the API server. Only this module deals with ASGI."""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

import msgspec
import yaml

from wharfinger.admission.request import User
from wharfinger.api.errors import ApiError, BadRequest, TooLarge
from wharfinger.api.go_text import json_type
from wharfinger.api.yaml_reader import BadYaml, read_request, resolve
from wharfinger.apiserver.audit.recording import AuditRecord
from wharfinger.apiserver.go_json import syntax_error
from wharfinger.apiserver.negotiation import JSON, YAML, content_type, require_content
from wharfinger.apiserver.protobuf import MEDIA as PROTOBUF
from wharfinger.apiserver.protobuf import decode_protobuf
from wharfinger.apiserver.request_info import QueryParameters

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

MAX_BODY = 3 * 1024 * 1024
_GZIP_FROM = 128 * 1024  # bytes; compressing smaller responses costs more than it saves
_READ_SECONDS = 60.0  # limit for receiving a body

_WARNINGS, _WARNING = 4096, 256  # limits in characters: of all warnings, and of each one if that is exceeded
_MAX_WARNINGS = 50  # Python's HTTP client accepts at most 100 headers
_EXCERPT = 30  # bytes of a malformed body in messages

NOBODY = User("system:anonymous", ("system:unauthenticated",))


class RequestConnection(Protocol):
    """What is known of the connection of a request."""

    owner: str

    @property
    def body_arrived(self) -> bool:
        """Whether the whole body has arrived, so that receiving it takes no time."""
        ...

    @property
    def peer(self) -> str:
        """The address of the client."""
        ...

    def respond(self, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> bool:
        """Writes a whole response at once and adds its `content-length`. False if that is not possible now."""
        ...

    def write_now(self, data: bytes) -> bool:
        """Writes a part of a response that has started at once. False if that is not possible now."""
        ...

    def claim(self, owner: str, *, limited: bool) -> None:
        """Called when the user of a request is another one than before."""
        ...

    def set_streaming(self, streaming: bool) -> None:
        """Called when a response that takes long begins or ends."""
        ...


class ClientGone(Exception):
    """The client closed the connection before its request was complete."""


class ApiExchange:
    """A request and its response."""

    __slots__ = (
        "_body",
        "_receive",
        "_send",
        "audit",
        "connection",
        "headers",
        "impersonates",
        "method",
        "parts",
        "path",
        "query",
        "raw_headers",
        "raw_query",
        "status",
        "take_over",
        "user",
        "warnings",
    )

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.parts: list[str] = [part for part in self.path.split("/") if part]
        self.raw_query: bytes = scope["query_string"]
        self.query = QueryParameters(self.raw_query)
        headers: dict[bytes, bytes] = {}
        self.impersonates = False
        for name, value in scope["headers"]:
            headers[name] = headers[name] + b"," + value if name in headers and name in _LISTS else value
            if name.startswith(b"impersonate-"):
                self.impersonates = True
        self.headers = headers
        self.raw_headers: list[tuple[bytes, bytes]] = scope["headers"]  # with all values of repeated headers
        self.user = NOBODY
        self.audit: AuditRecord | None = None  # if the request is recorded
        self.connection: RequestConnection | None = scope.get("connection")
        self._body: bytes | None = None  # once it has been received
        self.warnings: list[str] = []
        self.status = 0  # of the response, once it is sent
        # Gives the connection to another protocol; None if the client does not ask for one.
        self.take_over: Callable[[asyncio.Protocol], asyncio.Transport | None] | None = scope.get("take_over")

    def header(self, name: bytes, default: str = "") -> str:
        value = self.headers.get(name)
        return default if value is None else value.decode("latin-1")

    async def body(self, meter: Callable[[int], None] | None = None) -> bytes:
        """The whole body. Raises ApiError if it is too large or too slow.

        `meter` is called with the size of every part of a body that does not arrive at once; it may raise.
        """
        if self._body is not None:
            return self._body
        declared = self.headers.get(b"content-length", b"")
        if declared.isdigit() and (len(declared) > 20 or int(declared) > MAX_BODY):
            raise TooLarge(f"Request entity too large: limit is {MAX_BODY}")
        if self.connection is None or self.connection.body_arrived:
            message = await self._receive()
            data: bytes = message.get("body", b"")
            if message["type"] == "http.disconnect":
                raise ClientGone
            if not message.get("more_body"):
                if len(data) > MAX_BODY:
                    raise TooLarge(f"Request entity too large: limit is {MAX_BODY}")
                return self._unpacked(data)
            chunks, size = [data], len(data)
        else:
            chunks, size, message = [], 0, {"more_body": True}
        try:
            async with asyncio.timeout(_READ_SECONDS):
                while message.get("more_body"):
                    message = await self._receive()
                    if message["type"] == "http.disconnect":
                        raise ClientGone
                    chunks.append(message.get("body", b""))
                    size += len(chunks[-1])
                    if meter is not None:
                        meter(len(chunks[-1]))
                    if size > MAX_BODY:
                        raise TooLarge(f"Request entity too large: limit is {MAX_BODY}")
        except TimeoutError:
            raise ApiError(
                "the request body did not arrive in time", code=408, reason="Timeout", retry_after=1
            ) from None
        return self._unpacked(b"".join(chunks))

    @property
    def has_body(self) -> bool:
        return self.headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in self.headers

    async def body_chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives, of any size, for another server."""
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            if message.get("body"):
                yield message["body"]
            if not message.get("more_body"):
                return

    def _unpacked(self, data: bytes) -> bytes:
        if self.headers.get(b"content-encoding", b"identity") != b"identity":
            raise BadRequest("content encodings of request bodies are not supported")
        self._body = data
        return data

    @property
    def annotations(self) -> dict[str, str] | None:
        """Where reviewers put their audit annotations; None if the request is not recorded."""
        return None if self.audit is None else self.audit.annotations

    @property
    def source(self) -> str:
        """The address of the client."""
        return "" if self.connection is None else self.connection.peer

    async def gone(self) -> None:
        """Returns when the client has closed the connection."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def answer(self, status: int, body: bytes, media: str = JSON, headers: dict[str, str] | None = None) -> None:
        out = [(b"content-type", media.encode())]
        if headers is None or "cache-control" not in headers:
            out.append((b"cache-control", b"no-cache, private"))
        if self.audit is not None:
            out.append((b"audit-id", self.audit.id.encode()))
            if not self.audit.status:
                self.audit.answered(status, body, json=False)
        for warning in bounded(self.warnings) if self.warnings else ():
            out.append((b"warning", warning_header(warning)))
        if headers:
            out += [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
        if len(body) >= _GZIP_FROM and b"gzip" in self.headers.get(b"accept-encoding", b""):
            body = await asyncio.to_thread(gzip.compress, body, 1)
            out += [(b"content-encoding", b"gzip"), (b"vary", b"Accept-Encoding")]
        self.status = status
        if self.connection is not None and self.connection.respond(status, out, body):
            return
        out.append((b"content-length", b"%d" % len(body)))
        await self._send({"type": "http.response.start", "status": status, "headers": out})
        await self._send({"type": "http.response.body", "body": b"" if self.method == "HEAD" else body})

    async def json(
        self, document: Any, status: int = 200, media: str = JSON, headers: dict[str, str] | None = None
    ) -> None:
        """Responds with a document, or with its JSON."""
        data = document if isinstance(document, bytes) else msgspec.json.encode(document)
        if self.audit is not None:
            self.audit.answered(status, data, json=True)
        if media == YAML:
            data = yaml.dump(msgspec.json.decode(data), Dumper=yaml.CSafeDumper, sort_keys=False).encode()
        elif self._pretty():
            data = msgspec.json.format(data, indent=2) + b"\n"
        await self.answer(status, data, media, headers)

    def _pretty(self) -> bool:
        if self.query.has("pretty"):
            return self.query.flag("pretty")
        return self.headers.get(b"user-agent", b"").startswith((b"curl", b"Wget", b"Mozilla/5.0"))

    async def error(self, error: ApiError) -> None:
        headers = {}
        if error.retry_after is not None:
            headers["retry-after"] = str(max(1, round(error.retry_after)))
        await self.json(error.status(), error.code, headers=headers)

    async def start_stream(self, media: str) -> None:
        out = [(b"content-type", media.encode()), (b"cache-control", b"no-cache, private")]
        if self.audit is not None:
            out.append((b"audit-id", self.audit.id.encode()))
            self.audit.stream()
        for warning in bounded(self.warnings) if self.warnings else ():
            out.append((b"warning", warning_header(warning)))
        self.status = 200
        await self._send({"type": "http.response.start", "status": 200, "headers": out})

    async def start_raw(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """Starts a response with these headers and no others."""
        self.status = status
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def stream(self, data: bytes, *, more: bool = True) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": more})


_LISTS = frozenset((b"accept", b"impersonate-group", b"accept-encoding"))


def bounded(warnings: list[str]) -> list[str]:
    """The unique warnings, shortened and limited in number like kube-apiserver's if they are too long in total."""
    unique = list(dict.fromkeys(warnings))
    if len(unique) <= _MAX_WARNINGS and sum(map(len, unique)) <= _WARNINGS:
        return unique
    kept: list[str] = []
    total = 0
    for warning in unique:
        total += len(warning[:_WARNING])
        if total > _WARNINGS or len(kept) == _MAX_WARNINGS:
            break
        kept.append(warning[:_WARNING])
    return kept


def warning_header(text: str) -> bytes:
    """`299 - "text"` as Kubernetes sends it: escaped, without control characters, at most 4 KiB."""
    clean = "".join(character if character.isprintable() else " " for character in text)[:4000]
    escaped = clean.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{escaped}"'.encode()


@dataclass(slots=True)
class Body:
    """A decoded body and its JSON."""

    value: Any
    data: bytes
    media: str = field(default=JSON)


def decode(data: bytes, media: str, kind: str = "object") -> Any:
    """Decodes JSON, YAML or protobuf; `kind` is the expected kind in error messages."""
    if media == PROTOBUF:
        return decode_protobuf(data)
    unrecognized = f"the object provided is unrecognized (must be of type {kind}): "
    if media == YAML or media.endswith("+yaml"):
        return decode_yaml(data, unrecognized, f" ({_summary(data)})")
    try:
        return decode_json(data)
    except RecursionError:
        raise BadRequest("the body is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        raise _unreadable(unrecognized, syntax_error(data) or str(error), data) from None


def decode_json(data: bytes) -> Any:
    """Decodes JSON. A body of nothing but brackets would take a hundred times its size in memory, and one of nothing but
    numbers with large exponents seconds; these are refused."""
    if len(data) > _HARMLESS:
        _check_contents(data)
    return msgspec.json.decode(data)


def _check_contents(data: bytes) -> None:
    """Looks at text in quotes only if the body would be refused with it."""
    for contents in (data, None):
        seen = _JSON_TEXT.sub(b"", data) if contents is None else contents
        brackets = seen.count(b"[") + seen.count(b"{") > _MAX_COLLECTIONS
        if not brackets and sum(1 for _ in islice(_EXPONENT.finditer(seen), _MAX_EXPONENTS + 1)) <= _MAX_EXPONENTS:
            return
    raise TooLarge(f"Request entity too large: too many {'lists and objects' if brackets else 'large numbers'}")


_HARMLESS = 16 * 1024  # bytes that may be anything
_MAX_COLLECTIONS = 100_000
_MAX_EXPONENTS = 5_000
_EXPONENT = re.compile(rb"[0-9.][eE][-+]?[0-9]{2}")
_JSON_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)


def _unreadable(unrecognized: str, why: str, data: bytes) -> BadRequest:
    return BadRequest(f"{unrecognized}couldn't get version/kind; json parse error: {why} ({_summary(data)})")


def _summary(data: bytes) -> str:
    """The beginning of a body, for error messages."""
    if not data:
        return "<empty>"
    start = data[:_EXCERPT].decode("utf-8", "replace") if data.startswith(b"{") else data[:_EXCERPT].hex()
    return f"{start} ..." if len(data) > _EXCERPT else start


def decode_yaml(data: bytes, before: str, after: str = "") -> Any:
    """Decodes YAML; error messages are put between `before` and `after`."""
    if data[:1] == b"{" and data.count(b"[") + data.count(b"{") <= _MAX_COLLECTIONS:
        # Most clients send JSON as YAML, for example kubectl for server-side apply.
        _numbers.left = _MAX_NUMBERS
        try:
            return _JSON_OF_YAML.decode(data)
        except TooLarge:
            raise
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
    try:
        reading = read_request(data)
    except BadYaml as error:
        raise BadRequest(f"{before}{_yaml_fault(error)}{after}") from None
    if reading.faults:
        line, _, message = reading.faults[0]
        raise BadRequest(f"{before}yaml: line {line}: {message}{after}")
    return reading.value


class _Numbers:
    """Resolves the numbers of one body as YAML does; a body of nothing but numbers would take long, and is refused."""

    left = 0

    def resolve(self, text: str) -> Any:
        self.left -= 1
        if self.left < 0:
            raise TooLarge("Request entity too large: too many numbers")
        return resolve(text)


_MAX_NUMBERS = 20_000  # with a fraction or an exponent
_numbers = _Numbers()
_JSON_OF_YAML = msgspec.json.Decoder(float_hook=_numbers.resolve)


def _yaml_fault(error: BadYaml) -> str:
    """The message of Go's YAML decoder, whose line numbers start at 0 except in scanner errors."""
    cause = error.__cause__
    if not isinstance(cause, yaml.MarkedYAMLError):
        return f"yaml: {error}"
    marks = (cause.context_mark, cause.problem_mark)
    line = next((mark.line for mark in marks if mark is not None and mark.line), 0)
    if line and isinstance(cause, yaml.scanner.ScannerError):
        line += 1
    return f"yaml: line {line}: {cause.problem}" if line else f"yaml: {cause.problem}"


_TYPE_META = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'


async def object_body(exchange: ApiExchange, kind: str) -> Body:
    """The body as a JSON object; the caller checks its kind."""
    media = content_type(exchange.header(b"content-type"))
    require_content(media, JSON, YAML, PROTOBUF)
    data = await exchange.body()
    value = decode(data, media, kind)
    if value is None:
        value = {}
    if not isinstance(value, dict):
        why = f"json: cannot unmarshal {json_type(value)} into Go value of type {_TYPE_META}"
        raise _unreadable(f"the object provided is unrecognized (must be of type {kind}): ", why, data)
    body = Body(value, data if media == JSON else msgspec.json.encode(value), media)
    if exchange.audit is not None:
        exchange.audit.concerns(value, body.data)
    return body
