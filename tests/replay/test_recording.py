"""Recordings: what is kept of objects, files that survive crashes, and what a trace makes of them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import NAMESPACES, NODES, PODS, SECRETS
from wharfinger.api.registry import Document
from wharfinger.client.local import LocalClient
from wharfinger.client.timers import SystemClock
from wharfinger.replay.importing import read_trace
from wharfinger.replay.recording import ClusterRecorder
from wharfinger.replay.reduction import decides, reduced
from wharfinger.replay.segments import JOURNAL, RecordedRow, SegmentWriter, recorded_rows
from wharfinger.simulate.inputs import BadInput
from wharfinger.store import Store


def pod(name: str, cpu: str = "1", node: str = "", **metadata: Any) -> Document:
    container = {
        "name": "main",
        "image": "web:1",
        "env": [{"name": "PASSWORD", "value": "hunter2"}],
        "command": ["serve", "--token=hunter2"],
        "resources": {"requests": {"cpu": cpu}},
    }
    volumes = [{"name": "keys", "secret": {"secretName": "keys"}}]
    spec = {"containers": [container], "volumes": volumes, **({"nodeName": node} if node else {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", **metadata},
        "spec": spec,
    }


def node(name: str) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}},
    }


def test_nothing_secret_is_kept() -> None:
    notes = {
        "kubectl.kubernetes.io/last-applied-configuration": "hunter2",
        "example.com/note": "hunter2",
        "wharfinger.dev/run-for": "5s",
        "controller.kubernetes.io/pod-deletion-cost": "7",
    }
    kept = reduced(pod("x", annotations=notes, managedFields=[{"manager": "hunter2"}]))

    assert "hunter2" not in json.dumps(kept) and "keys" not in json.dumps(kept)
    assert kept["metadata"]["annotations"] == {"controller.kubernetes.io/pod-deletion-cost": "7"}
    assert kept["spec"]["containers"] == [{"name": "main", "image": "web:1", "resources": {"requests": {"cpu": "1"}}}]
    template = {"metadata": {"annotations": notes}, "spec": pod("x")["spec"]}
    deployment = {"kind": "Deployment", "metadata": {"name": "d"}, "spec": {"template": template}}
    assert "hunter2" not in json.dumps(reduced(deployment))


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("scheduling.koordinator.sh/reservation-allocated", True),
        ("wharfinger.dev/reserved", True),
        ("wharfinger.dev/usage", False),
        ("notwharfinger.dev/x", False),
        ("prometheus.io/scrape", False),
        ("note", False),
    ],
)
def test_annotations_are_kept_if_they_decide_something(name: str, kept: bool) -> None:
    assert decides(name) is kept


def rows(number: int, start: int = 0) -> list[RecordedRow]:
    return [
        RecordedRow(float(index), index, "added", "v1", "Pod", "d", f"p{index}", "u", "{}")
        for index in range(start, start + number)
    ]


def test_full_journals_become_files_and_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, rows=4)
    for row in rows(10):
        writer.write(row)
    writer.flush()

    assert [path.name for path in sorted(tmp_path.glob("events-*"))] == [
        "events-000001.parquet",
        "events-000002.parquet",
    ]
    assert [row for _, row in recorded_rows(tmp_path)] == rows(10)
    writer.close()
    assert not (tmp_path / JOURNAL).exists()
    assert [row for _, row in recorded_rows(tmp_path)] == rows(10)


def test_a_line_that_was_not_written_completely_is_cut_off(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, rows=100)
    for row in rows(3):
        writer.write(row)
    writer.flush()
    writer.abandon()
    with (tmp_path / JOURNAL).open("ab") as file:
        file.write(b'[4.0,4,"added","v1"')

    again = SegmentWriter(tmp_path, rows=100)
    again.write(rows(1, start=3)[0])
    again.close()

    assert [row for _, row in recorded_rows(tmp_path)] == rows(4)


def test_a_crash_between_the_file_and_the_journal_doubles_nothing(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, rows=100)
    for row in rows(3):
        writer.write(row)
    writer.flush()
    journal = (tmp_path / JOURNAL).read_bytes()
    writer.rotate()
    writer.abandon()
    (tmp_path / JOURNAL).write_bytes(journal)

    assert [row for _, row in recorded_rows(tmp_path)] == rows(3)
    again = SegmentWriter(tmp_path, rows=100)
    again.write(rows(1, start=3)[0])
    again.close()
    assert [row for _, row in recorded_rows(tmp_path)] == rows(4)


def test_two_recorders_cannot_write_to_one_folder(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path)
    with pytest.raises(BadInput, match="another `wharf record` writes to it"):
        SegmentWriter(tmp_path)
    writer.close()
    SegmentWriter(tmp_path).close()


def test_a_broken_row_is_named(tmp_path: Path) -> None:
    folder = recording(tmp_path, [RecordedRow(1.0, 5, "added", "v1", "Pod", "d", "p", "u", "{not json")])

    with pytest.raises(BadInput) as caught:
        read_trace(folder)
    assert caught.value.problems[0].startswith(f"{folder}/events-000001.parquet: row 1: object: not JSON")


def recording(folder: Path, written: list[RecordedRow]) -> Path:
    writer = SegmentWriter(folder)
    for row in written:
        writer.write(row)
    writer.close()
    (folder / "trace.yaml").write_text(
        "apiVersion: wharfinger.dev/v1alpha1\nkind: Trace\nformat: k8s-events\nstart: 1970-01-01T00:00:00Z\n"
    )
    return folder


def row(time: float, version: int, type: str, document: Document) -> RecordedRow:
    metadata = document["metadata"]
    data = "" if type == "deleted" else json.dumps(reduced(document))
    namespace = metadata.get("namespace") or ""
    return RecordedRow(
        time, version, type, "v1", document["kind"], namespace, metadata["name"], f"uid of {metadata['name']}", data
    )


def test_the_life_of_a_pod_is_read_from_its_changes(tmp_path: Path) -> None:
    bound, ended = pod("x", node="a"), pod("x", node="a")
    ended["status"] = {"phase": "Succeeded"}
    changes = [
        row(0.0, 1, "present", node("a")),
        row(10.0, 5, "added", pod("x")),
        row(10.5, 6, "modified", bound),
        row(40.0, 9, "modified", ended),
        row(60.0, 12, "deleted", ended),
        row(20.0, 7, "added", pod("y")),
        row(30.0, 8, "deleted", pod("y")),
    ]

    trace = read_trace(recording(tmp_path, changes))

    x, y = sorted(trace.pods, key=lambda each: each.name)
    assert (x.node, x.arrival.time, x.phase) == ("a", 10.0, "Succeeded")
    assert x.bound is not None and x.bound.time == 10.5
    assert x.departure is not None and x.departure.time == 40.0
    assert "nodeName" not in x.document["spec"] and not x.present
    assert (y.node, y.phase) == ("", "") and y.departure is not None and y.departure.time == 30.0
    assert trace.end == 60.0


def test_changes_are_ordered_by_their_versions(tmp_path: Path) -> None:
    """Each kind has a watch of its own, so a node may be reported after the pod that was bound to it."""
    changes = [
        row(10.0, 7, "added", pod("x")),
        row(10.2, 5, "added", node("late")),
        row(10.3, 8, "modified", pod("x", node="late")),
    ]

    trace = read_trace(recording(tmp_path, changes))

    assert trace.nodes[0].start < trace.pods[0].arrival


def test_a_node_that_changes_has_two_periods(tmp_path: Path) -> None:
    tainted = node("a") | {
        "spec": {
            "taints": [
                {"key": "mine", "effect": "NoSchedule"},
                {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"},
            ]
        }
    }
    changes = [
        row(0.0, 1, "present", node("a")),
        row(50.0, 4, "modified", tainted),
        row(90.0, 8, "deleted", tainted),
    ]

    trace = read_trace(recording(tmp_path, changes))

    first, second = trace.nodes
    assert first.end == second.start and second.end is not None and second.end.time == 90.0
    assert second.document["spec"]["taints"] == [{"key": "mine", "effect": "NoSchedule"}]


def test_prices_come_from_the_node_or_from_the_trace(tmp_path: Path) -> None:
    priced, typed = node("a"), node("b")
    priced["metadata"]["annotations"] = {"wharfinger.dev/price-per-hour": "0.25"}
    typed["metadata"]["labels"] = {"node.kubernetes.io/instance-type": "large"}
    folder = recording(tmp_path, [row(0.0, 1, "present", priced), row(0.0, 2, "present", typed)])
    with (folder / "trace.yaml").open("a") as file:
        file.write("prices: {large: 1.5}\n")

    assert {period.name: period.price for period in read_trace(folder).nodes} == {"a": 0.25, "b": 1.5}


def test_a_cluster_is_followed_and_a_restarted_recorder_goes_on(tmp_path: Path) -> None:
    """Deletions while it was away are noticed, and Secrets are not read at all."""
    folder = tmp_path / "trace"

    async def body() -> None:
        store = Store(registry())
        client = LocalClient(store)
        await client.create(NAMESPACES, {"metadata": {"name": "default"}})
        await client.create(NODES, node("a"))
        await client.create(PODS, pod("old", node="a"), "default")
        async with following(client, folder):
            await client.create(SECRETS, {"metadata": {"name": "keys"}, "stringData": {"a": "hunter2"}}, "default")
            await client.create(PODS, pod("first"), "default")
            await client.create(PODS, pod("second"), "default")
            await seen(folder, "second")
        await client.delete(PODS, "second", "default", grace_period=0)
        await client.create(PODS, pod("third"), "default")
        async with following(client, folder):
            await seen(folder, "third")

    asyncio.run(body())
    trace = read_trace(folder)
    found = {each.name: each for each in trace.pods}
    assert set(found) == {"old", "first", "second", "third"}
    assert found["old"].present and found["old"].node == "a"
    assert found["second"].departure is not None and found["first"].departure is None
    assert any("the recorder did not run from" in note for note in trace.notes)
    kept = b"".join(msg for _, each in recorded_rows(folder) for msg in [each.object.encode()])
    assert b"hunter2" not in kept and b"Secret" not in kept
    assert sum(each.name == "first" for _, each in recorded_rows(folder)) == 1  # not recorded again


class following:  # noqa: N801 - reads like a function
    def __init__(self, client: LocalClient, folder: Path) -> None:
        self._recorder = ClusterRecorder(client, registry(), folder, SystemClock())

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(self._recorder.run())

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def seen(folder: Path, name: str) -> None:
    async with asyncio.timeout(30):
        while not any(each.name == name for _, each in recorded_rows(folder)):
            await asyncio.sleep(0.05)


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")

    async def body() -> None:
        recorder = ClusterRecorder(LocalClient(Store(registry())), registry(), tmp_path, SystemClock())
        await recorder.run()

    with pytest.raises(BadInput, match="neither empty nor a trace"):
        asyncio.run(body())
