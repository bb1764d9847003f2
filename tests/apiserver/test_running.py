"""The server process: files, restarts, `wharf up` and `wharf status`."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.apiserver.running import Api, config_map, environment, serving

from wharfinger.apiserver.server import ApiServerSettings, CannotServe, listen

WHARF = [sys.executable, "-m", "wharfinger.cli.main"]


def wharf(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*WHARF, *arguments], capture_output=True, text=True, timeout=60, env=environment())


def test_a_restart_keeps_authority_tokens_and_data(tmp_path: Path) -> None:
    with serving(tmp_path / "d") as api:
        api.create("/api/v1/namespaces/default/configmaps", config_map("kept", a="b"))
        account = api.create("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "bot"}})
        token = api.create("/api/v1/namespaces/default/serviceaccounts/bot/token", {})["status"]["token"]
        before = (api.token, (tmp_path / "d/pki/ca.crt").read_bytes())
    with serving(tmp_path / "d") as api:
        assert (api.token, (tmp_path / "d/pki/ca.crt").read_bytes()) == before
        assert api.get("/api/v1/namespaces/default/configmaps/kept")["data"] == {"a": "b"}
        mine = Api(api.kubeconfig, token).ask("GET", "/api/v1/namespaces/default/pods")
        assert "system:serviceaccount:default:bot" in mine.message
        assert (
            api.get("/api/v1/namespaces/default/serviceaccounts/bot")["metadata"]["uid"] == account["metadata"]["uid"]
        )


def test_files_are_private(tmp_path: Path) -> None:
    directory = tmp_path / "d"
    directory.mkdir(mode=0o755)
    with serving(directory) as api:
        api.create("/api/v1/namespaces/default/configmaps", config_map("c"))
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        for path in directory.rglob("*"):
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_default_roles_are_restored_unless_autoupdate_is_off(tmp_path: Path) -> None:
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    merge = "application/merge-patch+json"
    with serving(tmp_path / "d") as api:
        wanted = api.get(f"{roles}/system:discovery")["rules"]
        extra = {"nonResourceURLs": ["/extra"], "verbs": ["get"]}
        api.ask("PATCH", f"{roles}/system:discovery", {"rules": [extra]}, media=merge)
        mine = {"rules": [], "metadata": {"annotations": {"rbac.authorization.kubernetes.io/autoupdate": "false"}}}
        api.ask("PATCH", f"{roles}/system:monitoring", mine, media=merge)
        api.ask("DELETE", f"{roles}/system:basic-user")
    with serving(tmp_path / "d") as api:
        assert api.get(f"{roles}/system:discovery")["rules"] == [extra, *wanted]
        assert not api.get(f"{roles}/system:monitoring").get("rules")
        assert api.get(f"{roles}/system:basic-user")["rules"]


@pytest.mark.parametrize("host", ["0.0.0.0", "example.com", "::", "192.168.1.1"])
def test_only_loopback_is_served(tmp_path: Path, host: str) -> None:
    with pytest.raises(CannotServe, match=re.escape(host)):
        listen(ApiServerSettings(tmp_path, host, 0))


def test_a_port_or_directory_in_use_is_reported(tmp_path: Path) -> None:
    with serving(tmp_path / "d") as api:
        port = api.server.rpartition(":")[2]
        done = wharf("apiserver", "--data-dir", str(tmp_path / "e"), "--port", port)
        assert done.returncode == 1
        assert f"cannot listen on 127.0.0.1:{port}" in done.stderr
        done = wharf("apiserver", "--data-dir", str(tmp_path / "d"), "--port", "0")
        assert done.returncode == 1
        assert "Traceback" not in done.stderr


def test_added_tokens_are_accepted_and_malformed_lines_reported(tmp_path: Path) -> None:
    directory = tmp_path / "d"
    directory.mkdir()
    (directory / "tokens.csv").write_text('secret-1,alice,,"devs,ops"\n')
    with serving(directory) as api:
        answer = Api(api.kubeconfig, "secret-1").ask("GET", "/api/v1/pods")
        assert 'User "alice" cannot list' in answer.message
    (directory / "tokens.csv").write_text("only-a-token\n")
    done = wharf("apiserver", "--data-dir", str(directory), "--port", "0")
    assert done.returncode == 1
    assert "tokens.csv:1" in done.stderr


def wait_for(check: Any, seconds: float = 30) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found


def status(directory: Path) -> Any:
    return json.loads(wharf("status", "--data-dir", str(directory), "-o", "json").stdout)


def test_up_runs_restarts_and_stops_everything(tmp_path: Path) -> None:
    directory = tmp_path / "d"
    out = tmp_path / "out"
    with out.open("w") as file:
        command = [*WHARF, "up", "--data-dir", str(directory), "--port", "0", "--nodes", "1"]
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment(), start_new_session=True)
    try:
        wait_for(lambda: "Ctrl-C stops everything" in out.read_text())
        text = out.read_text()
        assert f"export KUBECONFIG={directory}/kubeconfig" in text
        api = Api(directory / "kubeconfig")
        assert f"Wharfinger is up on {api.server}" in text
        api.create("/api/v1/namespaces/default/configmaps", config_map("kept"))

        second = wharf("up", "--data-dir", str(directory))
        assert second.returncode == 1
        assert f"`wharf up` already runs on {directory} (process {process.pid})" in second.stderr

        report = status(directory)
        assert report["running"]
        assert report["address"] == api.server
        last = report["components"][-1]
        os.kill(last["pid"], signal.SIGSTOP)
        half = wait_for(lambda: (found := status(directory))["components"][-1]["state"] == "suspended" and found)
        assert not half["healthy"]
        os.kill(last["pid"], signal.SIGCONT)
        server = report["components"][0]
        os.kill(server["pid"], signal.SIGKILL)
        wait_for(lambda: "apiserver ended (signal SIGKILL)" in out.read_text())
        again = wait_for(
            lambda: next((one for one in status(directory)["components"] if one["restarts"] == 1 and one["pid"]), None)
        )
        assert (again["name"], again["lastExit"]) == ("apiserver", "signal SIGKILL")
        wait_for(lambda: status(directory)["apiserver"] == "ok")
        assert api.get("/api/v1/namespaces/default/configmaps/kept")
        pids = [one["pid"] for one in status(directory)["components"] if one["pid"]]
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)
    assert process.returncode == 0
    assert "Stopped." in out.read_text()
    events = [json.loads(line) for line in (directory / "logs" / "audit.log").read_text().splitlines()]
    created = [
        event for event in events if event.get("objectRef", {}).get("name") == "kept" and event["verb"] == "create"
    ]
    assert [(event["level"], event["user"]["username"]) for event in created] == [("Metadata", "system:admin")]
    assert not any(event["verb"] == "watch" and event["user"]["username"] != "system:admin" for event in events)
    for pid in pids:
        assert not Path(f"/proc/{pid}").exists()
    stopped = wharf("status", "--data-dir", str(directory))
    assert stopped.returncode == 1
    assert stopped.stdout.startswith(f"Nothing runs on {directory}.")


def nodes_of_up(directory: Path, *options: str, expected: list[str]) -> None:
    """Starts `wharf up`, waits until the nodes have these names, adds one by hand, and stops it."""
    out = directory.parent / "out"
    with out.open("w") as file:
        command = [*WHARF, "up", "--data-dir", str(directory), "--port", "0", *options]
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment(), start_new_session=True)
    try:
        wait_for(lambda: "Ctrl-C stops everything" in out.read_text())
        api = Api(directory / "kubeconfig")
        wait_for(lambda: [node["metadata"]["name"] for node in api.get("/api/v1/nodes")["items"]] == expected)
        mine = {"metadata": {"name": "mine", "labels": {"wharfinger.dev/simulated": "true"}}}
        assert api.ask("POST", "/api/v1/nodes", mine).status in (201, 409)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


def test_up_remembers_the_number_of_nodes(tmp_path: Path) -> None:
    nodes_of_up(tmp_path / "d", "--nodes", "2", expected=["node-1", "node-2"])
    nodes_of_up(tmp_path / "d", "--nodes", "1", expected=["mine", "node-1"])
    nodes_of_up(tmp_path / "d", expected=["mine", "node-1"])


def test_up_reports_configuration_errors(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("kind: WharfingerConfiguration\nreservatoin: {}\n")
    done = wharf("up", "--data-dir", str(tmp_path / "d"), "--config", str(config))
    assert done.returncode == 2
    assert "reservatoin: unknown field" in done.stderr
    assert not (tmp_path / "d").exists()
