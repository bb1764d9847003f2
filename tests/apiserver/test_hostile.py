"""Hostile and malformed input: always a response, never a stack trace, and the server keeps running."""

from __future__ import annotations

import json
import random
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.apiserver.running import Api, config_map, pod

BODIES: list[tuple[str, bytes]] = [
    ("empty", b""),
    ("not JSON", b"{"),
    ("text", b'"pod"'),
    ("number", b"7"),
    ("null", b"null"),
    ("list", b"[]"),
    ("not UTF-8", b'{"kind":"\xff\xfe"}'),
    ("lone surrogate", b'{"metadata":{"name":"\\ud800"}}'),
    ("zero byte", b"\x00" * 100),
    ("deep list", b"[" * 100_000),
    ("deep object", b'{"a":' * 50_000 + b"1" + b"}" * 50_000),
    ("deep inside", b'{"spec":{"affinity":' * 3000 + b"1" + b"}}" * 3000),
    ("metadata is text", b'{"metadata":"x"}'),
    ("name is a number", b'{"metadata":{"name":7}}'),
    ("kind is a list", b'{"kind":[],"metadata":{"name":"a"}}'),
    ("huge number", b'{"metadata":{"name":"a","generation":' + b"9" * 5000 + b"}}"),
    (
        "bad quantity",
        json.dumps(
            pod("q", containers=[{"name": "c", "image": "i", "resources": {"limits": {"cpu": "lots"}}}])
        ).encode(),
    ),
    (
        "references that grow",
        b"a: &a [x, x, x, x, x, x, x, x]\n"
        + b"".join(
            b"%c: &%c [*%c, *%c, *%c, *%c, *%c, *%c, *%c, *%c]\n" % ((n + 1, n + 1) + (n,) * 8) for n in range(97, 110)
        ),
    ),
    ("name with slash", b'{"metadata":{"name":"../../etc"}}'),
]


