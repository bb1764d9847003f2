"""Data that version 0.1 wrote, in today's version: every object is there, and can be changed. See README.md."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.apiserver.running import Api, serving

from wharfinger.api.kinds import registry
from wharfinger.api.registry import Document

DATA = Path(__file__).parent / "0.1"
OBJECTS: list[Document] = json.loads(gzip.decompress((DATA / "objects.json.gz").read_bytes()))
DEFINITIONS: list[Document] = json.loads(gzip.decompress((DATA / "definitions.json.gz").read_bytes()))["items"]
# The server itself keeps these up to date at every start.
SHIPPED = {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "PriorityClass"}

# Open Cluster Management's definitions require them, too. A Placement without scoreCoordinate was never decided: it was
# PlacementMisconfigured. Decisions are written by the controller, always with these fields.
NARROWED = {
    "Placement .spec became required",
    "Placement .spec.prioritizerPolicy.configurations[].scoreCoordinate became required",
    "PlacementDecision .status.decisions became required",
    "PlacementDecision .status.decisions[].reason became required",
}
# Without them, a requirement was refused by the rules of selectors.
OF_REQUIREMENTS = ("matchExpressions[].key became required", "matchExpressions[].operator became required")


def put(directory: Path) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    (directory / "state.db").write_bytes(gzip.decompress((DATA / "state.db.gz").read_bytes()))


@pytest.fixture(scope="module")
def upgraded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    directory = tmp_path_factory.mktemp("upgraded") / "data"
    put(directory)
    with serving(directory) as api:
        yield api


def path(document: Document) -> str:
    version, kind = document["apiVersion"], document["kind"]
    group = version.rpartition("/")[0]
    found = next((each for each in registry() if each.kind == kind and group in (each.group, *each.alias_groups)), None)
    plural = found.plural if found is not None else f"{kind.lower()}s"
    namespace = document["metadata"].get("namespace")
    parts = ["/apis" if group else "/api", version, *(("namespaces", namespace) if namespace else ()), plural]
    return "/".join([*parts, document["metadata"]["name"]])


def has(now: Any, then: Any) -> bool:
    """Whether everything that was there is there; fields may have been added, such as defaults."""
    if isinstance(then, dict):
        return isinstance(now, dict) and all(name in now and has(now[name], value) for name, value in then.items())
    if isinstance(then, list):
        return isinstance(now, list) and len(now) == len(then) and all(map(has, now, then))
    return bool(now == then)


def test_every_object_is_there_as_it_was(upgraded: Api) -> None:
    lost = []
    for document in OBJECTS:
        answer = upgraded.ask("GET", path(document))
        kept = ("uid", "creationTimestamp", "labels", "ownerReferences", "finalizers", "deletionTimestamp")
        then = {"metadata": {name: document["metadata"][name] for name in kept if name in document["metadata"]}}
        if document["kind"] not in SHIPPED:
            then |= {part: document[part] for part in ("spec", "data", "status") if part in document}
        if answer.status != 200 or not has(answer.json, then):
            lost.append((path(document), answer.status))

    assert lost == []


def test_every_object_can_be_changed(upgraded: Api) -> None:
    refused = []
    for document in OBJECTS:
        body = {"metadata": {"annotations": {"upgraded": "true"}}}
        answer = upgraded.ask("PATCH", path(document), body, media="application/merge-patch+json")
        if answer.status != 200:
            refused.append((path(document), answer.message))

    assert refused == []


def test_versions_go_on_and_watches_begin(upgraded: Api) -> None:
    highest = max(int(document["metadata"]["resourceVersion"]) for document in OBJECTS)
    made = upgraded.create("/api/v1/namespaces/sample/configmaps", {"metadata": {"name": "new"}})

    assert int(made["metadata"]["resourceVersion"]) > highest


def test_a_second_start_finds_the_same(tmp_path: Path) -> None:
    put(tmp_path / "data")
    with serving(tmp_path / "data") as api:
        api.create("/api/v1/namespaces/sample/configmaps", {"metadata": {"name": "new"}})
        before = api.get("/api/v1/pods")
    with serving(tmp_path / "data") as api:
        assert api.get("/api/v1/namespaces/sample/configmaps/new")["metadata"]["name"] == "new"
        assert [pod["metadata"] for pod in api.get("/api/v1/pods")["items"]] == [
            pod["metadata"] for pod in before["items"]
        ]


def test_definitions_still_serve_every_version_that_may_be_stored() -> None:
    today = {f"{kind.plural}.{kind.group}": kind for kind in registry() if kind.ours}
    for definition in DEFINITIONS:
        kind = today[definition["metadata"]["name"]]
        names = {version["name"] for version in definition["spec"]["versions"]}
        assert names <= set(kind.versions), kind.kind
        assert (kind.namespaced, kind.kind) == (
            definition["spec"]["scope"] == "Namespaced",
            definition["spec"]["names"]["kind"],
        )


def test_schemas_keep_every_field_and_require_no_new_one() -> None:
    """An object that 0.1 accepted has only fields that still exist, with the same type, and none that is missing now."""
    today = {f"{kind.plural}.{kind.group}": kind for kind in registry() if kind.ours}
    faults: set[str] = set()
    for definition in DEFINITIONS:
        kind = today[definition["metadata"]["name"]]
        assert kind.schema is not None
        for version in definition["spec"]["versions"]:
            then, now = version["schema"]["openAPIV3Schema"], kind.schema(version["name"])
            faults |= {f"{kind.kind} {fault}" for fault in narrowed(then, now)}

    assert {fault for fault in faults if not fault.endswith(OF_REQUIREMENTS)} == NARROWED


def narrowed(then: Document, now: Document, where: str = "") -> Iterator[str]:
    """Where a schema accepts less than an older one, as far as fields and types go."""
    if now.get("x-kubernetes-int-or-string"):
        return  # takes what was a text or a number
    if then.get("type") != now.get("type"):
        yield f"{where}: {then.get('type')} became {now.get('type')}"
        return
    added = set(now.get("required") or ()) - set(then.get("required") or ())
    added -= {name for name in added if "default" in now["properties"][name]}
    yield from (f"{where}.{name} became required" for name in sorted(added) if name in (then.get("properties") or {}))
    for name, field in (then.get("properties") or {}).items():
        if name in (now.get("properties") or {}):
            yield from narrowed(field, now["properties"][name], f"{where}.{name}")
        elif now.get("properties") and not now.get("x-kubernetes-preserve-unknown-fields"):
            yield f"{where}.{name} is gone"
    for inner in ("items", "additionalProperties"):
        if isinstance(then.get(inner), dict) and isinstance(now.get(inner), dict):
            yield from narrowed(then[inner], now[inner], f"{where}[]")
