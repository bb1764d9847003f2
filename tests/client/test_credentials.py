"""Credentials on the wire: TLS, client certificates, rotating tokens, plugins."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.client.certificates import Authority
from tests.client.servers import Reply, Request, Server

from wharfinger.api.errors import ApiError, ServiceUnavailable, Unauthorized
from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.views import Pod
from wharfinger.client.access import (
    Certificate,
    ClusterAccess,
    ExecCredentials,
    ExecPlugin,
    FileCredentials,
    FixedCredentials,
)
from wharfinger.client.http import HttpClient
from wharfinger.client.transport import AiohttpTransport, Response, Transport, TransportError

AUTHORITY = Authority()
V1 = "client.authentication.k8s.io/v1"


async def good(request: Request, reply: Reply) -> None:
    if request.query.get("watch"):
        await reply.begin()
        await reply.event("BOOKMARK", {"metadata": {"resourceVersion": "9"}})
        await reply.end()
    else:
        await reply.answer(200, {"metadata": {"name": "a"}})


async def watch_once(client: HttpClient) -> list[str]:
    return [event.resource_version async for event in client.watch(PODS, view=Pod, resource_version="1")]


TRANSPORTS: list[Callable[[ClusterAccess], Transport | None]] = [lambda access: None, AiohttpTransport]


@pytest.mark.parametrize("transport", TRANSPORTS, ids=["pool", "aiohttp"])
@pytest.mark.parametrize(
    ("hosts", "address", "access", "wrong"),
    [
        ((), "127.0.0.1", {"ca": AUTHORITY.pem}, ""),
        (("api.example",), "", {"ca": AUTHORITY.pem, "server_name": "api.example"}, ""),
        ((), "", {"insecure": True}, ""),
        (("api.example",), "", {"ca": AUTHORITY.pem}, "certificate verify failed"),
        ((), "127.0.0.1", {}, "certificate verify failed"),
        ((), "127.0.0.1", {"ca": b"nonsense"}, "is not a PEM certificate"),
    ],
    ids=["trusted", "another name", "insecure", "wrong name", "unknown authority", "bad authority"],
)
def test_tls(
    tmp_path: Path, transport: Any, hosts: tuple[str, ...], address: str, access: dict[str, Any], wrong: str
) -> None:
    async def main() -> None:
        pair = AUTHORITY.issue("server", hosts=hosts, address=address)
        async with Server(good, tls=AUTHORITY.server_context(tmp_path, pair)) as server:
            way = ClusterAccess(server.url, **access)
            client = HttpClient(way, transport=transport(way))
            try:
                if wrong:
                    with pytest.raises(ServiceUnavailable, match=wrong):
                        await client.get(PODS, "a", "ns")
                    with pytest.raises(ServiceUnavailable, match=wrong):
                        await watch_once(client)
                else:
                    assert (await client.get(PODS, "a", "ns"))["metadata"]["name"] == "a"
                    assert await watch_once(client) == ["9"]
            finally:
                await client.close()

    asyncio.run(main())


@pytest.mark.parametrize(("final", "tries"), [(True, 1), (False, 4)], ids=["a bad certificate", "no connection"])
def test_final_errors_are_not_retried(final: bool, tries: int) -> None:
    class Failing:
        asked = 0

        async def request(self, *_: Any) -> Response:
            self.asked += 1
            raise TransportError("no", sent=False, final=final)

    transport = Failing()
    with pytest.raises(ServiceUnavailable):
        asyncio.run(HttpClient(ClusterAccess("https://host"), transport=transport).get(PODS, "a", "ns"))
    assert transport.asked == tries


def test_a_rotated_client_certificate_opens_new_connections(tmp_path: Path) -> None:
    class Rotating(FixedCredentials):
        name = "first"

        async def certificate(self) -> Certificate | None:
            return pairs[self.name]

    pairs = {
        name: Certificate(pair.certificate, pair.key)
        for name in ("first", "second")
        for pair in [AUTHORITY.issue(name)]
    }

    async def main() -> None:
        pair = AUTHORITY.issue("server", address="127.0.0.1")
        async with Server(good, tls=AUTHORITY.server_context(tmp_path, pair, ask_client=True)) as server:
            credentials = Rotating()
            client = HttpClient(ClusterAccess(server.url, ca=AUTHORITY.pem, credentials=credentials))
            for name in ("first", "first", "second"):
                credentials.name = name
                await client.get(PODS, "a", "ns")
            await client.close()
            shown = [dict(part[0] for part in peer["subject"])["commonName"] for peer in server.peer_certificates]
            assert shown == ["first", "second"], "one connection for each certificate"

    asyncio.run(main())


def test_a_rotated_token_file_is_read_again_after_a_minute_or_a_401(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one\n")
    now = 0.0
    accepted = {"one"}

    async def script(request: Request, reply: Reply) -> None:
        if request.headers["authorization"].removeprefix("Bearer ") in accepted:
            await reply.answer(200, {})
        else:
            await reply.status(401, "Unauthorized")

    async def main() -> None:
        nonlocal now
        async with Server(script) as server:
            credentials = FileCredentials(token_file=file, steady=lambda: now)
            client = HttpClient(ClusterAccess(server.url, credentials=credentials))

            async def ask() -> str:
                await client.create(PODS, {}, "ns")
                return server.requests[-1].headers["authorization"]

            assert await ask() == "Bearer one"
            file.write_text("two")
            accepted.add("two")
            assert await ask() == "Bearer one", "still trusted"
            now += 61
            assert await ask() == "Bearer two"
            file.write_text("three")
            accepted.clear()
            accepted.add("three")
            assert await ask() == "Bearer three", "refused, read again, and sent again"
            accepted.clear()
            before = len(server.requests)
            with pytest.raises(Unauthorized):
                await ask()
            assert len(server.requests) == before + 1, "nothing better to send"
            file.unlink()
            accepted.add("three")
            now += 61
            assert await ask() == "Bearer three", "a file that is gone for a moment does no harm"
            await client.close()

    asyncio.run(main())


def plugin(directory: Path, body: str) -> str:
    """A credential plugin written in Python; `count` is the number of its runs."""
    file = directory / "plugin"
    file.write_text(
        f"#!{sys.executable}\nimport json, os, sys, pathlib\n"
        f"log = pathlib.Path({str(directory / 'runs')!r})\n"
        "count = len(log.read_text()) if log.exists() else 0\nlog.write_text('x' * (count + 1))\n"
        "def give(**status):\n"
        f"    print(json.dumps({{'apiVersion': {V1!r}, 'kind': 'ExecCredential', 'status': status}}))\n" + body
    )
    file.chmod(0o755)
    return str(file)


def runs(directory: Path) -> int:
    return len((directory / "runs").read_text())


class SetClock:
    time = 1_700_000_000.0

    def now(self) -> float:
        return self.time


def test_a_plugin_runs_again_only_when_its_token_expires_or_is_rejected(tmp_path: Path) -> None:
    command = plugin(tmp_path, "give(token=f'token-{count}', expirationTimestamp='2023-11-14T22:23:20Z')")
    clock = SetClock()

    async def main() -> None:
        refuse: list[str] = []

        async def script(request: Request, reply: Reply) -> None:
            if request.headers["authorization"] in refuse:
                await reply.status(401, "Unauthorized")
            else:
                await reply.answer(200, {})

        async with Server(script) as server:
            credentials = ExecCredentials(ExecPlugin(V1, command, interactive_mode="Never"), clock)
            client = HttpClient(ClusterAccess(server.url, credentials=credentials))
            await asyncio.gather(*(client.get(PODS, f"p{i}", "ns") for i in range(10)))
            assert {request.headers["authorization"] for request in server.requests} == {"Bearer token-0"}
            assert runs(tmp_path) == 1
            refuse.append("Bearer token-0")
            await client.create(PODS, {}, "ns")
            assert server.requests[-1].headers["authorization"] == "Bearer token-1"
            clock.time += 601
            await client.get(PODS, "a", "ns")
            assert server.requests[-1].headers["authorization"] == "Bearer token-2"
            await client.close()

    asyncio.run(main())


def test_a_plugin_receives_cluster_info_arguments_and_environment(tmp_path: Path) -> None:
    command = plugin(
        tmp_path,
        "info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
        "give(token='|'.join([info['apiVersion'], info['spec']['cluster']['server'], str(info['spec']['interactive']),"
        " sys.argv[1], os.environ['ZONE'], sys.stdin.read()]))",
    )
    made = ExecPlugin(V1, command, ("--x",), {"ZONE": "north"}, "", "Never", {"server": "https://host"})
    assert asyncio.run(ExecCredentials(made).token()) == f"{V1}|https://host|False|--x|north|"


def test_a_plugin_may_return_a_certificate(tmp_path: Path) -> None:
    pair = AUTHORITY.issue("plugin")
    (tmp_path / "pair.json").write_text(
        json.dumps({"clientCertificateData": pair.certificate.decode(), "clientKeyData": pair.key.decode()})
    )
    command = plugin(tmp_path, f"give(**json.load(open({str(tmp_path / 'pair.json')!r})))")

    async def main() -> None:
        server_pair = AUTHORITY.issue("server", address="127.0.0.1")
        async with Server(good, tls=AUTHORITY.server_context(tmp_path, server_pair, ask_client=True)) as server:
            credentials = ExecCredentials(ExecPlugin(V1, command, interactive_mode="Never"))
            client = HttpClient(ClusterAccess(server.url, ca=AUTHORITY.pem, credentials=credentials))
            await client.get(PODS, "a", "ns")
            await client.close()
            assert "authorization" not in server.requests[0].headers
            assert server.peer_certificates[0]["subject"] == ((("commonName", "plugin"),),)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("sys.exit(3)", "failed with exit code 3"),
        ("print('hello')", "printed no ExecCredential"),
        ("print(json.dumps({'apiVersion': 'v9', 'kind': 'ExecCredential'}))", f"use API version {V1}, returned v9"),
        (f"print(json.dumps({{'apiVersion': {V1!r}, 'kind': 'ExecCredential'}}))", "returned no status field"),
        ("give()", "returned neither a token nor a certificate"),
        ("give(clientKeyData='x')", "returned only certificate or key, not both"),
        ("give(token='x', expirationTimestamp='tomorrow')", "status.expirationTimestamp: invalid time"),
    ],
)
def test_failures_of_a_plugin_are_reported(tmp_path: Path, body: str, message: str) -> None:
    made = ExecPlugin(V1, plugin(tmp_path, body), interactive_mode="Never")
    with pytest.raises(Unauthorized) as caught:
        asyncio.run(ExecCredentials(made).token())
    assert str(caught.value).startswith("getting credentials: exec: ") and message in str(caught.value)


def test_the_error_for_a_missing_plugin_contains_its_install_hint() -> None:
    made = ExecPlugin(V1, "no-such-plugin", install_hint="brew install it", interactive_mode="Never")
    with pytest.raises(Unauthorized, match=r"(?s)no-such-plugin cannot be run: .*brew install it"):
        asyncio.run(ExecCredentials(made).token())


@pytest.mark.skipif(os.isatty(0), reason="needs a standard input that is no terminal")
def test_a_plugin_that_needs_a_terminal_is_not_run_without_one() -> None:
    with pytest.raises(Unauthorized, match="needs a terminal"):
        asyncio.run(ExecCredentials(ExecPlugin(V1, "x", interactive_mode="Always")).token())


@pytest.mark.parametrize("value", ["a\nImpersonate-User: root", "a\r\n\r\nGET / HTTP/1.1"])
def test_a_token_cannot_inject_a_header(value: str) -> None:
    async def main() -> None:
        async with Server(good) as server:
            client = HttpClient(ClusterAccess(server.url, credentials=FixedCredentials(value)), retries=0)
            calls: list[Awaitable[Any]] = [client.get(PODS, "a", "ns"), watch_once(client)]
            for call in calls:
                with pytest.raises(ApiError):
                    await call
            assert not server.requests
            await client.close()

    asyncio.run(main())
