"""The ASGI application: the page, the endpoints, and who may call them."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from wharfinger.api.errors import ApiError, BadRequest, Unauthorized
from wharfinger.dashboard.context import Dashboard
from wharfinger.dashboard.endpoints import ENDPOINTS, Endpoint, read_body
from wharfinger.dashboard.openapi import openapi
from wharfinger.dashboard.security import Guard
from wharfinger.dashboard.sessions import SESSION_SECONDS, Caller, Sessions

STATIC = Path(__file__).parent / "static"
COOKIE = "wharf-session"
_COMPRESSED_FROM = 1400  # bytes
NOT_BUILT = (
    "<!doctype html><html lang=en><title>Wharfinger</title><h1>The page was not built</h1>"
    "<p>The endpoints under <a href=/api/openapi.json>/api</a> work. <code>make web</code> builds the page; "
    "it needs the npm registry once.</p>"
)


def is_built() -> bool:
    return (STATIC / "index.html").exists()


def application(dashboard: Dashboard, hosts: Collection[str] = ()) -> Starlette:
    routes: list[BaseRoute] = [Route(each.path, _handler(dashboard, each), methods=[each.method]) for each in ENDPOINTS]
    routes += [
        Route("/api/openapi.json", _openapi, methods=["GET"]),
        Route("/open", _opener(dashboard.sessions), methods=["GET"]),
        Route("/login", _login(dashboard.sessions), methods=["POST"]),
        Route("/logout", _logout(dashboard.sessions), methods=["POST"]),
        Route("/healthz", _healthy, methods=["GET"]),
        Mount("/assets", _Assets(directory=STATIC / "assets", check_dir=False)),
        Route("/{path:path}", _page, methods=["GET"]),
    ]
    return Starlette(routes=routes, middleware=[Middleware(Guard, hosts=hosts)])


class _Assets(StaticFiles):
    """Files whose names contain a hash of their content: they never change."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["cache-control"] = "public, max-age=31536000, immutable"
        return response


async def _page(request: Request) -> Response:
    """The page for every path that is not a file: it shows the screen that the path names."""
    if request.url.path.startswith("/api/"):
        return _error(ApiError("there is no such endpoint", code=404, reason="NotFound"))
    name = request.path_params["path"]
    if name in ("favicon.svg",) and (STATIC / name).exists():
        return Response((STATIC / name).read_bytes(), media_type="image/svg+xml")
    if not is_built():
        return HTMLResponse(NOT_BUILT, 503)
    return HTMLResponse((STATIC / "index.html").read_text())


async def _healthy(request: Request) -> Response:
    return Response("ok", media_type="text/plain")


async def _openapi(request: Request) -> Response:
    return _json(request, openapi(ENDPOINTS))


def _handler(dashboard: Dashboard, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        try:
            caller = await _caller(dashboard.sessions, request)
            found = await endpoint.handler(dashboard, caller, request)
        except ApiError as error:
            return _error(error)
        return found if isinstance(found, Response) else _json(request, found)

    return handle


async def _caller(sessions: Sessions, request: Request) -> Caller:
    header = request.headers.get("authorization", "")
    if header:
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Unauthorized("the Authorization header must be a bearer token")
        return await sessions.bearer(token.strip())
    return sessions.of_cookie(_cookie(request))


def _cookie(request: Request) -> str:
    return request.cookies.get(COOKIE, "")


def _opener(sessions: Sessions) -> Callable[[Request], Awaitable[Response]]:
    async def opens(request: Request) -> Response:
        """A one-time link. Somebody who has a session already is led on, whatever the token."""
        response = RedirectResponse("/", 303)
        try:
            sessions.of_cookie(_cookie(request))
            return response
        except Unauthorized:
            pass
        try:
            _set_cookie(request, response, sessions.open(request.query_params.get("token", "")))
        except Unauthorized:
            return RedirectResponse("/login?used", 303)
        return response

    return opens


class _LoginRequest(msgspec.Struct):
    token: str


def _login(sessions: Sessions) -> Callable[[Request], Awaitable[Response]]:
    async def log_in(request: Request) -> Response:
        try:
            asked = await read_body(request, _LoginRequest)
            if not asked.token.isprintable():
                raise BadRequest("this is not a token")
            cookie = await sessions.log_in(asked.token.strip())
        except ApiError as error:
            return _error(error)
        response = Response(status_code=204)
        _set_cookie(request, response, cookie)
        return response

    return log_in


def _logout(sessions: Sessions) -> Callable[[Request], Awaitable[Response]]:
    async def log_out(request: Request) -> Response:
        sessions.log_out(_cookie(request))
        response = Response(status_code=204)
        response.delete_cookie(COOKIE)
        return response

    return log_out


def _set_cookie(request: Request, response: Response, value: str) -> None:
    secure = request.url.scheme == "https"
    response.set_cookie(
        COOKIE, value, max_age=int(SESSION_SECONDS), httponly=True, samesite="strict", secure=secure, path="/"
    )


def _json(request: Request, document: Any) -> Response:
    """JSON with a tag, so that an unchanged answer is not sent again, and compressed where that is understood."""
    body = msgspec.json.encode(document)
    tag = f'"{hashlib.blake2s(body, digest_size=12).hexdigest()}"'
    headers = {"etag": tag, "cache-control": "no-cache", "vary": "accept-encoding, cookie, authorization"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    if len(body) >= _COMPRESSED_FROM and "gzip" in request.headers.get("accept-encoding", ""):
        body = gzip.compress(body, 3)
        headers["content-encoding"] = "gzip"
    return Response(body, media_type="application/json", headers=headers)


def _error(error: ApiError) -> Response:
    body = msgspec.json.encode(error.status())
    return Response(body, status_code=error.code, media_type="application/json")
