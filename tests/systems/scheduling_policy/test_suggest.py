"""The suggested policy admits exactly what it was made from, and little else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.systems.scheduling_policy.policies import hard, is_in, pod, refusal, world

from wharfinger.systems.scheduling_policy.kinds.validation import validate_policy
from wharfinger.systems.scheduling_policy.kinds.views import HARD, SOFT
from wharfinger.systems.scheduling_policy.rules.suggest import suggest

TERM = {"topologyKey": "zone"}


def test_what_all_ask_for_is_required_and_what_some_ask_for_allowed() -> None:
    pods = [
        pod({"nodeSelector": {"arch": "amd64", "disk": "ssd"}, "priorityClassName": "gold", "nodeName": "n1"}),
        pod({"nodeSelector": {"arch": "arm64"}, "priorityClassName": "iron", "schedulerName": "x"}),
    ]
    assert suggest("p", pods)["spec"] == {
        "required": {
            "schedulerNames": ["default-scheduler", "x"],
            "priorityClasseNames": ["gold", "iron"],
            "nodeSelectors": {"arch": ["amd64", "arm64"]},
        },
        "allowed": {"nodeSelectors": {"disk": ["ssd"]}},
    }
    assert "required" not in suggest("p", pods, requiring=False)["spec"]


def test_affinity_that_all_have_is_required() -> None:
    arch, disk = is_in("arch", "amd64"), is_in("disk", "ssd", "hdd")
    anti = {"podAntiAffinity": {HARD: [TERM]}}
    pods = [
        pod({"affinity": {**hard([arch, disk]), **anti}}),
        pod({"affinity": {**hard([disk, arch], [arch]), **anti}}),
    ]
    patterns = [{"keys": ["arch"], "operators": ["In"], "values": ["amd64"]}]
    others = [{"keys": ["disk"], "operators": ["In"], "values": ["hdd", "ssd"]}]
    spec = suggest("p", pods)["spec"]
    assert spec["required"]["affinities"] == {
        "nodeAffinities": {HARD: {"nodeSelectorTerms": [{"matchExpressions": patterns}]}},
        "podAntiAffinities": {HARD: {}},
    }
    assert spec["allowed"]["affinities"] == {
        "nodeAffinities": {HARD: {"nodeSelectorTerms": [{"matchExpressions": others}]}}
    }


def test_what_the_system_adds_is_left_out() -> None:
    seconds = {
        "key": "node.kubernetes.io/not-ready",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    owners = [{"kind": "DaemonSet", "name": "d", "controller": True}]
    daemon = pod(
        {"affinity": hard({"matchFields": [is_in("metadata.name", "n")]}), "tolerations": [seconds]},
        ownerReferences=owners,
    )
    spec = suggest("p", [daemon, pod({"priorityClassName": "std"})], global_class="std")["spec"]
    assert spec == {"required": {"schedulerNames": ["default-scheduler"]}}


WISHES = {
    "nodeSelector": st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy"), max_size=2),
    "schedulerName": st.sampled_from(["s1", "s2"]),
    "priorityClassName": st.sampled_from(["gold", "iron"]),
    "tolerations": st.lists(
        st.sampled_from(
            [
                {"key": "a", "operator": "Exists"},
                {"key": "a", "value": "b", "effect": "NoSchedule"},
                {"operator": "Exists"},
                {"key": "c", "operator": "Equal", "value": "", "effect": "NoExecute", "tolerationSeconds": 3},
            ]
        ),
        max_size=2,
    ),
    "affinity": st.sampled_from(
        [
            hard([is_in("a", "x")]),
            hard([is_in("a", "x")], [is_in("b", "y", "z"), {"key": "c", "operator": "Exists"}]),
            hard({"matchFields": [is_in("metadata.name", "n")]}),
            {"podAntiAffinity": {HARD: [TERM]}},
            {"podAffinity": {SOFT: [{"weight": 1, "podAffinityTerm": TERM}]}},
            {"nodeAffinity": {SOFT: [{"weight": 1, "preference": {"matchExpressions": [is_in("a", "x")]}}]}},
        ]
    ),
}


@settings(max_examples=150, deadline=None)
@given(st.lists(st.fixed_dictionaries({}, optional=WISHES), min_size=1, max_size=4), st.booleans())
def test_it_admits_everything_it_was_made_from(specs: list[dict[str, Any]], requiring: bool) -> None:
    made = suggest("p", [pod(spec) for spec in specs], requiring=requiring)
    assert validate_policy(made) == []
    for spec in specs:
        assert not refusal(world(made), pod(spec))


def without_one(given: Any) -> Iterator[Any]:
    """The same with one entry less. What gets empty goes too, since empty would stand for anything, and patterns go as a
    whole, since with a part less they would cover more."""
    if not isinstance(given, dict | list) or "operators" in given:
        return
    entries = list(given.items() if isinstance(given, dict) else enumerate(given))
    for key, value in entries:
        for less in (*without_one(value), None):
            kept = [(other, less if other == key else each) for other, each in entries if other != key or less]
            yield dict(kept) if isinstance(given, dict) else [each for _, each in kept]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.fixed_dictionaries({}, optional=WISHES), min_size=1, max_size=4))
def test_nothing_in_it_can_be_spared(specs: list[dict[str, Any]]) -> None:
    made = suggest("p", [pod(spec) for spec in specs], requiring=False)
    for less in without_one(made["spec"]):
        tighter = {**made, "spec": less}
        assert any(refusal(world(tighter), pod(spec)) for spec in specs), less


@pytest.mark.parametrize(
    "other",
    [
        {"nodeSelector": {"arch": "arm64"}},
        {"nodeSelector": {"arch": "amd64"}, "schedulerName": "x"},
        {"nodeSelector": {"arch": "amd64"}, "tolerations": [{"key": "a", "operator": "Exists"}]},
        {},
    ],
)
def test_it_refuses_what_differs(other: dict[str, Any]) -> None:
    seen = {"nodeSelector": {"arch": "amd64"}, "tolerations": [{"key": "a", "value": "b"}]}
    assert refusal(world(suggest("p", [pod(seen)])), pod(other))
