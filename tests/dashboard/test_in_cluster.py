"""The dashboard as `wharf install` runs it: with a service account of its own, for callers with tokens."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.apiserver.running import environment
from tests.dashboard.conftest import WHARF, Caller, Up, until

from wharfinger.install.roles import cluster_rules


@pytest.fixture(scope="module")
def installed(up: Up, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    """Somebody without credentials, at a dashboard with exactly the rights that are installed."""
    folder = tmp_path_factory.mktemp("installed")
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    role = {"metadata": {"name": "installed"}, "rules": cluster_rules("dashboard", (), "")}
    binding = {
        "metadata": {"name": "installed"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "installed"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}],
    }
    up.api.create(f"{rbac}/clusterroles", role)
    up.api.create(f"{rbac}/clusterrolebindings", binding)
    token = up.api.create("/api/v1/namespaces/default/serviceaccounts/default/token", {})["status"]["token"]
    config = json.loads((up.directory / "kubeconfig").read_text())
    config["users"][0]["user"] = {"token": token}
    kubeconfig, out = folder / "kubeconfig", folder / "out"
    kubeconfig.write_text(json.dumps(config))
    command = [*WHARF, "dashboard", "--kubeconfig", str(kubeconfig), "--tokens-only"]
    with out.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment(), start_new_session=True)
    try:
        found = until(lambda: re.search(r"Dashboard: (http://\S+);", out.read_text()) or process.poll())
        assert isinstance(found, re.Match), out.read_text()
        yield Caller(found[1])
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def test_the_installed_rights_suffice_and_the_caller_s_count(up: Up, installed: Caller) -> None:
    admin = Caller(installed.address, token=up.api.token)
    until(lambda: admin.get("/api/session")["ready"], "the cluster is loaded")
    session = admin.get("/api/session")
    assert (session["user"], session["explains"], session["notRead"]) == ("system:admin", True, [])
    assert admin.get("/api/explain/sample/report")["refused"][0]["plugin"] == "NodeAffinity"
    stranger = up.caller("tenant", "view")
    told = Caller(installed.address, token=stranger.token).get("/api/overview")
    assert told["counts"]["nodes"] == told["counts"]["pods"] == 0


def test_there_is_no_link(installed: Caller) -> None:
    assert installed.ask("/open?token=").headers["location"] == "/login?used"
    assert installed.ask("/login", {"token": "wrong"}).status == 401


def test_a_link_must_not_travel_over_a_network(up: Up) -> None:
    command = [*WHARF, "dashboard", "--kubeconfig", str(up.directory / "kubeconfig"), "--host", "0.0.0.0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment())
    assert done.returncode == 2 and "--tokens-only" in done.stderr


def test_a_cluster_that_does_not_answer_is_named(tmp_path: Path) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    command = [*WHARF, "dashboard", "--kubeconfig", str(tmp_path / "kubeconfig")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment())
    assert done.returncode == 1 and "127.0.0.1:1" in done.stderr
