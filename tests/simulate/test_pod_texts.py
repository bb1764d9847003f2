"""Pods of a large snapshot are held as text. They are read, checked and stored as if they had been decoded."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.simulate.test_short_ways import running_pods

from wharfinger.api import manifests
from wharfinger.api.configuration import Configuration
from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.pod_texts import PodText, PodTexts
from wharfinger.api.registry import Document
from wharfinger.api.views import Pod, decode
from wharfinger.bench.support.deployments import snapshot
from wharfinger.scenario import runner
from wharfinger.simulate.cluster import SimulatedCluster
from wharfinger.simulate.inputs import BadInput, Inputs, read_inputs
from wharfinger.simulate.loading import restore
from wharfinger.simulate.planning import plan
from wharfinger.simulate.simulation import SimulationOptions
from wharfinger.store.contents import PodContent
from wharfinger.store.objects import StoredObject

WRITERS: dict[str, Callable[[Any], bytes]] = {
    "compact": msgspec.json.encode,
    "spaces": lambda value: json.dumps(value).encode(),
    "lines": lambda value: json.dumps(value, indent=2).encode() + b"\n",
}
Texts = tuple[Inputs, list[str]]


@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
def test_a_pod_is_what_it_was_read_from(writer: Callable[[Any], bytes]) -> None:
    reader, pods = PodTexts(), running_pods()
    texts = [reader.read(writer(pod)) for pod in pods]
    for pod, text in zip(pods, texts):
        if text is not None:
            assert text.document() == pod
            assert list(text.document()) == list(pod)
            outline = text.outline()
            assert outline["metadata"] | {"resourceVersion": "", "managedFields": []} == pod["metadata"] | {
                "resourceVersion": "",
                "managedFields": [],
            }
            assert outline["spec"].get("volumes", []) == [] or pod["spec"].get("volumes")
    held = [text for text in texts if text is not None]
    assert len(held) > 10
    assert len({text.status for text in held}) < len(held)


def pods_of_one_set(number: int = 20) -> list[Document]:
    return [item for item in msgspec.json.decode(snapshot(3, 1, number))["items"] if item["kind"] == "Pod"]


def test_what_pods_have_in_common_is_held_once() -> None:
    reader = PodTexts()
    texts = [reader.read(msgspec.json.encode(pod)) for pod in pods_of_one_set()]
    assert {type(text) for text in texts} == {PodText}
    assert len({text.front for text in texts if text is not None}) == 1
    assert len({text.status for text in texts if text is not None}) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda pod: pod["metadata"].update(name="labels"),  # also a key
        lambda pod: pod["metadata"]["labels"].update(node=pod["spec"]["nodeName"]),
        lambda pod: pod["metadata"].update(uid="a\x01b"),
        lambda pod: pod["metadata"].update(name="Upper"),
        lambda pod: pod["metadata"].update(namespace=""),
        lambda pod: pod["metadata"].update(deletionTimestamp=None),
        lambda pod: pod["spec"].pop("nodeName"),
        lambda pod: pod["spec"].update(nodeName="n" * 64),
        lambda pod: pod["spec"].update(volumes=5),
        lambda pod: pod["status"].update(podIP="phase"),
        lambda pod: pod["status"].update(podIP=5),
        lambda pod: pod.update(extra=1),
        lambda pod: pod.update(kind="Node"),
        lambda pod: pod.pop("status"),
        lambda pod: pod.update(metadata=pod.pop("metadata")),
    ],
)
def test_pods_that_are_not_plain_are_decoded(change: Callable[[Document], Any]) -> None:
    (pod,) = pods_of_one_set(1)
    change(pod)
    assert PodTexts().read(msgspec.json.encode(pod)) is None


def test_text_that_is_not_json_is_an_error() -> None:
    good = msgspec.json.encode(pods_of_one_set(1)[0])
    for bad in (good.replace(b'"phase":"', b'"phase":"\\q'), good.replace(b'"image":"', b'"image":"\xff'), good[:-1]):
        with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
            PodTexts().read(bad)


def reading(items: list[Document], monkeypatch: pytest.MonkeyPatch, *, large: bool, strict: bool = False) -> Texts:
    """The inputs, and what is wrong with them."""
    monkeypatch.setattr(manifests, "_CHECKED_JSON", 0 if large else 1 << 30)
    content = json.dumps({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items}).encode()
    try:
        return read_inputs([("f", content)], registry(), strict=strict), []
    except BadInput as error:
        return Inputs(), error.problems


def cluster(change: str) -> list[Document]:
    """A snapshot with something unusual in it."""
    items: list[Document] = msgspec.json.decode(snapshot(4, 2, 5))["items"]
    pods = [item for item in items if item["kind"] == "Pod"]
    if change == "unknown fields":
        for pod in pods[2:4]:
            pod["spec"]["fromTheFuture"] = True
        pods[5]["status"]["fromTheFuture"] = True
    elif change == "a wrong type":
        pods[3]["spec"]["priority"] = "high"
        pods[4]["status"]["startTime"] = "yesterday"
    elif change == "no ReplicaSets":
        items = [item for item in items if item["kind"] != "ReplicaSet"]
    elif change == "no owners":
        items = [item for item in items if item["kind"] in ("Pod", "Node")]
    elif change == "claims":
        pods[0]["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    elif change == "late times":
        pods[7]["status"]["containerStatuses"][0]["state"]["running"]["startedAt"] = "2027-05-05T05:05:05Z"
    elif change == "twice":
        items.append({**pods[0], "metadata": {**pods[0]["metadata"], "labels": {"app": "d0", "new": "label"}}})
    elif change == "odd pods":
        items += [{**pod, "metadata": {**pod["metadata"], "name": f"odd-{i}"}} for i, pod in enumerate(running_pods())]
    return items


CHANGES = [
    "nothing",
    "unknown fields",
    "a wrong type",
    "no ReplicaSets",
    "no owners",
    "claims",
    "late times",
    "twice",
    "odd pods",
]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_inputs_are_the_same(change: str, strict: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, problems = reading(cluster(change), monkeypatch, large=True, strict=strict)
    theirs, expected = reading(cluster(change), monkeypatch, large=False, strict=strict)
    assert problems == expected
    assert [each.document for each in ours.manifests] == [each.document for each in theirs.manifests]
    assert [(each.name, str(each.source)) for each in ours.manifests] == [
        (each.name, str(each.source)) for each in theirs.manifests
    ]
    assert (ours.notes, ours.unseen_kinds, ours.start()) == (theirs.notes, theirs.unseen_kinds, theirs.start())
    held = sum(isinstance(each.content, PodText) for each in ours.manifests)
    assert held >= 7 or expected
    assert not any(isinstance(each.content, PodText) for each in theirs.manifests)


def restored(inputs: Inputs) -> tuple[list[StoredObject], list[runner.Rejection], list[Document]]:
    world = SimulatedCluster(Configuration(), start=inputs.start())
    results = runner.Results()
    try:
        world.note_owners(inputs.manifests)
        rest = world.loop.complete(restore(world, list(inputs.manifests), results))
        return list(world.store.scan(PODS)), results.rejections, [each.document for each in rest]
    finally:
        world.close()


@pytest.mark.parametrize("change", CHANGES)
def test_stored_pods_are_the_same(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, refused, rest = restored(reading(cluster(change), monkeypatch, large=True)[0])
    monkeypatch.setattr(SimulatedCluster, "short_ways", False)
    theirs, expected, left = restored(reading(cluster(change), monkeypatch, large=False)[0])
    assert (refused, rest) == (expected, left)
    assert [(each.name, each.uid, each.version, each.data) for each in ours] == [
        (each.name, each.uid, each.version, each.data) for each in theirs
    ]
    for each in ours:
        assert each.labels == decode(each.data, Pod).metadata.labels
        assert each.view(Pod) == decode(each.data, Pod)
    assert not ours or sum(isinstance(each.content, PodContent) for each in ours) >= 7


@pytest.mark.parametrize("change", ["nothing", "no ReplicaSets", "no owners", "twice"])
def test_plans_are_the_same(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def planned(*, large: bool) -> Document:
        inputs, _ = reading(cluster(change), monkeypatch, large=large)
        return plan(inputs, Inputs(), options=SimulationOptions(), drains=["n00000"]).document()

    assert planned(large=True) == planned(large=False)
