"""How every command gets its client: the cluster that kubectl would use."""

from __future__ import annotations

from typing import Any

from wharfinger.client.http import HttpClient
from wharfinger.client.kubeconfig import load_access


def connect(kubeconfig: str | None = None, context: str | None = None, **options: Any) -> HttpClient:
    """A client for the cluster of a kubeconfig, or the one we run in. Raises KubeconfigError; nothing is sent yet.

    `options` are those of HttpClient. The caller closes the client.
    """
    return HttpClient(load_access(kubeconfig, context), **options)
