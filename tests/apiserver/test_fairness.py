"""Fair shares: one user cannot keep others out, whatever it sends."""

from __future__ import annotations

import asyncio
import json
import select
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tests.apiserver.running import Api, config_map, serving
from tests.apiserver.test_access import grant, until

from wharfinger.api.errors import TooManyRequests
from wharfinger.apiserver.fairness import Fairness, FairnessLimits
from wharfinger.http.connections import NOBODY, Connections
from wharfinger.http.metrics import CounterSeries


def fairness(**limits: Any) -> Fairness:
    rejected = CounterSeries("rejected_total", "", ("reason",), CollectorRegistry())
    return Fairness(FairnessLimits(**limits), rejected)


def take(fair: Fairness, user: str) -> asyncio.Task[None] | None:
    """A request of the user: None if it has its seat, else the wait for it."""
    flow = fair.flow(user)
    return asyncio.ensure_future(fair.wait(user, flow)) if fair.must_wait(flow) else None


def test_a_user_waits_for_its_own_requests_only() -> None:
    async def main() -> None:
        fair = fairness(seats=8)  # a share is 2
        assert [take(fair, "greedy"), take(fair, "greedy")] == [None, None]
        third = take(fair, "greedy")
        assert third is not None
        assert take(fair, "other") is None
        await asyncio.sleep(0)
        assert (fair.inflight, fair.queued) == (3, 1)
        fair.release(fair.flow("other"))
        await asyncio.sleep(0)
        assert not third.done()
        fair.release(fair.flow("greedy"))
        await third
        assert (fair.inflight, fair.flow("greedy").inflight, fair.queued) == (2, 2, 0)

    asyncio.run(main())


def test_a_free_seat_goes_to_the_user_with_the_fewest_requests() -> None:
    async def main() -> None:
        fair = fairness(seats=4)  # a share is 1
        for user in ("a", "b", "c", "d"):
            assert take(fair, user) is None
        more = [take(fair, "a") for _ in range(10)]
        new = take(fair, "new")
        await asyncio.sleep(0)
        fair.release(fair.flow("b"))
        assert new is not None
        await new
        assert not any(task is None or task.done() for task in more)
        for task in more:
            assert task is not None
            task.cancel()
        await asyncio.gather(*(task for task in more if task is not None), return_exceptions=True)
        assert fair.queued == 0

    asyncio.run(main())


def test_a_full_queue_and_a_long_wait_are_refused() -> None:
    async def main() -> None:
        fair = fairness(seats=1, queue=2, patience=0.01)
        assert take(fair, "u") is None
        waiting = [take(fair, "u"), take(fair, "u")]
        await asyncio.sleep(0)
        with pytest.raises(TooManyRequests, match="Too many requests, please try again later") as refused:
            await fair.wait("u", fair.flow("u"))
        assert refused.value.retry_after == 1
        results = await asyncio.gather(*(task for task in waiting if task is not None), return_exceptions=True)
        assert [type(result) for result in results] == [TooManyRequests] * 2
        fair.release(fair.flow("u"))
        assert (fair.inflight, fair.queued) == (0, 0)
        assert take(fair, "u") is None

    asyncio.run(main())


def test_a_seat_granted_to_a_request_that_was_cancelled_is_given_back() -> None:
    async def main() -> None:
        fair = fairness(seats=1)
        assert take(fair, "u") is None
        waiting = take(fair, "u")
        assert waiting is not None
        await asyncio.sleep(0)
        fair.release(fair.flow("u"))
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert (fair.inflight, fair.flow("u").inflight, fair.queued) == (0, 0, 0)

    asyncio.run(main())


def watches_until_refused(fair: Fairness, user: str) -> int:
    granted = 0
    with pytest.raises(TooManyRequests):
        while True:
            fair.begin_watch(fair.flow(user))
            granted += 1
    return granted


def test_a_user_may_have_as_many_watches_as_are_free() -> None:
    fair = fairness(watches=100, few_watches=5)
    assert watches_until_refused(fair, "first") == 50
    assert watches_until_refused(fair, "second") == 25
    assert watches_until_refused(fair, "third") == 13
    for _ in range(50):
        fair.end_watch(fair.flow("first"))
    assert watches_until_refused(fair, "second") == 19  # now 44, and 43 are free
    assert [watches_until_refused(fair, name) for name in ("a", "b", "c", "d", "e", "f")] == [22, 11, 5, 5, 5, 5]
    assert fair.watches == 13 + 44 + 22 + 11 + 20


class Wire:
    """A connection of the table below."""

    def __init__(self, *, idle: bool = True) -> None:
        self.owner = NOBODY
        self.idle = idle
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