@pytest.mark.parametrize("media", ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"])
@pytest.mark.parametrize(("case", "body"), BODIES, ids=[case for case, _ in BODIES])
def test_a_malformed_pod_gets_a_status(api: Api, base: str, case: str, body: bytes, media: str) -> None:
    answer = api.ask("POST", f"{base}/pods", body, media=media)
    assert 400 <= answer.status < 500, answer.data
    assert answer.message


JSON_PATCH, STRATEGIC_PATCH = "application/json-patch+json", "application/strategic-merge-patch+json"


@pytest.mark.parametrize("media", [JSON_PATCH, "application/merge-patch+json", STRATEGIC_PATCH])
@pytest.mark.parametrize(("case", "body"), BODIES, ids=[case for case, _ in BODIES])
def test_a_malformed_patch_gets_a_status(api: Api, base: str, case: str, body: bytes, media: str) -> None:
    before = api.create(f"{base}/pods", pod())
    answer = api.ask("PATCH", f"{base}/pods/p", body, media=media)
    nothing = (("list", JSON_PATCH), ("null", JSON_PATCH), ("null", STRATEGIC_PATCH))
    if (case, media) in nothing:  # a patch that changes nothing
        assert answer.status == 200
        return
    assert 400 <= answer.status < 500, answer.data
    assert answer.message
    assert api.get(f"{base}/pods/p") == before


def test_random_protobuf_gets_a_status(api: Api, base: str) -> None:
    source = random.Random(7)
    envelope = b"k8s\x00\n\x09\n\x02v1\x12\x03Pod\x12"
    for _ in range(60):
        body = envelope + source.randbytes(source.randrange(1, 80))
        answer = api.ask("POST", f"{base}/pods?dryRun=All", body, media="application/vnd.kubernetes.protobuf")
        assert answer.status < 500, body


QUERIES = [
    "limit=x", "limit=-1", "continue=garbage", "continue=%00", "timeoutSeconds=soon&watch=1", "labelSelector=%FF%FE", "fieldSelector=%3D",
    "resourceVersion=-1", "resourceVersion=1e9", "&".join(f"a{n}=1" for n in range(500)), "labelSelector=" + "a%2C" * 2000,
]  # fmt: skip


@pytest.mark.parametrize("query", QUERIES, ids=[query[:30] for query in QUERIES])
def test_malformed_query_parameters_get_a_status(api: Api, base: str, query: str) -> None:
    answer = api.ask("GET", f"{base}/pods?{query}")
    assert 400 <= answer.status < 500, answer.data
    assert answer.message


@pytest.mark.parametrize(
    "path",
    ["//", "/api//v1", "/api/v1/namespaces//pods", "/%00", "/api/v1/namespaces/%2e%2e/pods/x", "/apis/a/b/c/d/e/f/g/h"],
)
def test_an_unusual_path_gets_a_response(api: Api, path: str) -> None:
    assert api.ask("GET", path).status in (200, 404, 405)


def test_a_too_large_body_is_rejected(api: Api, base: str) -> None:
    answer = api.ask("POST", f"{base}/configmaps", config_map("big", text="x" * (3 * 1024 * 1024)))
    assert (answer.status, answer.json["reason"]) == (413, "RequestEntityTooLarge")
    assert answer.message == "Request entity too large: limit is 3145728"


def test_a_too_large_chunked_body_is_rejected(api: Api, base: str) -> None:
    connection = api.connect()
    chunks = (b"x" * 65536 for _ in range(60))
    connection.request(
        "POST", f"{base}/configmaps", chunks, api.head({"Content-Type": "application/json"}), encode_chunked=True
    )
    assert connection.getresponse().status == 413
    connection.close()


def raw(api: Api, data: bytes) -> bytes:
    """What the server says to bytes that need not be HTTP."""
    host, _, port = api.server.removeprefix("https://").rpartition(":")
    context = ssl._create_unverified_context()
    with socket.create_connection((host, int(port)), timeout=10) as plain, context.wrap_socket(plain) as secure:
        secure.sendall(data)
        secure.settimeout(10)
        try:
            return secure.recv(4096)
        except (TimeoutError, ConnectionError):
            return b""


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01garbage\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /api HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n",
        b"POST /api/v1/namespaces HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /api HTTP/1.1\r\nAuthorization: Bearer \xff\xfe\r\nHost: a\r\n\r\n",
    ],
)
def test_data_that_is_not_http_is_harmless(api: Api, data: bytes) -> None:
    answer = raw(api, data)
    assert not answer or answer.startswith(b"HTTP/1.1 4")
    assert api.ask("GET", "/healthz").data == b"ok"


def test_plain_http_on_the_tls_port_is_harmless(api: Api) -> None:
    host, _, port = api.server.removeprefix("https://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
        plain.settimeout(10)
        plain.recv(100)
    assert api.ask("GET", "/healthz").data == b"ok"


def test_concurrent_writes_of_one_object_are_not_lost(api: Api, base: str) -> None:
    api.create(f"{base}/configmaps", config_map("c"))

    def add(number: int) -> int:
        patch = {"data": {f"k{number}": "v"}}
        return api.ask("PATCH", f"{base}/configmaps/c", patch, media="application/merge-patch+json").status

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(add, range(40))) == {200}
    assert len(api.get(f"{base}/configmaps/c")["data"]) == 40


def test_a_watch_that_is_not_read_does_not_block_others(api: Api, base: str) -> None:
    connection = api.connect()
    connection.request("GET", f"{base}/configmaps?watch=1", headers=api.head())
    connection.getresponse()
    done: list[Any] = []

    def write() -> None:
        for number in range(20):
            done.append(api.ask("POST", f"{base}/configmaps", config_map(f"big{number}", text="x" * 200_000)).status)

    thread = threading.Thread(target=write)
    thread.start()
    thread.join(60)
    connection.close()
    assert done == [201] * 20


def test_warnings_are_bounded(api: Api, base: str) -> None:
    unknown = {f"nosuch{number}": 1 for number in range(500)}
    answer = api.ask("POST", f"{base}/configmaps", {"metadata": {"name": "many"}, **unknown})
    assert answer.status == 201
    assert 0 < len(answer.warnings) <= 50
    long = {f"{'x' * 900}{number}": 1 for number in range(9)}
    answer = api.ask("POST", f"{base}/configmaps", {"metadata": {"name": "long"}, **long})
    assert answer.status == 201
    assert sum(map(len, answer.warnings)) < 5000
