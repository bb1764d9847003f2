"""`wharf snapshot` files: complete, without secrets, and read like any other input."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest

from wharfinger.api.errors import forbidden
from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import CONFIG_MAPS, DEPLOYMENTS, NAMESPACES, NODES, PODS, SECRETS
from wharfinger.api.requests import ApiRequest
from wharfinger.client.local import LocalClient
from wharfinger.simulate.inputs import BadInput, files_of, read_inputs
from wharfinger.simulate.snapshots import Redactor, SnapshotHeader, SnapshotWriter, take
from wharfinger.store import Store

NOW = 1_780_000_000.0


class Denying(LocalClient):
    """May not list nodes."""

    async def send(self, request: ApiRequest[Any]) -> Any:
        if (request.verb, request.resource) == ("list", NODES):
            raise forbidden("", "nodes", "", "not for you")
        return await super().send(request)


def container(value: str) -> dict[str, Any]:
    env = [
        {"name": "PASSWORD", "value": value},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
    ]
    return {"name": "c", "image": "i", "env": env}


def deployment(value: str) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container(value)]}}
    applied = {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": template}}
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(applied)}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "annotations": annotations},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template},
    }


def snapshot(path: Path, client: type[LocalClient] = LocalClient) -> SnapshotHeader:
    async def write() -> SnapshotHeader:
        store = Store(registry(), now=lambda: NOW - 60)
        admin = client(store)
        for name in ("default", "shop"):
            await admin.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        await admin.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
        for number in range(3):
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{number}"}}
            await admin.create(PODS, {**pod, "spec": {"containers": [container("hunter2")]}}, "shop")
        await admin.create(DEPLOYMENTS, deployment("hunter2"), "shop")
        for resource in (SECRETS, CONFIG_MAPS):
            hidden = {"apiVersion": "v1", "kind": resource.kind, "metadata": {"name": "hidden"}}
            await admin.create(resource, hidden, "shop")
        redact = Redactor()
        writer = SnapshotWriter(path)
        header = await take(admin, registry(), NOW, lambda document: writer.write(redact(document)))
        writer.finish(header)
        return header

    return asyncio.run(write())


@pytest.mark.parametrize("suffix", ["json", "json.gz", "json.zst"])
def test_a_snapshot_is_read_directly_and_is_complete(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"cluster.{suffix}"
    header = snapshot(path)
    assert header.consistent and not header.not_read
    (content,) = files_of([str(path)], io.BytesIO())
    inputs = read_inputs([content], registry(), strict=True)
    found = [(each.document["kind"], each.name) for each in inputs.manifests]
    assert sorted(found) == [
        ("Deployment", "web"),
        ("Namespace", "default"),
        ("Namespace", "shop"),
        ("Node", "n1"),
        *[("Pod", f"p{number}") for number in range(3)],
    ]
    assert inputs.notes == []
    assert inputs.start() == NOW
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_values_of_variables_are_digests_that_stay_equal_and_different(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    snapshot(path)
    text = path.read_text()
    assert "hunter2" not in text
    pods = [each for each in json.loads(text)["items"] if each["kind"] == "Pod"]
    values = {each["spec"]["containers"][0]["env"][0]["value"] for each in pods}
    (web,) = [each for each in json.loads(text)["items"] if each["kind"] == "Deployment"]
    assert {web["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"]} == values
    redact = Redactor()
    assert redact(deployment("a"))["spec"] != redact(deployment("b"))["spec"]


def test_kinds_that_may_not_be_read_are_named(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json.gz"
    header = snapshot(path, Denying)
    assert list(header.not_read) == [("v1", "Node")]
    (note,) = read_inputs(files_of([str(path)], io.BytesIO()), registry()).notes
    assert "Node: could not be read: nodes is forbidden" in note
    with pytest.raises(BadInput):
        read_inputs(files_of([str(path)], io.BytesIO()), registry(), strict=True)


def test_damaged_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json.gz"
    path.write_bytes(gzip.compress(b"{}" * 1000)[:-12])
    with pytest.raises(BadInput) as caught:
        files_of([str(path)], io.BytesIO())
    assert caught.value.problems[0].startswith(f"{path}: the compressed data is damaged: ")


def test_nothing_is_left_of_an_unfinished_snapshot(tmp_path: Path) -> None:
    writer = SnapshotWriter(tmp_path / "cluster.json.gz")
    writer.write({"kind": "Pod"})
    writer.discard()
    assert list(tmp_path.iterdir()) == []