def test_the_oldest_idle_connection_makes_room() -> None:
    table = Connections(unclaimed=2, per_owner=2)
    first, second, third = Wire(idle=False), Wire(), Wire()
    for wire in (first, second, third):
        table.opened(wire)
    assert [wire.aborted for wire in (first, second, third)] == [False, True, False]
    table.claim(first, "u")
    table.claim(third, "u")
    assert (table.count(NOBODY), table.count("u")) == (0, 2)
    other = Wire()
    table.opened(other)
    table.claim(other, "v")  # another user is not concerned
    assert not (first.aborted or third.aborted)
    more = Wire()
    table.opened(more)
    table.claim(more, "u")
    assert third.aborted
    assert not first.aborted
    masters = [Wire() for _ in range(5)]
    for wire in masters:
        table.opened(wire)
        table.claim(wire, "admin", limited=False)
    assert not any(wire.aborted for wire in masters)
    for wire in (first, more, other, *masters):
        table.closed(wire)
    assert table.count("u") == table.count("v") == table.count("admin") == 0


def test_connections_that_stream_are_not_counted_but_allow_for_others() -> None:
    table = Connections(unclaimed=2, per_owner=2)

    def connect() -> Wire:
        wire = Wire()
        table.opened(wire)
        table.claim(wire, "u")
        return wire

    watches = [connect() for _ in range(2)]
    for wire in watches:
        wire.idle = False
        table.set_streaming(wire, True)
    others = [connect() for _ in range(2)]
    assert not any(wire.aborted for wire in (*watches, *others))
    connect()
    assert [wire.aborted for wire in others] == [True, False]
    watches.append(connect())  # closes the other one
    table.set_streaming(watches[-1], True)
    more = [connect() for _ in range(2)]
    assert not any(wire.aborted for wire in (*watches, *more))  # three, as many as there are watches
    for wire in watches:
        table.set_streaming(wire, False)
    assert table.count("u") == 6
    connect()
    assert table.count("u") == 6  # one makes room
    table.closed(watches[-1])
    table.set_streaming(watches[-1], True)  # nothing is left of it
    assert table.count("u") == 5


def test_the_owner_with_the_most_connections_makes_room_in_a_full_table() -> None:
    table = Connections(total=6)
    wires: dict[str, list[Wire]] = {"few": [], "many": []}
    for owner in ("many", "few", "many", "few", "many", "many"):
        wire = Wire(idle=False)
        table.opened(wire)
        table.claim(wire, owner, limited=False)
        wires[owner].append(wire)
    wires["many"][1].idle = True
    for wire in (wires["many"][0], wires["many"][2]):
        table.set_streaming(wire, True)
    for _ in range(2):
        newcomer = Wire(idle=False)
        table.opened(newcomer)
        table.claim(newcomer, "new")
    assert [wire.aborted for wire in wires["many"]] == [
        False,
        True,
        False,
        True,
    ]  # the idle one, then one that streams not
    assert not any(wire.aborted for wire in wires["few"])
    assert (table.count("many"), table.count("few"), table.count("new")) == (2, 2, 2)


# On a running server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    limits = ("--max-requests-inflight", "30", "--max-mutating-requests-inflight", "10", "--max-watches", "240")
    with serving(tmp_path_factory.mktemp("fair"), *limits) as served:
        yield served


