"""Patches: the media types, what they can change, and the errors of invalid ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.store.support import APPLY, JSON, MERGE, STRATEGIC, WIDGETS, config, pod, widget

from wharfinger.api.errors import ApiError, Conflict
from wharfinger.api.kinds.builtin import CONFIG_MAPS, PODS
from wharfinger.api.registry import Document, Resource
from wharfinger.store import Store

Run = Callable[..., Any]


def test_each_media_type_patches_in_its_own_way(run: Run) -> None:
    async def scenario(store: Store) -> None:
        await store.create(PODS, pod(labels={"a": "b"}), "default")
        await store.patch(PODS, "p", [{"op": "add", "path": "/metadata/labels/c", "value": "d"}], "default", type=JSON)
        await store.patch(PODS, "p", {"metadata": {"labels": {"a": None}}}, "default", type=MERGE)
        patch = {"spec": {"containers": [{"name": "c", "image": "registry.example/app:2"}]}}
        written = (await store.patch(PODS, "p", patch, "default", type=STRATEGIC)).document
        assert written["metadata"]["labels"] == {"c": "d"}
        assert [item["image"] for item in written["spec"]["containers"]] == ["registry.example/app:2"]

    run(scenario)


def test_a_resource_version_in_a_patch_is_a_precondition(run: Run) -> None:
    async def scenario(store: Store) -> None:
        first = (await store.create(CONFIG_MAPS, config(), "default")).document
        version = first["metadata"]["resourceVersion"]
        patch = {"metadata": {"resourceVersion": version}, "data": {"a": "1"}}
        await store.patch(CONFIG_MAPS, "c", patch, "default", type=MERGE)
        with pytest.raises(Conflict):
            await store.patch(CONFIG_MAPS, "c", patch, "default", type=MERGE)

    run(scenario)


def test_custom_resources_take_patches_without_version(run: Run) -> None:
    async def scenario(store: Store) -> Document:
        await store.create(WIDGETS, widget(spec={"size": 1}), "default")
        return (await store.patch(WIDGETS, "w", {"spec": {"size": 2}}, "default", type=MERGE)).document["spec"]

    assert run(scenario) == {"size": 2}


def test_a_dry_run_patches_nothing(run: Run) -> None:
    async def scenario(store: Store) -> None:
        await store.create(CONFIG_MAPS, config(), "default")
        written = await store.patch(CONFIG_MAPS, "c", {"data": {"a": "1"}}, "default", type=MERGE, dry_run=True)
        assert written.document["data"] == {"a": "1"}
        assert not (await store.get(CONFIG_MAPS, "c", "default")).document().get("data")

    run(scenario)


REFUSED: list[tuple[str, Resource, str, Any, str, int, str]] = [
    ("no array", CONFIG_MAPS, "c", {"op": "add"}, JSON, 400, "error decoding patch"),
    ("no operation", CONFIG_MAPS, "c", [{"path": "/a"}], JSON, 422, "the server rejected our request"),
    ("no such path", CONFIG_MAPS, "c", [{"op": "remove", "path": "/data/none"}], JSON, 422, "the server rejected our request due to an error in our request"),
    ("a failed test", CONFIG_MAPS, "c", [{"op": "test", "path": "/kind", "value": "x"}], JSON, 422, "the server rejected our request"),
    ("an unknown operation", CONFIG_MAPS, "c", [{"op": "swap", "path": "/kind"}], JSON, 422, "the server rejected our request"),
    ("too many operations", CONFIG_MAPS, "c", [{"op": "test", "path": "/kind", "value": "ConfigMap"}] * 10_001, JSON, 413, "The allowed maximum operations in a JSON patch is 10000, got 10001"),
    ("a merge of a list", CONFIG_MAPS, "c", [], MERGE, 400, "error decoding patch"),
    ("another kind", CONFIG_MAPS, "c", {"kind": "Pod"}, MERGE, 400, "cannot be handled as a ConfigMap"),
    ("another name", CONFIG_MAPS, "c", {"metadata": {"name": "d"}}, MERGE, 400, "the name of the object (d) does not match the name on the URL (c)"),
    ("no name", CONFIG_MAPS, "c", {"metadata": None}, MERGE, 400, "the name of the object (c based on URL) was undeterminable: name must be provided"),
    ("another namespace", CONFIG_MAPS, "c", {"metadata": {"namespace": "d"}}, MERGE, 400, "the namespace of the provided object does not match"),
    ("no metadata", CONFIG_MAPS, "c", [{"op": "replace", "path": "/metadata", "value": 1}], JSON, 400, "metadata must be an object"),
    ("no object", CONFIG_MAPS, "none", {}, MERGE, 404, 'configmaps "none" not found'),
    ("strategic merge of a custom resource", WIDGETS, "w", {}, STRATEGIC, 415, "application/merge-patch+json"),
    ("server-side apply", CONFIG_MAPS, "c", {}, APPLY, 400, "invalid object type: /, Kind="),
]  # fmt: skip


@pytest.mark.parametrize(
    ("resource", "name", "patch", "media", "code", "text"), [c[1:] for c in REFUSED], ids=[c[0] for c in REFUSED]
)
def test_refusals(run: Run, resource: Resource, name: str, patch: Any, media: str, code: int, text: str) -> None:
    async def scenario(store: Store) -> ApiError:
        await store.create(CONFIG_MAPS, config(data={"a": "1"}), "default")
        await store.create(WIDGETS, widget(), "default")
        before = store.version
        with pytest.raises(ApiError) as caught:
            await store.patch(resource, name, patch, "default", type=media)
        assert store.version == before
        return caught.value

    error = run(scenario)
    assert error.code == code
    assert text in error.message
