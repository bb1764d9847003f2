"""Pod specs that differ in their node and token volume only are defaulted and validated as if each were alone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import msgspec
import pytest

from wharfinger.api.defaults.pods import default_pod, prepare_pod
from wharfinger.api.known_specs import KnownParts, KnownSpecs, spec_pattern
from wharfinger.api.validation.pods import pod_validator
from wharfinger.api.views.base import strip_nulls, without_null_members


def _pod(node: str, token: str, mount: str = "", **more: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "volumeMounts": [{"name": mount or token, "mountPath": "/t"}]}
    volumes = [{"name": token, "emptyDir": {}}]
    spec = {"nodeName": node, "containers": [container], "volumes": volumes, **more}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "d"}, "spec": spec}


def test_pods_on_other_nodes_get_the_same_defaults_and_keep_their_own_names() -> None:
    first, second = _pod("n1", "kube-api-access-aaaaa"), _pod("n2.example", "kube-api-access-bbbbb")
    default_pod(first)
    default_pod(second)
    assert second["spec"]["nodeName"] == "n2.example"
    assert second["spec"]["volumes"][0]["name"] == "kube-api-access-bbbbb"
    assert second["spec"]["containers"][0]["volumeMounts"][0]["name"] == "kube-api-access-bbbbb"
    text = msgspec.json.encode(second).replace(b"n2.example", b"n1").replace(b"bbbbb", b"aaaaa")
    assert msgspec.json.decode(text) == first


@pytest.mark.parametrize(
    "bad",
    [
        _pod("n1", "kube-api-access-aaaaa", "kube-api-access-bbbbb"),
        _pod("Not_A_Name", "kube-api-access-aaaaa"),
        _pod("n1", "kube-api-access-AAAAA"),
        _pod("n" * 300, "kube-api-access-aaaaa"),
        _pod("n1", "kube-api-access-aaaaa", nodeSelector={"nodeName": "x" * 64}),
    ],
)
def test_a_valid_pod_does_not_hide_the_faults_of_one_like_it(bad: dict[str, Any]) -> None:
    validate, alone = pod_validator(), pod_validator()
    for good in (
        _pod("n1", "kube-api-access-aaaaa"),
        _pod("n1", "kube-api-access-aaaaa", nodeSelector={"nodeName": "x"}),
    ):
        default_pod(good)
        assert validate(good, good) == []
        assert validate(good, good) == []
    default_pod(bad)
    told = alone(deepcopy(bad), deepcopy(bad))
    assert told
    assert validate(bad, bad) == told


def test_the_pattern_of_a_spec_can_be_filled_again() -> None:
    data = msgspec.json.encode(_pod("n1", "kube-api-access-xyz12")["spec"])
    pattern = spec_pattern(data)
    assert pattern.data != data
    assert pattern.filled(pattern.data) == data
    known = KnownSpecs()
    known.add(known.key(_pod("n1", "kube-api-access-xyz12")["spec"]))
    assert known.key(_pod("n3", "kube-api-access-00000")["spec"]) in known
    assert known.key(_pod("n3", "kube-api-access-00000", "other")["spec"]) not in known
    assert known.key({"a": object()}) not in known


def test_parts_are_looked_at_once_if_they_are_in_order() -> None:
    known, asked = KnownParts(), []

    def find(part: Any, path: str) -> Iterator[str]:
        asked.append(part)
        if part == "bad":
            yield f"{path}: bad"

    assert [list(known.faults(part, find, "p")) for part in ("good", "good", "bad")] == [[], [], ["p: bad"]]
    assert list(known.faults("bad", find, "q")) == ["q: bad"]
    assert asked == ["good", "bad", "bad"]


def test_the_class_of_a_malformed_pod_is_not_taken_for_that_of_others() -> None:
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "17m"}}}]
    malformed: dict[str, Any] = {"metadata": {}, "spec": {"containers": containers, "tolerations": "none"}}
    prepare_pod(malformed)
    pod: dict[str, Any] = {"metadata": {}, "spec": {"containers": containers}}
    prepare_pod(pod)
    assert pod["status"]["qosClass"] == "Burstable"


NAMES = [
    "a",
    "b",
    'x"y',
    "n\\",
    "null",
    ':null,"',
    '{"a":null}',
    ',"k":null',
    "{",
    ",",
    "",
    '\\"',
    '{"',
    '",',
    '":null',
    "k,",
]


def test_null_members_are_removed_from_json_as_from_documents() -> None:
    rng = random.Random(1)

    def value(depth: int) -> Any:
        kind = rng.random()
        if depth > 3 or kind < 0.35:
            return rng.choice([None, None, 1, True, ":null,x", *NAMES])
        if kind < 0.75:
            return {rng.choice(NAMES): value(depth + 1) for _ in range(rng.randint(0, 4))}
        return [value(depth + 1) for _ in range(rng.randint(0, 3))]

    whole = 0
    for _ in range(2000):
        document = {"r": value(0), rng.choice(NAMES): value(0)}
        left = msgspec.json.decode(without_null_members(msgspec.json.encode(document)))
        assert strip_nulls(left) == strip_nulls(document)
        whole += left == strip_nulls(document)
    assert whole > 1000  # few names are so odd that something stays
