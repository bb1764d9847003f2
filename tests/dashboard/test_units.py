"""What needs no cluster: sessions, the guard, sums of requests, samples of the past, and causes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from wharfinger.api.errors import Unauthorized
from wharfinger.client.access import ClusterAccess
from wharfinger.client.http import HttpClient
from wharfinger.dashboard.history import past_samples
from wharfinger.dashboard.node_rows import NodeRows
from wharfinger.dashboard.sessions import IDLE_SECONDS, LINK_SECONDS, SESSION_SECONDS, Sessions
from wharfinger.dashboard.sharing import SharedParts, shorten_event
from wharfinger.dashboard.usage import NodeRequests
from wharfinger.dashboard.views.nodes import node_columns
from wharfinger.dashboard.views.objects import event_row
from wharfinger.dashboard.views.waiting import cause_of, causes, waiting_pods
from wharfinger.dashboard.what_if import NodesChange, WhatIf, read_change
from wharfinger.simulate.inputs import BadInput


class FakeClock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def sessions(clock: FakeClock, **options: Any) -> Sessions:
    made = Sessions(HttpClient(ClusterAccess("https://127.0.0.1:1")), now=clock, **options)
    made.address = "http://127.0.0.1:2"
    return made


def token_of(link: str) -> str:
    return link.partition("token=")[2]


def test_a_link_ends_when_it_is_used_or_too_old(clock: FakeClock, tmp_path: Path) -> None:
    file = tmp_path / "link"
    made = sessions(clock, link_file=file)
    first = token_of(made.link())
    assert file.read_text().strip().endswith(first) and file.stat().st_mode & 0o077 == 0
    cookie = made.open(first)
    assert made.of_cookie(cookie) is made.own
    with pytest.raises(Unauthorized):
        made.open(first)
    second = token_of(file.read_text().strip())
    assert second != first
    clock.now += LINK_SECONDS + 1
    with pytest.raises(Unauthorized):
        made.open(second)
    for wrong in ("", "x", "ü"):
        with pytest.raises(Unauthorized):
            made.open(wrong)


def test_a_session_ends_after_a_while_and_sooner_if_nobody_uses_it(clock: FakeClock) -> None:
    made = sessions(clock)
    idle, busy = made.open(token_of(made.link())), made.open(token_of(made.link()))
    clock.now += IDLE_SECONDS - 1
    made.of_cookie(busy)
    clock.now += 2
    with pytest.raises(Unauthorized):
        made.of_cookie(idle)
    while clock.now < 1000 + SESSION_SECONDS:
        made.of_cookie(busy)
        clock.now += IDLE_SECONDS / 2
    with pytest.raises(Unauthorized):
        made.of_cookie(busy)


def test_a_server_for_tokens_only_gives_out_no_sessions_of_its_own(clock: FakeClock) -> None:
    made = sessions(clock, links=False)
    assert made.own is None
    with pytest.raises(Unauthorized):
        made.open("")


def pod(name: str, node: str = "", cpu: str = "1", **more: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}
    if node:
        spec["nodeName"] = node
    status = {"phase": "Running" if node else "Pending", **more.pop("status", {})}
    metadata = {"name": name, "namespace": "n", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z", **more}
    return {"metadata": metadata, "spec": spec, "status": status}


def test_requests_follow_every_change_of_a_pod() -> None:
    found = NodeRequests()
    waits, runs = pod("p"), pod("p", "n1")
    found.pod_changed(None, waits)
    assert found.requested == {} and found.amounts["n", "p"] == {"cpu": 1000}
    found.pod_changed(waits, runs)
    assert found.requested["n1"] == {"cpu": 1000}
    resized = pod("p", "n1", "2")
    found.pod_changed(runs, resized)
    assert found.requested["n1"] == {"cpu": 2000}
    done = pod("p", "n1", "2", status={"phase": "Succeeded"})
    found.pod_changed(resized, done)
    assert found.requested == {} and found.pods == {} and (found.present, found.running) == (0, 0)
    found.pod_changed(done, None)
    assert found.amounts == {} and found.by_uid == {}


def test_numbers_of_pods_follow_every_change() -> None:
    found = NodeRequests()
    waits, runs = pod("p"), pod("p", "n1")
    found.pod_changed(None, waits)
    assert (found.present, found.running, list(found.waiting)) == (1, 0, [("n", "p")])
    assert found.by_uid == {"p": ("n", "p")}
    found.pod_changed(waits, runs)
    assert (found.present, found.running, list(found.waiting)) == (1, 1, [])
    found.pod_changed(runs, None)
    assert (found.present, found.running, found.by_uid) == (0, 0, {})


def test_nodes_are_read_when_they_change() -> None:
    def node(name: str, cpu: str = "4", **labels: str) -> dict[str, Any]:
        ready = {"type": "Ready", "status": "True"}
        return {
            "metadata": {"name": name, "labels": labels},
            "status": {"allocatable": {"cpu": cpu}, "conditions": [ready]},
        }

    first, second, third = node("b", pool="x"), node("a", pool=""), node("c")
    table = NodeRows([first, second, third])
    names = table.names
    assert names == ("a", "b", "c") and all(row.ready for row in table.rows)
    assert table.label_columns == {"pool": {"values": ["", "x"], "of": [0, 1, -1]}}
    table.node_changed(first, node("b", "8", pool="y"))
    assert table.names is names and table.rows[1].room == {"cpu": 8000}
    assert table.label_columns["pool"]["values"] == ["", "y"]
    table.node_changed(second, None)
    assert table.names == ("b", "c") and len(table) == 2
    usage = NodeRequests()
    usage.pod_changed(None, pod("p", "b", "7999m"))
    columns = node_columns(table, usage, {"b": {"unit": ["n/u: x"], "reserved": {"cpu": 80}}})
    assert columns["cpu"] == [99, 0] and columns["pods"] == [1, 0], "as kubectl, nothing is rounded up to full"
    assert (columns["unit"], columns["reserved"], columns["devices"]) == (["n/u: x", ""], [1, 0], [-1, -1])


def test_pods_wait_in_the_order_of_the_queue_and_share_causes() -> None:
    urgent = pod("z")
    urgent["spec"]["priority"] = 10
    late = pod("b", creationTimestamp="2026-01-01T00:01:00Z")
    gone = pod("gone", deletionTimestamp="2026-01-01T00:01:00Z")
    usage = NodeRequests()
    for each in (late, pod("a"), urgent, pod("runs", "n1"), gone):
        usage.pod_changed(None, each)
    rows = waiting_pods(usage, None)
    assert [(row["name"], row["position"]) for row in rows] == [("z", 1), ("a", 2), ("b", 3)]
    assert [(group["count"], group["verdict"]) for group in causes(rows)] == [(3, "waiting")]


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        ("0/3 nodes are available: 3 Insufficient cpu. preemption: 0/3 nodes are …", "Insufficient cpu"),
        (
            "0/5 nodes are available: 2 node(s) were unschedulable, 3 Insufficient memory.",
            "node(s) were unschedulable, Insufficient memory",
        ),
        ("", ""),
    ],
)
def test_equal_causes_are_equal_whatever_the_numbers(message: str, cause: str) -> None:
    assert cause_of(message) == cause


def test_the_past_is_told_by_the_objects() -> None:
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:30Z"}
    node = {
        "metadata": {"name": "n1", "creationTimestamp": "2025-12-31T00:00:00Z"},
        "status": {"allocatable": {"cpu": "2", "memory": "1Gi"}},
    }
    start = 1767225600.0  # when the pod was created
    samples = past_samples([pod("p", "n1", status={"conditions": [scheduled]})], [node], start - 600, start + 60)
    waiting = [each["time"] - start for each in samples if each["waiting"]]
    running = [each["time"] - start for each in samples if each["running"]]
    assert min(waiting) >= 0 and max(waiting) < 30 <= min(running)
    assert samples[-1]["cpu"] == 50 and samples[0]["cpu"] == 0


def test_equal_parts_are_one_object() -> None:
    parts = SharedParts()
    first, second = pod("a", "n1"), pod("b", "n2")
    first["metadata"]["managedFields"] = [{"manager": "m"}]
    before = pod("a", "n1")
    parts.share(first)
    parts.share(second)
    assert first == before and first["spec"]["containers"] is second["spec"]["containers"]


def test_copies_of_a_node_get_names_and_host_names_of_their_own() -> None:
    labels = {"kubernetes.io/hostname": "n", "pool": "x"}
    status = {"allocatable": {"cpu": "4"}, "conditions": []}
    nodes = [
        {"kind": "Node", "metadata": {"name": "n", "labels": labels}, "status": status},
        {"kind": "Node", "metadata": {"name": "n-new-1"}},
    ]
    made = [each.document for each in read_change(WhatIf(nodes=[NodesChange("n"), NodesChange("n")]), nodes).manifests]
    assert [each["metadata"]["name"] for each in made] == ["n-new-2", "n-new-3"]
    assert made[0]["metadata"]["labels"] == {"kubernetes.io/hostname": "n-new-2", "pool": "x"}
    assert made[0]["status"] == {"allocatable": {"cpu": "4"}}
    with pytest.raises(BadInput):
        read_change(WhatIf(nodes=[NodesChange("n", 0)]), nodes)


@pytest.mark.parametrize(
    "more",
    [
        {"lastTimestamp": "2026-01-01T00:00:05Z", "count": 3, "source": {"component": "kubelet", "host": "n1"}},
        {"eventTime": "2026-01-01T00:00:05.000000Z", "reportingComponent": "s", "reportingInstance": "s-1"},
        {"series": {"count": 7, "lastObservedTime": "2026-01-01T00:00:09.000000Z"}},
        {},
    ],
)
def test_shortened_events_are_shown_as_whole_ones(more: dict[str, Any]) -> None:
    metadata = {
        "name": "p.1",
        "namespace": "a",
        "uid": "u",
        "resourceVersion": "7",
        "managedFields": [{"manager": "m"}],
    }
    metadata["creationTimestamp"] = "2026-01-01T00:00:00Z"
    involved = {"kind": "Pod", "namespace": "a", "name": "p", "uid": "v", "fieldPath": "spec"}
    event = {"metadata": metadata, "involvedObject": involved, "reason": "Started", "message": "it runs", **more}
    row = event_row(event)
    shorten_event(event)
    assert event_row(event) == row
    assert event["metadata"] == {name: metadata[name] for name in metadata if name != "managedFields"}
    assert event["involvedObject"] == {"kind": "Pod", "namespace": "a", "name": "p"}
