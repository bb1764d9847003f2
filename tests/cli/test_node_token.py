"""`wharf node-token` with a running API server: its files let a kubelet in."""

from __future__ import annotations

import json
import ssl
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.apiserver.running import Api, serving

from wharfinger.cli.main import wharf

REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with serving(tmp_path_factory.mktemp("data")) as served:
        yield served


def run(api: Api, *arguments: str) -> Result:
    return CliRunner().invoke(wharf, ["node-token", "--data-dir", str(api.kubeconfig.parent), *arguments])


def user_of(kubeconfig: Path, folder: Path) -> dict[str, Any]:
    """Who the server says the user of a kubeconfig is."""
    credentials = json.loads(kubeconfig.read_text())["users"][0]["user"]
    client = Api(kubeconfig, credentials.get("token", ""))
    if "client-key-data" in credentials:
        for part in ("certificate", "key"):
            (folder / part).write_bytes(b64decode(credentials[f"client-{part}-data"]))
        context: ssl.SSLContext = client._context
        context.load_cert_chain(folder / "certificate", folder / "key")
    info: dict[str, Any] = client.create(REVIEW, {})["status"]["userInfo"]
    return info


def test_a_named_node_gets_a_certificate(api: Api, tmp_path: Path) -> None:
    result = run(api, "worker-1")
    assert result.exit_code == 0, result.output
    folder = api.kubeconfig.parent / "kubelets" / "worker-1"
    assert f"--kubeconfig={folder / 'kubelet.kubeconfig'}" in result.output
    assert "--hostname-override=worker-1" in result.output
    info = user_of(folder / "kubelet.kubeconfig", tmp_path)
    assert info["username"] == "system:node:worker-1"
    assert info["groups"] == ["system:nodes", "system:authenticated"]
    settings = json.loads((folder / "kubelet.json").read_text())
    assert settings["kind"] == "KubeletConfiguration"
    assert Path(settings["authentication"]["x509"]["clientCAFile"]).read_bytes() == (folder / "ca.crt").read_bytes()
    assert settings["authentication"]["anonymous"] == {"enabled": False}
    assert {file.stat().st_mode & 0o077 for file in folder.iterdir()} == {0}  # nobody else reads them


def test_any_node_gets_a_bootstrap_token(api: Api, tmp_path: Path) -> None:
    result = run(api, "--output", str(tmp_path / "out"), "--ttl", "1h", "--runtime-endpoint", "unix:///x.sock")
    assert result.exit_code == 0, result.output
    assert f"--bootstrap-kubeconfig={tmp_path / 'out' / 'bootstrap.kubeconfig'}" in result.output
    assert not (tmp_path / "out" / "kubelet.kubeconfig").exists()  # the kubelet writes it
    info = user_of(tmp_path / "out" / "bootstrap.kubeconfig", tmp_path)
    assert info["username"].startswith("system:bootstrap:")
    assert json.loads((tmp_path / "out" / "kubelet.json").read_text())["containerRuntimeEndpoint"] == "unix:///x.sock"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["Not_A_Name"], 2, "'Not_A_Name' is not a node name"),
        (["n" * 53], 2, "a certificate has room for 52 characters"),
        (["--ttl", "soon"], 2, "soon"),
        (["--ttl", "0s"], 2, "must be more than 0"),
    ],
)
def test_bad_input_is_refused(api: Api, tmp_path: Path, arguments: list[str], code: int, message: str) -> None:
    result = run(api, "--output", str(tmp_path / "out"), *arguments)
    assert result.exit_code == code
    assert message in result.output
    assert not (tmp_path / "out").exists()


def test_a_control_plane_must_have_been_started(tmp_path: Path) -> None:
    result = CliRunner().invoke(wharf, ["node-token", "--data-dir", str(tmp_path)])
    assert result.exit_code == 1
    assert "no `wharf up` has been started" in result.output
