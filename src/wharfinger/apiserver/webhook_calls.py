"""Calls of the webhooks that users configure, for admission and for conversion.

A reference to a Service is resolved to one of its endpoints, which is called directly.
"""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64decode
from typing import TYPE_CHECKING

import msgspec

from wharfinger.api.errors import ApiError, NotFound
from wharfinger.api.kinds.builtin import SERVICES
from wharfinger.api.registry import Document
from wharfinger.apiserver.service_endpoints import resolve
from wharfinger.store.store import Store

if TYPE_CHECKING:
    import aiohttp

_HEADERS = {"Accept": "application/json, */*", "User-Agent": "kube-apiserver-admission"}
_MOST_CONTEXTS = 256


class WebhookCallFailed(Exception):
    """The webhook could not be called, or its response is invalid."""


class WebhookCaller:
    """Sends reviews to webhooks, over connections that are kept."""

    def __init__(self, store: Store, *, max_response: int = 3 * 1024 * 1024) -> None:
        self._store = store
        self._max_response = max_response  # bytes
        self._session: aiohttp.ClientSession | None = None
        self._contexts: dict[str, ssl.SSLContext] = {}

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def ask(self, client: Document, review: Document, timeout: int) -> Document:
        """The answer to a review. `client` is the `clientConfig`, and `timeout` is in seconds. Raises WebhookCallFailed."""
        import aiohttp  # here, since most commands call no webhook

        url, called, server_name = self._address(client, timeout)
        if self._session is None:
            self._session = aiohttp.ClientSession(
                json_serialize=lambda value: msgspec.json.encode(value).decode(), headers=_HEADERS
            )
        try:
            context = self._context(client.get("caBundle") or "")
            async with (
                asyncio.timeout(timeout),
                self._session.post(
                    called,
                    json=review,
                    ssl=context,
                    allow_redirects=False,
                    server_hostname=server_name,
                    headers={"Host": server_name} if server_name else {},
                ) as response,
            ):
                data = await response.content.read(self._max_response)
        except TimeoutError:
            raise WebhookCallFailed(f'Post "{url}": context deadline exceeded') from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise WebhookCallFailed(f'Post "{url}": {str(error) or type(error).__name__}') from None
        if response.status != 200:
            raise WebhookCallFailed(f"the server responded with {response.status} {response.reason}")
        try:
            answer = msgspec.json.decode(data)
        except msgspec.DecodeError as error:
            raise WebhookCallFailed(f"the response is not JSON: {error}") from None
        if not isinstance(answer, dict):
            raise WebhookCallFailed(f"the response is not {review['kind']}")
        return answer

    def _address(self, client: Document, seconds: int) -> tuple[str, str, str | None]:
        """The URL of the webhook for messages, that which is called, and the name to verify its certificate against if it is
        not the host of the URL."""
        timeout = f"timeout={seconds}s"
        if client.get("url"):
            url = f"{client['url']}{'&' if '?' in client['url'] else '?'}{timeout}"
            return url, url, None
        wanted = client.get("service") or {}
        name, namespace = str(wanted.get("name") or ""), str(wanted.get("namespace") or "")
        host, port = f"{name}.{namespace}.svc", int(wanted.get("port") or 443)
        rest = f"/{str(wanted.get('path') or '').lstrip('/')}?{timeout}"
        url = f"https://{host}:{port}{rest}"
        try:
            address, target = self._endpoint(name, namespace, port)
        except ApiError as error:
            raise WebhookCallFailed(f'Post "{url}": {error}') from None
        return url, f"https://{f'[{address}]' if ':' in address else address}:{target}{rest}", host

    def _endpoint(self, name: str, namespace: str, port: int) -> tuple[str, int]:
        found = self._store.peek(SERVICES, name, namespace)
        if found is None:
            raise NotFound(f'service "{name}" not found')
        service = found.document()
        spec = service.get("spec") or {}
        if spec.get("type") == "ExternalName":
            return str(spec.get("externalName")), port
        return resolve(self._store, service, port)

    def _context(self, bundle: str) -> ssl.SSLContext:
        """Trusts the CA bundle of the configuration, or the system's authorities if there is none."""
        if bundle not in self._contexts:
            if len(self._contexts) >= _MOST_CONTEXTS:
                self._contexts.clear()
            data = b64decode(bundle).decode().strip() if bundle else None
            self._contexts[bundle] = ssl.create_default_context(cadata=data or None)
        return self._contexts[bundle]
