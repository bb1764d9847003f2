"""Bindings that fail or are slow on a running cluster: while a scenario needs it, the API server calls a webhook of
ours for every binding. The API server must be able to reach the webhook."""

from __future__ import annotations

import asyncio
import socket
import ssl
import tempfile
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import uvicorn

from wharfinger.api.errors import ApiError
from wharfinger.api.kinds.builtin import PODS, VALIDATING_WEBHOOKS
from wharfinger.api.registry import Document
from wharfinger.client.http import HttpClient
from wharfinger.http.protocol import HttpProtocol
from wharfinger.scenario.document import ScenarioFault
from wharfinger.scenario.extension import BindingRequest
from wharfinger.scenario.faults import BindFaults
from wharfinger.webhook.certificates import renewed
from wharfinger.webhook.reviews import AdmissionRequest, allow, deny, read_admission

TIMEOUT = 30  # seconds, the most that an API server waits for a webhook
_PROBE = "wharf-test-probe"


class BindWebhook:
    """`open` returns when the API server calls it; `close` removes it. `address` is host and port, for both sides;
    `more` are requests besides bindings of pods that count as bindings."""

    def __init__(
        self, client: HttpClient, name: str, labels: dict[str, str], address: str, more: Sequence[BindingRequest] = ()
    ) -> None:
        self._client = client
        self._name = name
        self._labels = labels
        self._asked = (BindingRequest("", "v1", "pods/binding", "CREATE"), *more)
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._faults = BindFaults()
        self._probed = asyncio.Event()
        self._server: uvicorn.Server | None = None
        self._serving: asyncio.Task[None] | None = None

    def add(self, fault: ScenarioFault) -> None:
        self._faults.add(fault)

    async def open(self, patience: float) -> None:
        """Raises TimeoutError if the API server does not call it within so many seconds."""
        certificates = renewed((self._host,), datetime.now(UTC))
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.TemporaryDirectory() as folder:
            certificate, key = Path(folder) / "tls.crt", Path(folder) / "tls.key"
            certificate.write_bytes(certificates.certificate)
            key.touch(mode=0o600)
            key.write_bytes(certificates.key)
            tls.load_cert_chain(certificate, key)
        config = uvicorn.Config(
            cast("Any", self._answer),
            http=cast("Any", HttpProtocol),
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
        )
        config.load()
        config.ssl = tls
        self._server = _Server(config)
        listener = socket.create_server((self._host, self._port))
        self._serving = asyncio.create_task(self._server.serve([listener]), name="webhook of bindings")
        await self._client.create(VALIDATING_WEBHOOKS, self._configuration(certificates.bundle))
        async with asyncio.timeout(patience):
            while not self._probed.is_set():
                await self._probe()
                await asyncio.sleep(0.2)

    async def close(self) -> None:
        try:
            if self._serving is not None:
                await self._client.delete(VALIDATING_WEBHOOKS, self._name)
        finally:
            if self._server is not None and self._serving is not None:
                self._server.should_exit = self._server.force_exit = True
                await asyncio.gather(self._serving, return_exceptions=True)

    async def _probe(self) -> None:
        """Binds a pod that does not exist: the webhook is called before the pod is looked up."""
        target = {"apiVersion": "v1", "kind": "Node", "name": _PROBE}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": _PROBE}, "target": target}
        try:
            await self._client.create(PODS, binding, "default", name=_PROBE, subresource="binding", dry_run=True)
        except ApiError:
            return

    def _configuration(self, bundle: bytes) -> Document:
        webhook = {
            "name": "bindings.test.wharfinger.dev",
            "clientConfig": {"url": f"https://{self._host}:{self._port}/", "caBundle": b64encode(bundle).decode()},
            "rules": [
                {"apiGroups": [group], "apiVersions": [version], "resources": [resource], "operations": [operation]}
                for group, version, resource, operation in self._asked
            ],
            "admissionReviewVersions": ["v1"],
            "sideEffects": "NoneOnDryRun",
            "timeoutSeconds": TIMEOUT,
            "failurePolicy": "Ignore",  # bindings must not fail if this process ends before the configuration is removed
        }
        return {
            "apiVersion": VALIDATING_WEBHOOKS.api_version,
            "kind": VALIDATING_WEBHOOKS.kind,
            "metadata": {"name": self._name, "labels": self._labels},
            "webhooks": [webhook],
        }

    # -- the webhook

    async def _answer(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        answer = await self._review(read_admission(body))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": answer})

    async def _review(self, asked: AdmissionRequest) -> bytes:
        if asked.dry_run:
            self._probed.set()
        elif _binds(asked):
            try:
                await self._faults.inject()
            except ApiError as error:
                return deny(asked.uid, error)
        return allow(asked.uid, (), (), {})


def _binds(asked: AdmissionRequest) -> bool:
    """Whether a request gives an object a node: by a binding, or by its status."""
    if asked.sub_resource == "binding":
        return True
    before, after = (((each or {}).get("status") or {}).get("nodeName") for each in (asked.old_object, asked.object))
    return bool(after) and not before


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The process that runs the scenarios handles signals."""
        yield
