"""The webhook as a process of its own, as on a real cluster: it may be down, stand still, or lag behind with what it has
seen. The API server of the simulation calls it as it calls any webhook, without a network in between."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, MutableMapping
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

import msgspec
from prometheus_client import CollectorRegistry

from wharfinger.admission.rbac import Attributes, RbacIndex
from wharfinger.admission.request import User
from wharfinger.api.configuration import Configuration
from wharfinger.api.kinds.builtin import SUBJECT_ACCESS_REVIEWS
from wharfinger.api.registry import Document, Registry
from wharfinger.api.requests import ApiRequest
from wharfinger.apiserver.webhook_calls import WebhookCaller, WebhookCallFailed
from wharfinger.client.informer import InformerSet
from wharfinger.client.interface import Client
from wharfinger.client.local import LocalClient
from wharfinger.scenario.faults import BindFaults
from wharfinger.simulate.loop import VirtualLoop
from wharfinger.simulate.processes import ProcessClient, ProcessFaults, ProcessRun
from wharfinger.store import Store
from wharfinger.system import systems
from wharfinger.webhook.application import WebhookApplication
from wharfinger.webhook.configurations import WebhookEndpoint, ensure
from wharfinger.webhook.handler import WebhookContext, WebhookHandler

T = TypeVar("T")

_ENDPOINT = WebhookEndpoint(url="https://webhook.wharfinger")


class WebhookLink:
    """Where the API server finds the webhook."""

    def __init__(self, loop: VirtualLoop, on_review: Callable[[ProcessRun, Document], None]) -> None:
        """`on_review` is called with each answered request."""
        self._loop = loop
        self._on_review = on_review
        self._application: WebhookApplication | None = None
        self._run: ProcessRun | None = None
        self._calls: set[asyncio.Task[bytes]] = set()

    def open(self, application: WebhookApplication, run: ProcessRun) -> None:
        self._application, self._run = application, run

    def close(self) -> None:
        """Calls under way get no answer."""
        self._application = self._run = None
        for call in self._calls:
            call.cancel()

    async def post(self, url: str, review: Document, timeout: float) -> bytes:
        failed = f'Post "{url}": '
        if self._application is None or self._run is None:
            raise WebhookCallFailed(f"{failed}dial tcp: connect: connection refused")
        run, work = self._run, _answer(self._application, urlsplit(url).path, msgspec.json.encode(review))
        call: asyncio.Task[bytes] = self._loop.start_process(work, run.name)
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        await asyncio.wait({call}, timeout=timeout)
        if not call.done():
            call.cancel()
            raise WebhookCallFailed(f"{failed}context deadline exceeded")
        if call.cancelled():
            raise WebhookCallFailed(f"{failed}EOF")
        self._on_review(run, review["request"])
        return call.result()


async def _answer(application: WebhookApplication, path: str, body: bytes) -> bytes:
    """The response of an ASGI application to a POST of JSON."""
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    answered = b""
    status = 0

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": body}

    async def send(message: MutableMapping[str, Any]) -> None:
        nonlocal answered, status
        if message["type"] == "http.response.start":
            status = message["status"]
        else:
            answered += message["body"]

    await application({"type": "http", "method": "POST", "path": path, "headers": headers}, receive, send)
    if status != 200:
        raise WebhookCallFailed(f"the server responded with {status}")
    return answered


class LinkedCaller(WebhookCaller):
    """Calls the webhook over a link."""

    def __init__(self, store: Store, link: WebhookLink) -> None:
        super().__init__(store)
        self._link = link

    async def ask(self, client: Document, review: Document, timeout: int) -> Document:
        url, *_ = self._address(client, timeout)
        data = await self._link.post(url, review, timeout)
        return cast("Document", msgspec.json.decode(data))


class WebhookClient(ProcessClient):
    """The client of the webhook. The store does not answer access reviews; an API server does."""

    def __init__(
        self, client: LocalClient, faults: ProcessFaults, run: ProcessRun, rbac: Callable[[], RbacIndex]
    ) -> None:
        super().__init__(client, BindFaults(), faults, run, bind_faults=False)
        self._rbac = rbac

    async def _deliver(self, request: ApiRequest[T]) -> T:
        if request.resource != SUBJECT_ACCESS_REVIEWS:
            return await super()._deliver(request)
        spec = request.body["spec"]
        user = User(spec["user"], tuple(spec["groups"]), spec["uid"])
        decision = self._rbac().allowed(Attributes(user, **spec["resourceAttributes"]))
        return cast("T", {**request.body, "status": {"allowed": decision.allowed}})


def _handlers(context: WebhookContext) -> list[WebhookHandler]:
    found = [each for system in systems() if system.webhook_suffices for each in system.webhook_handlers(context)]
    return sorted(found, key=lambda handler: (handler.order, handler.name))


async def register(client: Client, configuration: Configuration, registry: Registry) -> None:
    """Lets the API server call the webhook."""
    context = WebhookContext(client, InformerSet(client), registry, configuration)
    await ensure(client, _handlers(context), _ENDPOINT, b"")


async def run_webhook(
    client: WebhookClient, configuration: Configuration, registry: Registry, rng: random.Random, link: WebhookLink
) -> None:
    informers, metrics = InformerSet(client, rng=rng), CollectorRegistry()

    def not_ready() -> str:
        return "" if informers.synced else "waiting for informers"

    handlers = _handlers(WebhookContext(client, informers, registry, configuration, metrics))
    link.open(WebhookApplication(handlers, registry, metrics, not_ready), client.run)
    informers.start()
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        link.close()
        await informers.stop()
