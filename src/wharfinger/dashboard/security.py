"""What holds for every request: allowed hosts, response headers, and the origin of requests that change something."""

from __future__ import annotations

from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

REQUEST_HEADER = "x-wharf-request"
"""Pages of other origins cannot set this header without a preflight, which is never answered."""

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "font-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
_SAFE = ("GET", "HEAD")
_BODY_LIMIT = 4 << 20  # bytes


class Guard:
    """Middleware. `hosts` are the values of the Host header that are accepted; empty: any (behind a proxy of a cluster)."""

    def __init__(self, app: ASGIApp, hosts: Collection[str] = ()) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                if "cache-control" not in headers:
                    headers["cache-control"] = "no-store"
            await send(message)

        refusal = self._refusal(scope["method"], Headers(scope=scope))
        if refusal:
            await PlainTextResponse(refusal, 403)(scope, receive, guarded)
            return
        await self._app(scope, receive, guarded)

    def _refusal(self, method: str, headers: Headers) -> str:
        """Why a request is not answered; empty if it is."""
        if self._hosts and headers.get("host", "") not in self._hosts:
            return "this name is not served: a page elsewhere may have been made to point here"  # DNS rebinding
        if int(headers.get("content-length") or 0) > _BODY_LIMIT:
            return "the request is too large"
        if method in _SAFE or headers.get("authorization"):
            return ""  # a browser never adds an Authorization header by itself
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return "requests of other sites are not accepted"
        if REQUEST_HEADER not in headers:
            return f"requests that change something need the header {REQUEST_HEADER}"
        return ""
