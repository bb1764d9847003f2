"""A running API server for tests: started like users start it, and called over HTTPS with the standard library only."""

from __future__ import annotations

import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
import uuid
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    data: bytes
    warnings: list[str] = field(default_factory=list)

    @property
    def json(self) -> Any:
        return json.loads(self.data)

    @property
    def message(self) -> str:
        document = self.json
        assert document["kind"] == "Status", document
        assert document["code"] == self.status
        return str(document["message"])


class Api:
    """A client of one user."""

    def __init__(self, kubeconfig: Path, token: str | None = None) -> None:
        self.kubeconfig = kubeconfig
        config = json.loads(kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        self.server: str = cluster["server"]
        self.token = config["users"][0]["user"]["token"] if token is None else token
        self._context = ssl.create_default_context(cadata=b64decode(cluster["certificate-authority-data"]).decode())

    def connect(self, timeout: float = 30) -> http.client.HTTPSConnection:
        host, _, port = self.server.removeprefix("https://").rpartition(":")
        return http.client.HTTPSConnection(host, int(port), context=self._context, timeout=timeout)

    def head(self, headers: dict[str, str] | None = None) -> dict[str, str]:
        made = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return {**made, **(headers or {})}

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, *, media: str = ""
    ) -> Answer:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        made = self.head(headers)
        if data is not None:
            made.setdefault("Content-Type", media or "application/json")
        connection = self.connect()
        try:
            connection.request(method, path, data, made)
            response = connection.getresponse()
            warnings = response.headers.get_all("Warning") or []
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read(), warnings)
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Any:
        answer = self.ask("GET", path, headers={key.replace("_", "-"): value for key, value in headers.items()})
        assert answer.status == 200, answer.data
        return answer.json

    def create(self, path: str, body: Any) -> Any:
        answer = self.ask("POST", path, body)
        assert answer.status == 201, answer.data
        return answer.json

    def namespace(self) -> str:
        name = f"t-{uuid.uuid4().hex[:10]}"
        self.create("/api/v1/namespaces", {"metadata": {"name": name}})
        return name

    @contextmanager
    def watch(self, path: str, headers: dict[str, str] | None = None) -> Iterator[Iterator[Any]]:
        """The events of a watch, as they come."""
        connection = self.connect(timeout=15)
        try:
            connection.request("GET", path, headers=self.head(headers))
            response = connection.getresponse()
            assert response.status == 200, response.read()
            yield (json.loads(line) for line in iter(response.readline, b""))
        finally:
            connection.close()


@contextmanager
def serving(directory: Path, *arguments: str) -> Iterator[Api]:
    """`wharf apiserver` on a free port, until the block ends."""
    command = [sys.executable, "-m", "wharfinger.cli.main", "apiserver", "--data-dir", str(directory), "--port", "0"]
    process = subprocess.Popen(
        [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    )
    try:
        assert process.stdout is not None and process.stderr is not None
        for line in process.stdout:
            if line.startswith("export KUBECONFIG="):
                break
        else:
            raise AssertionError(process.stderr.read())
        yield Api(directory / "kubeconfig")
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src")}


def pod(name: str = "p", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "test"}},
        "spec": {"containers": [{"name": "c", "image": "nginx"}], **spec},
    }


def config_map(name: str = "c", **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
