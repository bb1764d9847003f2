"""The debug HTTP endpoint: what a Placement selects and why, in the format of upstream's debug server.

`GET /debug/placements/NAMESPACE/NAME` explains an existing Placement; `POST /debug/placements/` explains the one in the
body without writing anything. Callers need a bearer token and permission to get or create placements in the namespace.
Disabled by default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from wharfinger.api.errors import (
    ApiError,
    BadRequest,
    Forbidden,
    InternalError,
    MethodNotAllowed,
    Unauthorized,
)
from wharfinger.api.kinds.builtin import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS
from wharfinger.api.registry import Document
from wharfinger.api.views.base import view
from wharfinger.client.interface import Client
from wharfinger.client.serving import SideServer
from wharfinger.systems.placement.kinds.names import OCM, PLACEMENTS
from wharfinger.systems.placement.kinds.placement import PLACEMENT, convert_placement
from wharfinger.systems.placement.kinds.views import Placement
from wharfinger.systems.placement.rules.explain import debug_document
from wharfinger.systems.placement.rules.pipeline import schedule
from wharfinger.systems.placement.rules.plan import make_plan

if TYPE_CHECKING:
    from aiohttp import web

    from wharfinger.systems.placement.controllers.scheduling import PlacementController

PATH = "/debug/placements/"
LIMIT = 1 << 20  # maximum size of the request body in bytes


class PlacementDebug:
    """Answers queries from the state of a running controller."""

    def __init__(self, controller: PlacementController) -> None:
        self._controller = controller

    def existing(self, document: Document) -> Document:
        return self._answer(view(document, Placement), document)

    def dry_run(self, document: Document) -> Document:
        """Decides a Placement that does not exist, on the current clusters."""
        new = convert_placement(document, "v1beta1")
        assert PLACEMENT.default is not None and PLACEMENT.validate is not None
        PLACEMENT.default(new)
        faults = PLACEMENT.validate(new, None)
        if faults:
            raise BadRequest(f"the Placement is not valid: {'; '.join(map(str, faults))}")
        return self._answer(view(new, Placement), new)

    def _answer(self, placement: Placement, shown: Document) -> Document:
        world, now = self._controller.world, self._controller.context.now()
        plan = make_plan(placement)
        scope = world.scope_for(placement.metadata.namespace, placement.spec.cluster_sets)
        result = schedule(world.fleet, plan, world.fleet.eligible(scope.selectors), now)
        return debug_document(world.fleet, shown, result)


class DebugServer(SideServer):
    """Serves `PlacementDebug` over HTTP."""

    def __init__(self, debug: PlacementDebug, client: Client, *, host: str = "127.0.0.1", port: int = 0) -> None:
        super().__init__(host, port)
        self._debug = debug
        self._client = client

    async def start(self) -> None:
        from aiohttp import web

        application = web.Application(client_max_size=LIMIT)
        application.router.add_route("*", PATH + "{rest:.*}", self._handle)
        await self.serve(application)

    async def _handle(self, request: web.Request) -> web.Response:
        from aiohttp import web

        try:
            code, answer = 200, await self._answer(request)
        except web.HTTPRequestEntityTooLarge:
            raise
        except ApiError as error:
            code, answer = error.code, {"error": error.message}
        except Exception as error:
            code, answer = 500, {"error": InternalError(str(error)).message}
        return web.Response(body=msgspec.json.encode(answer), status=code, content_type="application/json")

    async def _answer(self, request: web.Request) -> Document:
        user = await self._user(request.headers.get("Authorization", ""))
        if request.method == "GET":
            namespace, slash, name = request.match_info["rest"].partition("/")
            if not slash or not namespace or not name or "/" in name:
                raise BadRequest(f"expected {PATH}NAMESPACE/NAME")
            await self._authorize(user, "get", namespace, name)
            return self._debug.existing(await self._client.get(PLACEMENTS, name, namespace))
        if request.method == "POST":
            document = _placement(await request.read())
            await self._authorize(user, "create", str(document["metadata"].get("namespace") or ""), "")
            return self._debug.dry_run(document)
        raise MethodNotAllowed("only GET and POST are allowed")

    async def _user(self, header: str) -> Document:
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Unauthorized("a bearer token is required")
        review = {
            "apiVersion": TOKEN_REVIEWS.api_version,
            "kind": TOKEN_REVIEWS.kind,
            "metadata": {},
            "spec": {"token": token.strip()},
        }
        status = (await self._client.create(TOKEN_REVIEWS, review)).get("status") or {}
        if not status.get("authenticated"):
            raise Unauthorized("the token is not valid")
        user: Document = status.get("user") or {}
        return user

    async def _authorize(self, user: Document, verb: str, namespace: str, name: str) -> None:
        attributes = {"verb": verb, "group": OCM, "resource": PLACEMENTS.plural, "namespace": namespace, "name": name}
        review = {
            "apiVersion": SUBJECT_ACCESS_REVIEWS.api_version,
            "kind": SUBJECT_ACCESS_REVIEWS.kind,
            "metadata": {},
            "spec": {
                "user": user.get("username", ""),
                "groups": user.get("groups") or [],
                "uid": user.get("uid", ""),
                "extra": user.get("extra") or {},
                "resourceAttributes": attributes,
            },
        }
        status = (await self._client.create(SUBJECT_ACCESS_REVIEWS, review)).get("status") or {}
        if not status.get("allowed"):
            raise Forbidden(f'user "{user.get("username", "")}" cannot {verb} placements in namespace "{namespace}"')


def _placement(body: bytes) -> Document:
    try:
        document = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise BadRequest(f"the body is not JSON: {error}") from error
    if not isinstance(document, dict) or document.get("kind") != PLACEMENTS.kind:
        raise BadRequest("the body is not a Placement")
    if not isinstance(document.get("metadata"), dict):
        raise BadRequest("the Placement has no metadata")
    return document