def account(api: Api, namespace: str, name: str) -> Api:
    """A service account that may do everything with configmaps in the namespace."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    api.create(path, {"metadata": {"name": name}})
    made = api.create(f"{path}/{name}/token", {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"})
    user = f"system:serviceaccount:{namespace}:{name}"
    grant(api, namespace, user, [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}], name)
    tenant = Api(api.kubeconfig, made["status"]["token"])
    assert until(lambda: tenant.ask("GET", f"/api/v1/namespaces/{namespace}/configmaps").status == 200)
    return tenant


@contextmanager
def raw(api: Api, data: bytes) -> Iterator[ssl.SSLSocket]:
    host, _, port = api.server.removeprefix("https://").rpartition(":")
    context = ssl._create_unverified_context()
    with socket.create_connection((host, int(port)), timeout=20) as plain, context.wrap_socket(plain) as secure:
        secure.sendall(data)
        yield secure


def slow_body(api: Api, path: str) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {api.token}\r\nContent-Type: application/json\r\n"
        f"Content-Length: 100\r\n\r\n{{"
    ).encode()


def answered(connections: list[ssl.SSLSocket], count: int) -> list[bytes]:
    """The responses of the first `count` connections that get one."""
    answers: list[bytes] = []
    left = list(connections)
    while len(answers) < count:
        ready, _, _ = select.select(left, [], [], 20)
        assert ready, f"{len(answers)} of {count} were answered"
        for connection in ready:
            connection.setblocking(False)
            try:
                answers.append(connection.recv(4096))
            except ssl.SSLWantReadError:  # a session ticket
                continue
            left.remove(connection)
    return answers


def test_slow_bodies_of_one_account_hold_up_nobody(server: Api) -> None:
    namespace = server.namespace()
    hostile, good = account(server, namespace, "hostile"), account(server, namespace, "good")
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    with ExitStack() as stack:
        open_bodies = [stack.enter_context(raw(hostile, slow_body(hostile, path))) for _ in range(300)]
        answers = answered(open_bodies, 200)  # those beyond the limit
        assert all(answer.startswith(b"HTTP/1.1 429") for answer in answers)
        assert all(b"retry-after: 1" in answer.lower() for answer in answers)
        assert good.ask("POST", path, config_map("a")).status == 201
        assert good.ask("GET", path).status == 200
        for health in ("/livez", "/readyz", "/healthz"):
            assert Api(server.kubeconfig, "").ask("GET", health).status == 200
            assert hostile.ask("GET", health).status == 200
        assert server.ask("GET", path).status == 200  # the administrator
        assert hostile.ask("GET", path).status == 200  # reads of the same account, too
        assert hostile.ask("POST", path, config_map("b")).status == 429
    assert until(lambda: hostile.ask("POST", path, config_map("c")).status == 201)


def test_watches_of_one_account_are_limited(server: Api) -> None:
    namespace = server.namespace()
    hostile, good = account(server, namespace, "hostile"), account(server, namespace, "good")
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    asked = f"GET {path}?watch=1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {hostile.token}\r\n\r\n".encode()
    with ExitStack() as stack:
        heads = [stack.enter_context(raw(hostile, asked)).recv(12) for _ in range(200)]
        assert sorted(heads) == [b"HTTP/1.1 200"] * 120 + [b"HTTP/1.1 429"] * 80  # as many as are free
        with good.watch(f"{path}?watch=1") as events:
            assert good.ask("POST", path, config_map("a")).status == 201
            assert next(events)["object"]["metadata"]["name"] == "a"
        assert Api(server.kubeconfig, "").ask("GET", "/livez").status == 200
        assert server.ask("GET", f"{path}?watch=1&timeoutSeconds=1").status == 200  # the administrator is exempt
    assert until(lambda: hostile.ask("GET", f"{path}?watch=1&timeoutSeconds=1").status == 200)


def test_a_request_counts_for_the_user_that_is_impersonated(server: Api) -> None:
    """Otherwise all users of a proxy would share its part, or have none of their own."""
    namespace = server.namespace()
    account(server, namespace, "behind-proxy")
    user = f"system:serviceaccount:{namespace}:behind-proxy"
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    asked = (
        f"GET {path}?watch=1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.token}\r\n"
        f"Impersonate-User: {user}\r\n\r\n"
    )
    with ExitStack() as stack:
        heads = [stack.enter_context(raw(server, asked.encode())).recv(12) for _ in range(130)]
        assert sorted(heads) == [b"HTTP/1.1 200"] * 120 + [b"HTTP/1.1 429"] * 10
        assert server.ask("GET", f"{path}?watch=1&timeoutSeconds=1").status == 200  # the administrator itself


def test_a_flood_of_one_account_leaves_the_others_their_share(server: Api) -> None:
    namespace = server.namespace()
    hostile, good = account(server, namespace, "hostile"), account(server, namespace, "good")
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    stop = threading.Event()
    statuses: set[int] = set()

    def flood() -> None:
        connection = hostile.connect()
        while not stop.is_set():
            connection.request("GET", f"{path}?limit=1", headers=hostile.head())
            response = connection.getresponse()
            response.read()
            statuses.add(response.status)
        connection.close()

    threads = [threading.Thread(target=flood) for _ in range(30)]
    for thread in threads:
        thread.start()
    try:
        for number in range(20):
            assert good.ask("POST", path, config_map(f"c{number}")).status == 201
            assert Api(server.kubeconfig, "").ask("GET", "/livez").status == 200
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
    assert statuses <= {200, 429}
    metrics = server.ask("GET", "/metrics").data.decode()
    assert "apiserver_flowcontrol_current_inqueue_requests 0" in metrics


def test_idle_connections_without_a_request_do_not_keep_others_out(tmp_path: Path) -> None:
    with serving(tmp_path / "d", "--max-connections-per-user", "50") as api, ExitStack() as stack:
        head = "GET /version HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\r\n"
        namespace = api.namespace()
        tenant = account(api, namespace, "tenant")
        for _ in range(120):
            connection = stack.enter_context(raw(tenant, head.format(tenant.token).encode()))
            assert connection.recv(12) == b"HTTP/1.1 200"
        assert json.loads(api.ask("GET", "/version").data)["major"] == "1"
        assert tenant.ask("GET", "/version").status == 200
