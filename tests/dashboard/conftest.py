"""A control plane with the sample and its dashboard, started once for all tests of the folder."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest
from tests.apiserver.running import Api, environment

WHARF = [sys.executable, "-m", "wharfinger.cli.main"]
SECONDS = 90.0


def until(condition: Callable[[], Any], what: str = "", seconds: float = SECONDS) -> Any:
    """Polls until the condition holds and returns its value."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds:g} s: {what or condition}")


@dataclass(slots=True)
class Answer:
    status: int
    headers: Any
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any) -> None:
        return None


@dataclass(slots=True)
class Caller:
    """Somebody who calls the endpoints, with a cookie or a token."""

    address: str
    cookie: str = ""
    token: str = ""

    def ask(self, path: str, body: Any = None, *, method: str = "", **headers: str) -> Answer:
        sent = {"x-wharf-request": "1", **{name.replace("_", "-"): value for name, value in headers.items()}}
        if self.cookie:
            sent.setdefault("cookie", f"wharf-session={self.cookie}")
        if self.token:
            sent["authorization"] = f"Bearer {self.token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.address}{path}", data, sent, method=method or None)
        try:
            response: HTTPResponse = urllib.request.build_opener(_NoRedirects).open(request, timeout=60)
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.headers, error.read())
        with response:
            return Answer(response.status, response.headers, response.read())

    def get(self, path: str) -> Any:
        answer = self.ask(path)
        assert answer.status == 200, answer.body
        return answer.json


@dataclass(slots=True)
class Up:
    directory: Path
    api: Api
    address: str

    def link(self) -> str:
        return (self.directory / "dashboard-link").read_text().strip()

    def open(self) -> Caller:
        """A caller with a session of a fresh link."""
        link = self.link()
        answer = Caller(self.address).ask(link.removeprefix(self.address))
        assert answer.status == 303, answer.body
        found = re.search(r"wharf-session=([^;]+)", answer.headers["set-cookie"])
        assert found is not None
        return Caller(self.address, found[1])

    def caller(self, namespace: str, role: str) -> Caller:
        """A service account with a cluster role in one namespace only."""
        name = f"{role}-{namespace}"
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        self.api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        self.api.ask("POST", accounts, {"metadata": {"name": name}})
        binding = {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        }
        self.api.ask("POST", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings", binding)
        token = self.api.create(f"{accounts}/{name}/token", {})["status"]["token"]
        return Caller(self.address, token=token)


def _settled(caller: Caller) -> bool:
    """Whether the scheduler and the controllers have done what the sample makes them do."""
    waiting = caller.get("/api/waiting")["pods"]
    owners = [row["owners"] for row in caller.get("/api/promises")["reservations"] if row["name"] == "sample-checkout"]
    units = [unit["count"] for policy in caller.get("/api/units")["policies"] for unit in policy["units"]]
    fleet = caller.get("/api/fleet")["placements"]
    events = caller.get("/api/overview")["events"]
    return (
        len(waiting) == 3
        and all(row["message"] for row in waiting)
        and owners == [["sample/checkout"]]
        and units == [2, 2]
        and bool(fleet and fleet[0]["decided"])
        and {"FailedCreate", "Preempted"} <= {event["reason"] for event in events}
    )


@pytest.fixture(scope="session")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    directory = tmp_path_factory.mktemp("dashboard")
    data, out = directory / "d", directory / "out"
    with out.open("w") as file:
        command = [*WHARF, "up", "--data-dir", str(data), "--port", "0", "--sample"]
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment(), start_new_session=True)
    try:
        found = until(
            lambda: re.search(r"(http://127\.0\.0\.1:\d+)/open\?token=\S+", out.read_text()) or process.poll()
        )
        assert isinstance(found, re.Match), out.read_text()
        made = Up(data, Api(data / "kubeconfig"), found[1])
        caller = made.open()
        until(lambda: caller.get("/api/session")["ready"], "the dashboard has loaded the cluster")
        until(lambda: _settled(caller), "the sample is as it will be")
        yield made
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


@pytest.fixture(scope="session")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where screenshots are kept."""
    kept = os.environ.get("CI_ARTIFACTS")
    folder = Path(kept) / "dashboard" if kept else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
