"""Strategic merge patches: one table of documents, patches and what comes of them."""

from __future__ import annotations

import json
import time
from copy import deepcopy
from typing import Any

import pytest

from wharfinger.api.errors import ApiError
from wharfinger.api.kinds import registry
from wharfinger.api.schema.tree import Schema, schema_of
from wharfinger.store.strategic import merged


def schema(name: str) -> Schema:
    kind = registry().find(name)
    assert kind is not None
    return schema_of(kind, kind.versions[0])


def containers(*items: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"containers": list(items)}}


A, B, C = {"name": "a", "image": "1"}, {"name": "b", "image": "1"}, {"name": "c", "image": "1"}

CASES: list[tuple[str, str, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ("scalars are set and null removes", "Pod", {"spec": {"x": 1, "y": 2}}, {"spec": {"x": 3, "y": None}}, {"spec": {"x": 3}}),
    ("null of an absent field is dropped", "Pod", {"spec": {}}, {"spec": {"a": {"b": None, "c": 1}}}, {"spec": {"a": {"c": 1}}}),
    ("containers merge by name", "Pod", containers(A, B), containers({"name": "b", "image": "2"}), containers(A, {"name": "b", "image": "2"})),
    ("a new container comes first, where the patch has it", "Pod", containers(A), containers(B), containers(B, A)),
    ("an element is deleted by its key", "Pod", containers(A, B), containers({"name": "a", "$patch": "delete"}), containers(B)),
    ("a list is replaced on demand", "Pod", containers(A, B), containers({"$patch": "replace"}, C), containers(C)),
    ("an object is replaced on demand", "Pod", {"spec": {"nodeSelector": {"a": "b"}}}, {"spec": {"nodeSelector": {"$patch": "replace", "c": "d"}}}, {"spec": {"nodeSelector": {"c": "d"}}}),
    ("an object is emptied on demand", "Pod", {"spec": {"nodeSelector": {"a": "b"}}}, {"spec": {"nodeSelector": {"$patch": "delete"}}}, {"spec": {"nodeSelector": {}}}),
    ("tolerations have no key and are replaced", "Pod", {"spec": {"tolerations": [{"key": "a"}]}}, {"spec": {"tolerations": [{"key": "b"}]}}, {"spec": {"tolerations": [{"key": "b"}]}}),
    ("env merges inside containers", "Pod", containers({"name": "a", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "1"}]}), containers({"name": "a", "env": [{"name": "Y", "value": "2"}]}), containers({"name": "a", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]})),
    ("ports merge by containerPort", "Pod", containers({"name": "a", "ports": [{"containerPort": 80}]}), containers({"name": "a", "ports": [{"containerPort": 80, "name": "http"}]}), containers({"name": "a", "ports": [{"containerPort": 80, "name": "http"}]})),
    ("a deployment's template is a pod's", "Deployment", {"spec": {"template": containers(A, B)}}, {"spec": {"template": containers({"name": "a", "image": "2"})}}, {"spec": {"template": containers({"name": "a", "image": "2"}, B)}}),
    ("conditions merge by type", "Node", {"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "r"}]}}, {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, {"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "r"}]}}),
    ("finalizers are added", "ConfigMap", {"metadata": {"finalizers": ["a/x", "b/x"]}}, {"metadata": {"finalizers": ["c/x"]}}, {"metadata": {"finalizers": ["c/x", "a/x", "b/x"]}}),
    ("finalizers are taken away", "ConfigMap", {"metadata": {"finalizers": ["a/x", "b/x"]}}, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a/x"]}}, {"metadata": {"finalizers": ["b/x"]}}),
    ("taking away from nothing is nothing", "ConfigMap", {"metadata": {}}, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a/x"]}}, {"metadata": {}}),
    ("owner references merge by uid", "Pod", {"metadata": {"ownerReferences": [{"uid": "1", "name": "a"}]}}, {"metadata": {"ownerReferences": [{"uid": "1", "controller": True}]}}, {"metadata": {"ownerReferences": [{"uid": "1", "name": "a", "controller": True}]}}),
    ("$retainKeys clears what it does not name", "Deployment", {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}, {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}, {"spec": {"strategy": {"type": "Recreate"}}}),
    ("$setElementOrder reorders", "Pod", containers(A, B, C), {"spec": {"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}], "containers": [{"name": "c", "image": "2"}]}}, containers(B, {"name": "c", "image": "2"}, A)),
    ("$setElementOrder alone reorders", "Pod", containers(A, B), {"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}}, containers(B, A)),
    ("$setElementOrder of nothing is nothing", "Pod", {"spec": {}}, {"spec": {"$setElementOrder/containers": [{"name": "b"}]}}, {"spec": {}}),
    ("directives do not survive a replacement", "Pod", containers(A), containers({"$patch": "replace"}, {"name": "b", "$setElementOrder/env": [{"name": "X"}], "env": [{"name": "X", "$patch": "delete"}, {"name": "Y", "value": None}]}), containers({"name": "b", "env": [{"name": "Y"}]})),
    ("a budget's selector is replaced", "PodDisruptionBudget", {"spec": {"selector": {"matchLabels": {"a": "b"}}}}, {"spec": {"selector": {"matchLabels": {"c": "d"}}}}, {"spec": {"selector": {"matchLabels": {"c": "d"}}}}),
    ("another type replaces", "Pod", {"spec": {"x": {"a": 1}}}, {"spec": {"x": [1]}}, {"spec": {"x": [1]}}),
    ("directives do not survive where nothing was", "Pod", {}, containers({"name": "a", "$patch": "delete"}, B), containers(B)),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "target", "patch", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])  # fmt: skip
def test_merging(kind: str, target: dict[str, Any], patch: dict[str, Any], expected: dict[str, Any]) -> None:
    assert merged(target, patch, schema(kind)) == expected


def directs(patch: dict[str, Any]) -> bool:
    text = json.dumps(patch)
    return "null" in text or '"$' in text


@pytest.mark.parametrize(
    ("kind", "target", "patch"), [pytest.param(*case[1:4], id=case[0]) for case in CASES if not directs(case[3])]
)
def test_a_patch_known_to_direct_nothing_merges_the_same(
    kind: str, target: dict[str, Any], patch: dict[str, Any]
) -> None:
    expected = merged(deepcopy(target), deepcopy(patch), schema(kind))
    assert merged(deepcopy(target), deepcopy(patch), schema(kind), plain=True) == expected


FAULTS: list[tuple[str, dict[str, Any], int, str]] = [
    ("no merge key", containers({"image": "x"}), 500, "does not contain declared merge key: name"),
    ("unknown directive", containers({"name": "a", "$patch": "shuffle"}), 500, "unknown patch type: shuffle"),
    ("unnamed retained key", {"spec": {"$retainKeys": ["a"], "b": 1}}, 400, "invalid patch format of retainKeys"),
    ("order without field", {"spec": {"$setElementOrder": []}}, 400, "invalid patch format of setElementOrder list"),
    ("deletion without field", {"spec": {"$deleteFromPrimitiveList": []}}, 400, "invalid patch format of primitive list"),
    ("order that contradicts", {"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}], "containers": [{"name": "a"}, {"name": "b"}]}}, 500, "doesn't match $setElementOrder list"),
]  # fmt: skip


@pytest.mark.parametrize(("patch", "code", "text"), [case[1:] for case in FAULTS], ids=[case[0] for case in FAULTS])
def test_refusing(patch: dict[str, Any], code: int, text: str) -> None:
    with pytest.raises(ApiError, match=r".*") as caught:
        merged(containers(A, B), patch, schema("Pod"))
    assert caught.value.code == code
    assert text in caught.value.message


MANY = [f"example.com/{number}" for number in range(20_000)]


@pytest.mark.parametrize(
    "patch",
    [
        containers({"name": "a", "env": [{"name": name, "value": "2"} for name in MANY]}),
        containers({"name": "a", "env": [{"name": name, "value": "2"} for name in reversed(MANY)]}),
        containers({"name": "a", "env": [{"name": name, "$patch": "delete"} for name in MANY]}),
        containers({"name": "a", "env": [], "$setElementOrder/env": [{"name": name} for name in MANY]}),
        containers({"name": "a", "$retainKeys": ["name", *MANY]}),
        {"metadata": {"finalizers": MANY}},
        {"metadata": {"$setElementOrder/finalizers": MANY, "finalizers": MANY}},
        {"metadata": {"$deleteFromPrimitiveList/finalizers": MANY}},
    ],
    ids=[
        "items",
        "items in another order",
        "deletions",
        "order",
        "keys",
        "values",
        "values in order",
        "deleted values",
    ],
)
@pytest.mark.parametrize("plain", [False, True])
def test_the_time_of_a_merge_grows_with_the_lists_only(patch: dict[str, Any], plain: bool) -> None:
    """Comparing each item with each other would take minutes."""
    if plain and "$" in json.dumps(patch):
        pytest.skip("a plain patch has no directives")
    target = containers({"name": "a", "env": [{"name": name, "value": "1"} for name in MANY]})
    target["metadata"] = {"finalizers": [*MANY]}
    started = time.process_time()
    merged(target, deepcopy(patch), schema("pods"), plain=plain)
    assert time.process_time() - started < 2
