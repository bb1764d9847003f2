"""`wharf bench apiserver` with servers that do not do their part."""

from __future__ import annotations

import json
import socket
from base64 import b64encode
from pathlib import Path

import click
import pytest
from tests.client.certificates import Authority

from wharfinger.bench.commands import apiserver
from wharfinger.bench.commands.apiserver import ServerLoad


def test_a_server_that_accepts_no_connections_ends_the_run_with_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apiserver, "_STALL", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as listener:  # it never answers a TLS handshake
        kubeconfig = tmp_path / "kubeconfig"
        authority = b64encode(Authority().pem).decode()
        cluster = {"server": f"https://127.0.0.1:{listener.getsockname()[1]}", "certificate-authority-data": authority}
        kubeconfig.write_text(json.dumps({"clusters": [{"cluster": cluster}], "users": [{"user": {"token": "t"}}]}))
        with pytest.raises(click.ClickException, match="no more than 0 of 3 connections"):
            apiserver.run(kubeconfig, ServerLoad(pods=1, connections=3, watchers=0))
