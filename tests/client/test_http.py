"""The HTTP client over a real socket: requests, decoded responses and errors, retries, watches."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.client.scripted import pod
from tests.client.servers import Reply, Request, Script, Server

from wharfinger.api import errors
from wharfinger.api.kinds.builtin import CLUSTER_ROLES, NODES, PODS
from wharfinger.api.requests import PatchType
from wharfinger.api.views import Node, Pod
from wharfinger.client import http
from wharfinger.client.access import ClusterAccess, FixedCredentials, Impersonation
from wharfinger.client.fence import FencedClient
from wharfinger.client.http import HttpClient
from wharfinger.client.interface import EventType
from wharfinger.client.leases import NotLeading
from wharfinger.client.pool import PooledTransport
from wharfinger.client.transport import AiohttpTransport

Call = Callable[[HttpClient], Awaitable[Any]]


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "RETRY_BASE", 0.001)


def talk(
    script: Script, *calls: Call, access: dict[str, Any] | None = None, **options: Any
) -> tuple[Server, list[Any]]:
    """Runs calls one after another; an exception is a result too."""

    async def main() -> tuple[Server, list[Any]]:
        async with Server(script) as server:
            client = HttpClient(ClusterAccess(server.url, **(access or {})), **options)
            results: list[Any] = []
            for call in calls:
                try:
                    results.append(await call(client))
                except errors.ApiError as error:
                    results.append(error)
            await client.close()
            return server, results

    return asyncio.run(main())


async def echo(request: Request, reply: Reply) -> None:
    await reply.answer(200, {"kind": "Pod", "metadata": {"name": "x"}})


def answers(*scripted: tuple[int, Any] | tuple[int, Any, dict[str, str]]) -> Script:
    """Sends these responses in turn, and repeats the last one."""
    left = list(scripted)

    async def script(request: Request, reply: Reply) -> None:
        await reply.answer(*(left.pop(0) if len(left) > 1 else left[0]))

    return script


def status(code: int, reason: str, **more: Any) -> dict[str, Any]:
    return {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": reason, **more}


@pytest.mark.parametrize(
    ("call", "method", "path", "query", "body"),
    [
        (lambda c: c.get(PODS, "a", "ns"), "GET", "/api/v1/namespaces/ns/pods/a", {}, None),
        (lambda c: c.get(NODES, "n", subresource="status"), "GET", "/api/v1/nodes/n/status", {}, None),
        (
            lambda c: c.get(CLUSTER_ROLES, "system:a/b"),
            "GET",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:a%2Fb",
            {},
            None,
        ),
        (
            lambda c: c.create(PODS, {"target": {"name": "n"}}, "ns", name="a", subresource="binding"),
            "POST",
            "/api/v1/namespaces/ns/pods/a/binding",
            {"fieldManager": "wharfinger"},
            {"target": {"name": "n"}},
        ),
        (
            lambda c: c.create(PODS, {"metadata": {"name": "a", "namespace": "own"}}, dry_run=True),
            "POST",
            "/api/v1/namespaces/own/pods",
            {"fieldManager": "wharfinger", "dryRun": "All"},
            {"metadata": {"name": "a", "namespace": "own"}},
        ),
        (
            lambda c: c.update(PODS, {"metadata": {"name": "a"}}, "ns", subresource="status"),
            "PUT",
            "/api/v1/namespaces/ns/pods/a/status",
            {"fieldManager": "wharfinger"},
            {"metadata": {"name": "a"}},
        ),
        (
            lambda c: c.patch(PODS, "a", {"x": 1}, "ns", type=PatchType.APPLY, field_manager="m", force=True),
            "PATCH",
            "/api/v1/namespaces/ns/pods/a",
            {"fieldManager": "m", "force": "true"},
            {"x": 1},
        ),
        (
            lambda c: c.delete(
                PODS, "a", "ns", grace_period=0, propagation="Foreground", uid="u", resource_version="7", dry_run=True
            ),
            "DELETE",
            "/api/v1/namespaces/ns/pods/a",
            {},
            {
                "kind": "DeleteOptions",
                "apiVersion": "v1",
                "gracePeriodSeconds": 0,
                "propagationPolicy": "Foreground",
                "preconditions": {"uid": "u", "resourceVersion": "7"},
                "dryRun": ["All"],
            },
        ),
        (
            lambda c: c.delete_collection(PODS, "ns", label_selector="a in (b, c)"),
            "DELETE",
            "/api/v1/namespaces/ns/pods",
            {"labelSelector": "a in (b, c)"},
            None,
        ),
    ],
)
def test_requests(call: Call, method: str, path: str, query: dict[str, str], body: Any) -> None:
    server, _ = talk(echo, call)
    (request,) = server.requests
    assert (request.method, request.path, request.query) == (method, path, query)
    assert (request.json() if request.body else None) == body


def test_headers_contain_user_agent_and_impersonation() -> None:
    access = {
        "credentials": FixedCredentials("secret"),
        "impersonate": Impersonation("jane", groups=("dev", "ops"), extra={"scopes": ("view",)}),
    }
    patch: Call = lambda c: c.patch(PODS, "a", [], "ns", type=PatchType.JSON)  # noqa: E731
    server, _ = talk(echo, patch, access=access, component="scheduler")
    sent = server.requests[0].all_headers
    assert ("Authorization", "Bearer secret") in sent
    assert [value for name, value in sent if name == "Impersonate-Group"] == ["dev", "ops"]
    assert ("Impersonate-User", "jane") in sent and ("Impersonate-Extra-scopes", "view") in sent
    headers = server.requests[0].headers
    assert headers["user-agent"].startswith("wharf/") and headers["user-agent"].endswith(" scheduler")
    assert headers["content-type"] == "application/json-patch+json"


@pytest.mark.parametrize("name", [".", ".."])
def test_a_name_cannot_change_the_path(name: str) -> None:
    server, results = talk(echo, lambda c: c.get(PODS, name, "ns"))
    assert isinstance(results[0], errors.BadRequest) and not server.requests


def test_lists_are_decoded_into_views_and_documents_get_their_kind() -> None:
    document = {
        "kind": "PodList",
        "metadata": {"resourceVersion": "42", "continue": "more"},
        "items": [pod("a", labels={"x": "y"}) | {"apiVersion": None, "kind": None}, {"metadata": {"name": "b"}}],
    }
    document["items"][0].pop("apiVersion"), document["items"][0].pop("kind")  # as API servers leave them out
    server, (views, documents) = talk(
        answers((200, document)),
        lambda c: c.list(PODS, "ns", view=Pod, label_selector="x=y", field_selector="spec.nodeName=n", limit=2),
        lambda c: c.list(PODS, continue_token="more", resource_version="0"),
    )
    assert [item.metadata.name for item in views.items] == ["a", "b"]
    assert (views.resource_version, views.continue_token) == ("42", "more")
    assert [item["kind"] for item in documents.items] == ["Pod", "Pod"] and documents.items[0]["apiVersion"] == "v1"
    assert server.requests[0].query == {"labelSelector": "x=y", "fieldSelector": "spec.nodeName=n", "limit": "2"}
    assert server.requests[1].query == {"continue": "more", "resourceVersion": "0"}


@pytest.mark.parametrize("items", [None, []])
def test_an_empty_list_may_be_null(items: Any) -> None:
    _, (page,) = talk(answers((200, {"metadata": {"resourceVersion": "1"}, "items": items})), lambda c: c.list(PODS))
    assert list(page.items) == []


def test_null_fields_count_as_absent() -> None:
    odd = {"metadata": {"name": "n", "labels": None}, "spec": {"taints": None}}
    _, (node, page) = talk(
        answers((200, odd), (200, {"metadata": {}, "items": [odd]})),
        lambda c: c.get(NODES, "n", view=Node),
        lambda c: c.list(NODES, view=Node),
    )
    assert node.metadata.labels == {} and page.items[0].metadata.name == "n"


@pytest.mark.parametrize(
    ("code", "body", "kind", "message"),
    [
        (404, status(404, "NotFound"), errors.NotFound, "NotFound"),
        (409, status(409, "AlreadyExists"), errors.AlreadyExists, "AlreadyExists"),
        (409, status(409, "Conflict"), errors.Conflict, "Conflict"),
        (410, status(410, "Gone"), errors.Expired, "Gone"),
        (422, status(422, "Invalid"), errors.Invalid, "Invalid"),
        (403, b"<html>no</html>", errors.Forbidden, "the server answered 403: <html>no</html>"),
        (302, b"", errors.ApiError, "the server answered 302"),
        (200, b"not json", errors.InternalError, "cannot decode the server's response"),
    ],
)
def test_errors(code: int, body: Any, kind: type[Exception], message: str) -> None:
    server, (error,) = talk(answers((code, body)), lambda c: c.get(PODS, "a", "ns"))
    assert type(error) is kind and str(error).startswith(message)
    assert len(server.requests) == 1


def test_an_unreachable_server_is_unavailable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"

        async def main() -> None:
            client = HttpClient(ClusterAccess(url))
            with pytest.raises(errors.ServiceUnavailable, match=f"cannot connect to {url}: "):
                await client.create(PODS, pod("a"))
            with pytest.raises(errors.ServiceUnavailable, match=f"cannot connect to {url}: "):
                async for _ in client.watch(PODS, view=Pod, resource_version="1"):
                    raise AssertionError("nothing can come")
            await client.close()

        asyncio.run(main())


class TestRetries:
    get: Call = staticmethod(lambda c: c.get(PODS, "a", "ns"))
    create: Call = staticmethod(lambda c: c.create(PODS, pod("a")))
    evict: Call = staticmethod(lambda c: c.create(PODS, {}, "ns", name="a", subresource="eviction"))

    @pytest.mark.parametrize(
        ("call", "first", "requests", "good"),
        [
            (get, (503, status(503, "ServiceUnavailable")), 2, True),
            (create, (503, status(503, "ServiceUnavailable")), 1, False),
            (create, (503, status(503, "ServiceUnavailable"), {"Retry-After": "0"}), 2, True),
            (create, (429, status(429, "TooManyRequests"), {"Retry-After": "0"}), 2, True),
            (create, (429, status(429, "TooManyRequests", details={"retryAfterSeconds": 0})), 2, True),
            (create, (429, status(429, "TooManyRequests")), 2, True),
            (evict, (429, status(429, "TooManyRequests"), {"Retry-After": "0"}), 1, False),
            (create, (500, status(500, "InternalError"), {"Retry-After": "0"}), 2, True),
            (get, (500, status(500, "InternalError")), 1, False),
            (create, (409, status(409, "Conflict"), {"Retry-After": "0"}), 1, False),
        ],
        ids=[
            "a read when unavailable",
            "not a write when unavailable",
            "a write when told to come back",
            "a write when throttled",
            "a write when throttled in the body",
            "a write when throttled without a time",
            "not an eviction against a budget",
            "an error with a time",
            "not an error without",
            "never a conflict",
        ],
    )
    def test_which_requests_are_retried(self, call: Call, first: Any, requests: int, good: bool) -> None:
        server, (result,) = talk(answers(first, (200, pod("a"))), call)
        assert len(server.requests) == requests
        assert isinstance(result, dict) is good

    def test_retry_after_is_respected(self) -> None:
        async def main() -> None:
            async with Server(
                answers((429, status(429, "TooManyRequests"), {"Retry-After": "1"}), (200, {}))
            ) as server:
                client = HttpClient(ClusterAccess(server.url))
                before = asyncio.get_running_loop().time()
                await client.get(PODS, "a", "ns")
                assert asyncio.get_running_loop().time() - before >= 1
                await client.close()

        asyncio.run(main())

    def test_retries_on_request_are_limited(self) -> None:
        server, (error,) = talk(answers((429, status(429, "TooManyRequests"), {"Retry-After": "0"})), self.create)
        assert isinstance(error, errors.TooManyRequests) and len(server.requests) == 1 + http.RETRIES_ON_REQUEST

    @pytest.mark.parametrize(("call", "requests"), [(get, 2), (create, 1)], ids=["a read again", "a write not"])
    def test_a_connection_lost_in_the_middle_of_an_answer(self, call: Call, requests: int) -> None:
        async def script(request: Request, reply: Reply) -> None:
            if len(server_requests) == 0:
                server_requests.append(request)
                reply.writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"half')
                await reply.writer.drain()
                reply.drop()
            else:
                await reply.answer(200, pod("a"))

        server_requests: list[Request] = []
        server, (result,) = talk(script, call)
        assert len(server.requests) == requests
        assert isinstance(result, dict if requests == 2 else errors.ServiceUnavailable)

    def test_a_server_that_does_not_answer_in_time(self) -> None:
        async def silence(request: Request, reply: Reply) -> None:
            await asyncio.sleep(60)

        _, (error,) = talk(silence, self.create, timeout=0.05)
        assert isinstance(error, errors.ServiceUnavailable) and "no answer" in str(error)


def test_concurrent_requests_are_limited() -> None:
    under_way, most = 0, 0

    async def script(request: Request, reply: Reply) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.01)
        under_way -= 1
        await reply.answer(200, {})

    async def many(client: HttpClient) -> None:
        await asyncio.gather(*(client.get(PODS, f"p{i}", "ns") for i in range(20)))

    server, _ = talk(script, many, in_flight=3)
    assert most == 3 and len(server.requests) == 20


@pytest.mark.parametrize("transport", [PooledTransport, AiohttpTransport])
def test_open_watches_leave_connections_for_requests_and_other_watches(transport: Any) -> None:
    watching = 0

    async def script(request: Request, reply: Reply) -> None:
        nonlocal watching
        if request.query.get("watch"):
            watching += 1
            await reply.begin()
            await asyncio.sleep(30)
        else:
            await reply.answer(200, {})

    async def main() -> None:
        async with Server(script) as server:
            access = ClusterAccess(server.url)
            opened = transport(access, connections=2)
            async with AsyncExitStack() as streams:
                for number in range(120):
                    await streams.enter_async_context(opened.stream(f"/api/v1/pods?watch=true&n={number}", (), 60))
                answer = await opened.request("GET", "/api/v1/pods", (), None, 10)
                assert (watching, answer.status) == (120, 200)
            await opened.close()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_a_fenced_write_is_not_retried_after_the_term_ended() -> None:
    """The check must hold when the request is sent, not when the caller made it."""
    leading = True

    def check() -> None:
        if not leading:
            raise NotLeading("lost")

    async def script(request: Request, reply: Reply) -> None:
        nonlocal leading
        leading = False  # the lease expires while the client waits for its retry
        await reply.status(429, "TooManyRequests", headers={"Retry-After": "0"})

    async def write(client: HttpClient) -> None:
        await FencedClient(client, check).create(PODS, pod("a"))

    async def read(client: HttpClient) -> Any:
        return await FencedClient(client, check).get(PODS, "a", "ns")

    server, (refused, answer) = talk(script, write, read)
    assert isinstance(refused, NotLeading)
    assert [request.method for request in server.requests[:2]] == ["POST", "GET"], "reads pass"
    assert isinstance(answer, errors.TooManyRequests)


@pytest.mark.parametrize("transport", [PooledTransport, AiohttpTransport])
@pytest.mark.parametrize("connected", [False, True], ids=["a new connection", "a used connection"])
def test_a_fenced_write_is_not_sent_when_the_term_ends_while_it_waits_for_a_connection(
    transport: Any, connected: bool
) -> None:
    leading, asked = True, asyncio.Event()

    def check() -> None:
        if not leading:
            raise NotLeading("lost")

    async def script(request: Request, reply: Reply) -> None:
        asked.set()
        await asyncio.sleep(0.02)
        await reply.answer(200, {})

    async def main() -> None:
        nonlocal leading
        async with Server(script) as server:
            access = ClusterAccess(server.url)
            client = HttpClient(access, transport=transport(access, connections=1))
            if connected:
                holder = asyncio.create_task(client.get(PODS, "a", "ns"))
                await asked.wait()
            write = asyncio.create_task(FencedClient(client, check).create(PODS, pod("a")))
            await asyncio.sleep(0)  # it has passed the first check and waits for a connection
            leading = False
            with pytest.raises(NotLeading):
                await write
            if connected:
                await holder
            assert (await client.get(PODS, "b", "ns")) == {}, "the connection is as good as before"
            assert [request.method for request in server.requests] == ["GET"] * (1 + connected)
            await client.close()

    asyncio.run(asyncio.wait_for(main(), 30))


class TestWatch:
    def watch(self, script: Script, **options: Any) -> tuple[Server, list[Any]]:
        """All events, and the error at the end if there is one."""

        async def collect(client: HttpClient) -> list[Any]:
            found: list[Any] = []
            try:
                async for event in client.watch(PODS, "ns", view=Pod, resource_version="7", label_selector="a=b"):
                    found.append(event)
            except errors.ApiError as error:
                found.append(error)
            return found

        server, (found,) = talk(script, collect, **options)
        return server, found

    def test_events_and_bookmarks(self) -> None:
        async def script(request: Request, reply: Reply) -> None:
            await reply.begin()
            await reply.event("ADDED", {"metadata": {"name": "a", "resourceVersion": "8"}})
            await reply.event("BOOKMARK", {"metadata": {"resourceVersion": "12"}})
            ended = {"k8s.io/initial-events-end": "true"}
            await reply.event("BOOKMARK", {"metadata": {"resourceVersion": "13", "annotations": ended}})
            await reply.event("DELETED", {"metadata": {"name": "a", "resourceVersion": "14", "labels": None}})
            await reply.end()

        server, found = self.watch(script)
        assert [(event.type.value, event.resource_version, event.initial_events_end) for event in found] == [
            ("ADDED", "8", False),
            ("BOOKMARK", "12", False),
            ("BOOKMARK", "13", True),
            ("DELETED", "14", False),
        ]
        assert found[0].object.metadata.name == "a" and found[1].object is None
        query = server.requests[0].query
        assert 300 <= int(query.pop("timeoutSeconds")) <= 600
        assert query == {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": "7",
            "labelSelector": "a=b",
        }

    @pytest.mark.parametrize("size", [1, 7, 1 << 16])
    def test_lines_may_be_cut_anywhere_and_be_of_any_length(self, size: int) -> None:
        long = "x" * (300_000 if size > 100 else 300)
        lines = b"".join(
            json.dumps({"type": "ADDED", "object": {"metadata": {"name": name, "resourceVersion": "9"}}}).encode() + end
            for name, end in (("a", b"\n"), (long, b"\r\n"), ("b", b"\n\n"))
        )

        async def script(request: Request, reply: Reply) -> None:
            await reply.begin()
            for start in range(0, len(lines), size):
                await reply.chunk(lines[start : start + size])
            await reply.end()

        _, found = self.watch(script)
        assert [event.object.metadata.name for event in found] == ["a", long, "b"]

    @pytest.mark.parametrize("cut", ["drop", "end"])
    def test_an_incomplete_line_at_the_end_is_dropped(self, cut: str) -> None:
        async def script(request: Request, reply: Reply) -> None:
            await reply.begin()
            await reply.event("ADDED", {"metadata": {"name": "a", "resourceVersion": "8"}})
            await reply.chunk(b'{"type":"ADDED","object":{"meta')
            if cut == "end":
                await reply.end()
            else:
                reply.writer.close()

        _, found = self.watch(script)
        assert [event.type for event in found] == [EventType.ADDED]

    def test_an_error_event_raises(self) -> None:
        async def script(request: Request, reply: Reply) -> None:
            await reply.begin()
            await reply.event("ERROR", status(410, "Expired"))
            await reply.end()

        _, found = self.watch(script)
        assert type(found[-1]) is errors.Expired

    def test_a_rejected_watch_raises(self) -> None:
        _, found = self.watch(answers((410, status(410, "Gone"))))
        assert type(found[-1]) is errors.Expired

    @pytest.mark.parametrize(
        "line", [b"nonsense\n", b'{"type":"ODD","object":{}}\n', b'{"type":"ADDED","object":{"metadata":7}}\n']
    )
    def test_undecodable_events_are_errors(self, line: bytes) -> None:
        async def script(request: Request, reply: Reply) -> None:
            await reply.begin()
            await reply.chunk(line)
            await reply.end()

        _, found = self.watch(script)
        assert type(found[-1]) is errors.InternalError

    def test_a_silent_watch_ends(self) -> None:
        async def script(request: Request, reply: Reply) -> None:
            await reply.begin()
            await reply.event("ADDED", {"metadata": {"name": "a", "resourceVersion": "8"}})
            await asyncio.sleep(60)

        _, found = self.watch(script, watch_inactivity=0.1)
        assert [event.type for event in found] == [EventType.ADDED]


def test_warnings_of_the_server_are_passed_on() -> None:
    async def script(request: Request, reply: Reply) -> None:
        data = b'{"metadata": {"name": "a"}}'
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(data)}\r\nContent-Type: application/json\r\n"
        head += 'Warning: 299 - "spec.a: say \\"b\\" instead"\r\nWarning: 299 - "one, two"\r\n\r\n'
        reply.writer.write(head.encode() + data)
        await reply.writer.drain()

    told: list[str] = []
    talk(script, lambda c: c.create(PODS, {"metadata": {"name": "a"}}, "ns"), on_warning=told.append)
    assert told == ['spec.a: say "b" instead', "one, two"]
