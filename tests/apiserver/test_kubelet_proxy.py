"""Connections to kubelets, with a server in their place that says what it was asked. `tests/real_node` has real ones."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.apiserver.running import Answer, Api, pod, serving

from wharfinger.apiserver.client_certificates import issue_client

Handle = Callable[[bytes, ssl.SSLSocket], None]


class FakeKubelet:
    """Accepts connections with certificates of the API server's authority, and answers each with `handle`."""

    def __init__(self, api: Api, folder: Path, handle: Handle) -> None:
        pki = api.kubeconfig.parent / "pki"
        own = issue_client(pki, "kubelet")  # kubelets sign their own certificates; any will do
        (folder / "k.crt").write_bytes(own.certificate)
        (folder / "k.key").write_bytes(own.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "k.crt", folder / "k.key")
        context.load_verify_locations(pki / "ca.crt")
        context.verify_mode = ssl.CERT_REQUIRED
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._handle = handle
        self.clients: list[str] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                raw, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(raw,), daemon=True).start()

    def _answer(self, raw: socket.socket) -> None:
        try:
            connection = self._context.wrap_socket(raw, server_side=True)
        except (ssl.SSLError, OSError):
            return
        with connection:
            subject = dict(pair for part in connection.getpeercert()["subject"] for pair in part)  # type: ignore[index, misc, union-attr]
            self.clients.append(subject["commonName"])
            head = b""
            while b"\r\n\r\n" not in head and (data := connection.recv(65536)):
                head += data
            self._handle(head, connection)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # ends the call of accept
        self._listener.close()


