"""The ASGI application of the webhook server: admission and conversion reviews, health and metrics."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram

from wharfinger.admission.request import Request
from wharfinger.api.errors import ApiError, InternalError
from wharfinger.api.registry import Registry
from wharfinger.http.metrics import CONTENT_TYPE, LabelledSeries, exposition
from wharfinger.webhook.handler import Operation, WebhookHandler, fail_open
from wharfinger.webhook.reviews import (
    AdmissionRequest,
    InvalidReview,
    allow,
    as_request,
    convert,
    deny,
    read_admission,
    read_conversion,
)

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

BODY_LIMIT = 16 << 20  # API servers accept objects of 3 MiB; a review holds two of them
_CACHE_SIZE = 1024  # combinations of resource, operation and phase, with the handlers they concern
_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)


class WebhookApplication:
    """`not_ready` returns what is missing before reviews can be decided; empty if nothing is. `may_read_metrics` returns
    the error for a request for metrics with the given Authorization header, or nothing."""

    def __init__(
        self,
        handlers: list[WebhookHandler],
        registry: Registry,
        metrics: CollectorRegistry,
        not_ready: Callable[[], str] = lambda: "",
        may_read_metrics: Callable[[str], Awaitable[ApiError | None]] | None = None,
    ) -> None:
        self._handlers = handlers
        self._registry = registry
        self._metrics = metrics
        self._not_ready = not_ready
        self._may_read_metrics = may_read_metrics
        self._fails_open = fail_open(handlers)
        self.stopping = False
        self._handlers_of: dict[tuple[str, str, str, str, bool], list[WebhookHandler]] = {}
        self._seconds = LabelledSeries(
            Histogram(
                "wharfinger_webhook_duration_seconds",
                "Time to answer a review.",
                ("phase",),
                registry=metrics,
                buckets=_BUCKETS,
            )
        )
        self._answers = LabelledSeries(
            Counter("wharfinger_webhook_answers_total", "Reviews by answer.", ("phase", "answer"), registry=metrics)
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if self.stopping:
            send = _closing(send)
        method, path = scope["method"], scope["path"]
        if method in ("GET", "HEAD"):
            await self._get(path, scope, send)
        elif method != "POST" or path not in ("/mutate", "/validate", "/convert"):
            await _reply(
                send, 404, f"{method} {path} is not served here; POST a review to /mutate, /validate or /convert"
            )
        else:
            await self._post(path, scope, receive, send)

    async def _get(self, path: str, scope: Scope, send: Send) -> None:
        if path in ("/healthz", "/livez"):
            await _reply(send, 200, "ok")
        elif path == "/readyz":
            wrong = "shutting down" if self.stopping else self._not_ready()
            await _reply(send, 500 if wrong else 200, wrong or "ok")
        elif path == "/metrics":
            await self._send_metrics(scope, send)
        else:
            await _reply(send, 404, f"{path} is not served here")

    async def _send_metrics(self, scope: Scope, send: Send) -> None:
        """Metrics tell names of policies and rates of requests, so not everyone who reaches the port may read them."""
        denied: ApiError | None = None
        if self._may_read_metrics is not None:
            header = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
            try:
                denied = await self._may_read_metrics(header)
            except ApiError as error:
                denied = InternalError(f"cannot check the token: {error.message}")
        if denied is not None:
            await _reply(send, denied.code, denied.message)
        else:
            await _reply(send, 200, exposition(self._metrics), CONTENT_TYPE.encode())

    async def _post(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        started, phase = loop.time(), path[1:]
        answer = "failed"
        try:
            kind = dict(scope["headers"]).get(b"content-type", b"").partition(b";")[0].strip()
            if kind != b"application/json":
                shown = kind.decode(errors="replace") or "none"
                await _reply(send, 415, f"content type must be application/json, not {shown}")
                return
            body = await _body(scope, receive)
            if body is None:
                await _reply(send, 413, f"the review is larger than {BODY_LIMIT >> 20} MiB")
                return
            try:
                if phase == "convert":
                    reply, answer = convert(read_conversion(body), self._registry), "converted"
                else:
                    reply, answer = await self._review(read_admission(body), mutating=phase == "mutate")
            except InvalidReview as error:
                await _reply(send, 400, str(error))
                return
            await _reply(send, 200, reply, b"application/json")
        finally:
            self._seconds[(phase,)].observe(loop.time() - started)
            self._answers[phase, answer].inc()

    def _concerned(self, request: Request, mutating: bool) -> list[WebhookHandler]:
        """The handlers that a request concerns, cached: they depend on a few fields only."""
        key = (request.resource.group, request.resource.plural, request.subresource, request.operation, mutating)
        found = self._handlers_of.get(key)
        if found is None:
            found = [handler for handler in self._handlers if handler.concerns(request, mutating)]
            if len(self._handlers_of) >= _CACHE_SIZE:
                self._handlers_of.clear()
            self._handlers_of[key] = found
        return found

    async def _review(self, admission: AdmissionRequest, *, mutating: bool) -> tuple[bytes, str]:
        warnings: list[str] = []
        audit: dict[str, str] = {}
        operations: list[Operation] = []
        try:
            if wrong := self._not_ready():
                raise InternalError(f"wharfinger cannot decide yet: {wrong}")
            request = as_request(admission, self._registry)
            concerned = self._concerned(request, mutating)
            for handler in concerned:
                outcome = await handler.review(request, mutating=mutating)
                warnings += outcome.review.warnings
                audit |= outcome.review.audit
                if outcome.review.denied is not None:
                    return deny(admission.uid, outcome.review.denied, warnings, audit), "denied"
                operations += outcome.operations
                if outcome.operations and handler is not concerned[-1]:
                    _apply(request, outcome.operations)
            return allow(admission.uid, operations, warnings, audit), "allowed"
        except ApiError as error:
            log.warning(
                "cannot decide on %s %s/%s: %s", admission.operation, admission.namespace, admission.name, error
            )
            return self._undecided(admission.uid, error.message), "undecided"
        except Exception:
            log.exception("cannot decide on %s %s/%s", admission.operation, admission.namespace, admission.name)
            return self._undecided(admission.uid, "an internal error; the webhook's log has the details"), "undecided"

    def _undecided(self, uid: str, why: str) -> bytes:
        """A refusal, or in modes that only report, a warning: whatever goes wrong here, they stop nothing."""
        if self._fails_open:
            return allow(uid, (), [f"wharfinger did not review this request: {why}"], {})
        return deny(uid, InternalError(f"wharfinger cannot decide: {why}"))


def _apply(request: Request, operations: Any) -> None:
    """Applies the patch of a handler so that later handlers see it."""
    import jsonpatch

    request.object = jsonpatch.apply_patch(request.object, list(operations))


async def _body(scope: Scope, receive: Receive) -> bytes | bytearray | None:
    """The whole body; None if it is too large, by its declared or its actual length."""
    declared = dict(scope["headers"]).get(b"content-length", b"")
    if declared.isdigit() and int(declared) > BODY_LIMIT:
        return None
    message = await receive()
    if not message.get("more_body"):
        first: bytes = message.get("body", b"")
        return first if len(first) <= BODY_LIMIT else None
    body = bytearray(message.get("body", b""))
    while message.get("more_body"):
        message = await receive()
        body += message.get("body", b"")
        if len(body) > BODY_LIMIT:
            return None
    return body


def _closing(send: Send) -> Send:
    """Tells clients to close their connections. An API server that kept one would lose the request that it sends at the
    moment when we close it."""

    async def closing(message: Any) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
        await send(message)

    return closing


async def _reply(send: Send, status: int, body: bytes | str, kind: bytes = b"text/plain; charset=utf-8") -> None:
    data = body.encode() if isinstance(body, str) else body
    headers = [(b"content-type", kind), (b"content-length", str(len(data)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": data})
