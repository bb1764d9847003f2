"""The client that commands use: that of the cluster which kubectl would use."""

from __future__ import annotations

from typing import Any

from wharfinger.client.http import HttpClient
from wharfinger.client.kubeconfig import load_access


def connect(kubeconfig: str | None = None, context: str | None = None, **options: Any) -> HttpClient:
    """Returns a client for the cluster of a kubeconfig, or for the one this process runs in. Sends nothing yet.

    `options` are those of HttpClient. The caller closes the client. Raises KubeconfigError.
    """
    return HttpClient(load_access(kubeconfig, context), **options)