@pytest.fixture
def place(api: Api, namespace: str, base: str, tmp_path: Path) -> Callable[[Handle], FakeKubelet]:
    """Makes the node of pod `p` one with this kubelet."""

    def make(handle: Handle) -> FakeKubelet:
        kubelet = FakeKubelet(api, tmp_path, handle)
        name = f"node-{namespace}"
        status = {
            "addresses": [{"type": "Hostname", "address": "nowhere.invalid"}, {"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.port}},
        }  # fmt: skip
        api.create("/api/v1/nodes", {"metadata": {"name": name}, "status": status})
        api.create(f"{base}/pods", pod("p", nodeName=name))
        return kubelet

    return make


def respond(status: str, body: bytes, media: str = "text/plain") -> Handle:
    def handle(head: bytes, connection: ssl.SSLSocket) -> None:
        answer = f"HTTP/1.1 {status}\r\nContent-Type: {media}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        connection.sendall(answer + body)

    return handle


def test_logs_come_from_the_kubelet(
    api: Api, namespace: str, base: str, place: Callable[[Handle], FakeKubelet]
) -> None:
    asked: list[bytes] = []

    def handle(head: bytes, connection: ssl.SSLSocket) -> None:
        asked.append(head)
        respond("200 OK", b"one\ntwo\n")(head, connection)

    kubelet = place(handle)
    answer = api.ask("GET", f"{base}/pods/p/log?tailLines=5&timestamps=true")
    assert (answer.status, answer.data, answer.headers["content-type"]) == (200, b"one\ntwo\n", "text/plain")
    line = asked[0].splitlines()[0]
    assert line == f"GET /containerLogs/{namespace}/p/c?stream=All&tailLines=5&timestamps=true HTTP/1.1".encode()
    assert b"authorization" not in asked[0].lower()
    assert kubelet.clients == ["system:wharfinger:kubelet-client"]


@pytest.mark.parametrize(
    ("status", "code", "reason", "prefix"),
    [
        ("400 Bad Request", 400, "BadRequest", ""),
        ("404 Not Found", 404, "NotFound", ""),
        ("500 Internal Server Error", 500, "InternalError", "Internal error occurred: "),
    ],
)
def test_errors_of_the_kubelet_become_a_status(
    api: Api, base: str, place: Callable[[Handle], FakeKubelet], status: str, code: int, reason: str, prefix: str
) -> None:
    place(respond(status, b"the container is waiting to start"))
    answer = api.ask("GET", f"{base}/pods/p/log")
    assert (answer.status, answer.json["reason"]) == (code, reason)
    assert answer.message == f"{prefix}the container is waiting to start"


def test_a_kubelet_that_does_not_answer_is_reported(
    api: Api, namespace: str, base: str, place: Callable[[Handle], FakeKubelet]
) -> None:
    kubelet = place(respond("200 OK", b""))
    kubelet.close()
    answer = api.ask("GET", f"{base}/pods/p/log")
    where = f"127.0.0.1:{kubelet.port}"
    assert answer.status == 500
    assert answer.message == (
        f'Get "https://{where}/containerLogs/{namespace}/p/c?stream=All": dial tcp {where}: connect: connection refused'
    )
    with upgraded(api, f"{base}/pods/p/exec?command=ls") as connection:
        said = received(connection)
    assert said.startswith(b"HTTP/1.1 500 ")
    assert json.loads(said.partition(b"\r\n\r\n")[2])["message"] == (
        f"error dialing backend: dial tcp {where}: connect: connection refused"
    )


def test_following_a_log_ends_when_the_client_leaves(
    api: Api, base: str, place: Callable[[Handle], FakeKubelet]
) -> None:
    ended = threading.Event()

    def handle(head: bytes, connection: ssl.SSLSocket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nfirst\n\r\n")
        assert connection.recv(1) == b""  # closed by the API server
        ended.set()

    place(handle)
    connection = api.connect()
    connection.request("GET", f"{base}/pods/p/log?follow=true", headers=api.head())
    assert connection.getresponse().readline() == b"first\n"
    connection.close()
    assert ended.wait(20)


@contextmanager
def upgraded(api: Api, path: str) -> Iterator[ssl.SSLSocket]:
    """A connection on which an upgrade to SPDY was asked for."""
    connection = api.connect()
    connection.connect()
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: x",
        f"Authorization: Bearer {api.token}",
        "Connection: Upgrade",
        "Upgrade: SPDY/3.1",
        "X-Stream-Protocol-Version: v5.channel.k8s.io",
        "X-Stream-Protocol-Version: v4.channel.k8s.io",
        "Content-Length: 0",
    ]
    sock: ssl.SSLSocket = connection.sock  # type: ignore[assignment]
    sock.sendall("\r\n".join(lines).encode() + b"\r\n\r\n")
    try:
        yield sock
    finally:
        connection.close()


def received(connection: ssl.SSLSocket, end: bytes = b"") -> bytes:
    """What arrives until these bytes, or until the server closes."""
    data = b""
    while not (end and data.endswith(end)):
        try:
            more = connection.recv(65536)
        except ssl.SSLEOFError:
            return data
        if not more:
            return data
        data += more
    return data


def test_exec_joins_both_connections(
    api: Api, namespace: str, base: str, place: Callable[[Handle], FakeKubelet]
) -> None:
    heads: list[bytes] = []
    large = b"x" * 3_000_000 + b"end"

    def handle(head: bytes, connection: ssl.SSLSocket) -> None:
        heads.append(head)
        connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: SPDY/3.1\r\n\r\nhello ")
        assert received(connection, b"question") == b"question"
        connection.sendall(large)

    place(handle)
    with upgraded(api, f"{base}/pods/p/exec?command=ls&command=-l&stdin=true&stdout=true") as connection:
        head = received(connection, b"hello ")
        assert head.startswith(b"HTTP/1.1 101 ")
        connection.sendall(b"question")
        assert received(connection) == large
    asked = heads[0].split(b"\r\n")
    assert asked[0] == f"POST /exec/{namespace}/p/c?command=ls&command=-l&input=1&output=1 HTTP/1.1".encode()
    versions = [line for line in asked if line.lower().startswith(b"x-stream-protocol-version")]
    assert [line.rpartition(b" ")[2] for line in versions] == [b"v5.channel.k8s.io", b"v4.channel.k8s.io"]
    assert not any(line.lower().startswith(b"authorization") for line in asked)


def test_a_refused_upgrade_is_passed_on(api: Api, base: str, place: Callable[[Handle], FakeKubelet]) -> None:
    place(respond("403 Forbidden", b"unable to upgrade"))
    with upgraded(api, f"{base}/pods/p/exec?command=ls") as connection:
        said = received(connection)
    assert said.startswith(b"HTTP/1.1 403 ") and said.endswith(b"unable to upgrade")


def test_exec_needs_an_upgrade(api: Api, base: str, place: Callable[[Handle], FakeKubelet]) -> None:
    place(respond("200 OK", b""))
    answer = api.ask("POST", f"{base}/pods/p/exec?command=ls")
    assert (answer.status, answer.message) == (400, "Upgrade request required")


def test_a_connection_ends_with_its_client(api: Api, base: str, place: Callable[[Handle], FakeKubelet]) -> None:
    ended = threading.Event()

    def handle(head: bytes, connection: ssl.SSLSocket) -> None:
        connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
        received(connection)
        ended.set()

    place(handle)
    with upgraded(api, f"{base}/pods/p/attach") as connection:
        assert received(connection, b"\r\n\r\n").startswith(b"HTTP/1.1 101 ")
    assert ended.wait(20)


# The subresource proxy


def test_proxying_to_local_addresses_is_refused(api: Api, namespace: str, base: str, place: Callable[[Handle], FakeKubelet]) -> None:  # fmt: skip
    place(respond("200 OK", b"ok"))
    answer = api.ask("GET", f"/api/v1/nodes/node-{namespace}/proxy/healthz")
    assert (answer.status, answer.message) == (400, "address not allowed")
    assert api.ask("GET", f"/api/v1/nodes/ftp:node-{namespace}:1/proxy/").message.startswith("invalid node request")
    api.ask("PATCH", f"{base}/pods/p/status", {"status": {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}}, media="application/merge-patch+json")  # fmt: skip
    answer = api.ask("GET", f"{base}/pods/p:80/proxy/")
    assert (answer.status, answer.message) == (400, "address not allowed")


def test_what_is_simulated_has_no_proxy(api: Api, namespace: str, base: str) -> None:
    name = f"sim-{namespace}"
    api.create("/api/v1/nodes", {"metadata": {"name": name, "labels": {"wharfinger.dev/simulated": "true"}}})
    api.create(f"{base}/pods", pod("p", nodeName=name))
    answer = api.ask("GET", f"/api/v1/nodes/{name}/proxy/metrics")
    assert (answer.status, answer.message) == (400, f"node {name} is simulated, so it has no kubelet")
    answer = api.ask("GET", f"{base}/pods/p/proxy/")
    assert (answer.status, answer.message) == (400, f"node {name} is simulated, so no container of pod p runs")
    assert api.ask("GET", f"{base}/pods/nosuch/proxy/").status == 404


def outside_address() -> str | None:
    """An address of this machine that is not a loopback address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
            found: str = probe.getsockname()[0]
        except OSError:
            return None
    return None if found.startswith("127.") else found


def test_pods_and_services_are_proxied(api: Api, namespace: str, base: str) -> None:
    address = outside_address()
    if address is None:
        pytest.skip("this machine has no address but that of its loopback interface")
    asked: list[bytes] = []
    listener = socket.create_server((address, 0))
    port = listener.getsockname()[1]

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                head = connection.recv(65536)
                asked.append(head)
                length = b"HTTP/1.1 418 I'm a teapot\r\nX-Kind: pot\r\nContent-Length: 3\r\n\r\ntea"
                connection.sendall(length)

    threading.Thread(target=serve, daemon=True).start()
    api.create(f"{base}/pods", pod("p", nodeName=f"real-{namespace}"))
    addresses = {"status": {"podIP": address, "podIPs": [{"ip": address}]}}
    api.ask("PATCH", f"{base}/pods/p/status", addresses, media="application/merge-patch+json")

    def check(answer: Answer, line: bytes) -> None:
        assert (answer.status, answer.data, answer.headers["x-kind"]) == (418, b"tea", "pot")
        assert asked[-1].splitlines()[0] == line
        assert b"authorization" not in asked[-1].lower()

    check(api.ask("GET", f"{base}/pods/p:{port}/proxy/a%20b/?q=1"), b"GET /a%20b/?q=1 HTTP/1.1")
    check(api.ask("DELETE", f"{base}/pods/p:{port}/proxy"), b"DELETE / HTTP/1.1")
    api.create(f"{base}/services", {"metadata": {"name": "s"}, "spec": {"ports": [{"name": "http", "port": 80}]}})
    endpoints = {"metadata": {"name": "s"}}
    made = api.ask("POST", f"{base}/endpoints", endpoints)
    assert made.status in (201, 409)
    answer = api.ask("GET", f"{base}/services/s:http/proxy/")
    assert (answer.status, answer.message) == (503, 'no endpoints available for service "s"')
    target = {"kind": "Pod", "name": "p", "namespace": namespace}
    subsets = [{"addresses": [{"ip": address, "targetRef": target}], "ports": [{"name": "http", "port": port}]}]
    api.ask("PATCH", f"{base}/endpoints/s", {"subsets": subsets}, media="application/merge-patch+json")
    check(api.ask("GET", f"{base}/services/s:http/proxy/x"), b"GET /x HTTP/1.1")
    check(api.ask("GET", f"{base}/services/s:80/proxy/x"), b"GET /x HTTP/1.1")
    answer = api.ask("GET", f"{base}/services/s:81/proxy/x")
    assert (answer.status, answer.message) == (503, 'no service port 81 found for service "s"')
    listener.close()


def test_proxied_connections_end_with_the_server(tmp_path: Path) -> None:
    def handle(head: bytes, connection: ssl.SSLSocket) -> None:
        connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
        received(connection)

    with ExitStack() as stack:
        with serving(tmp_path / "d") as api:
            kubelet = FakeKubelet(api, tmp_path, handle)
            endpoint = {"kubeletEndpoint": {"Port": kubelet.port}}
            status = {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}], "daemonEndpoints": endpoint}
            api.create("/api/v1/nodes", {"metadata": {"name": "n"}, "status": status})
            api.create("/api/v1/namespaces/default/pods", pod("p", nodeName="n"))
            connection = stack.enter_context(upgraded(api, "/api/v1/namespaces/default/pods/p/attach"))
            assert received(connection, b"\r\n\r\n").startswith(b"HTTP/1.1 101 ")
        assert received(connection) == b""
