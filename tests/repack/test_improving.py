"""Pods that go to better places."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.repack.worlds import inputs, node, pod, replica_set

from wharfinger.repack.finding import RepackOptions
from wharfinger.repack.plans import RepackGoal
from wharfinger.simulate.inputs import BadInput
from wharfinger.simulate.repacking import repack

ZONE = "topology.kubernetes.io/zone"


def test_zones_become_even() -> None:
    objects = [
        *(node(f"{zone}{index}", 4000, 8000, **{ZONE: zone}) for zone in "abc" for index in range(2)),
        replica_set("web", 6, 1000, 100),
        *(pod(f"web-{index}", f"a{index % 2}", 1000, 100, owner="web") for index in range(6)),
    ]
    found = repack(inputs(objects), RepackGoal(even_zones=True), RepackOptions())
    assert found.reached
    assert Counter(move.target[0] for move in found.moves) == {"b": 2, "c": 2}
    assert (found.before, found.after) == (5, 0)
    assert found.moves[0].why == "evens out the zones of ReplicaSet default/web"


def with_gpus(found: dict[str, Any], number: int) -> dict[str, Any]:
    if found["kind"] == "Node":
        for part in ("allocatable", "capacity"):
            found["status"][part] = {**found["status"][part], "example.com/gpu": str(number)}
        return found
    spec = found["spec"]["template"]["spec"] if found["kind"] == "ReplicaSet" else found["spec"]
    amounts = {"example.com/gpu": str(number)}
    resources = spec["containers"][0]["resources"]
    spec["containers"][0]["resources"] = {"requests": {**resources["requests"], **amounts}, "limits": amounts}
    return found


def test_a_resource_is_gathered_on_fewer_nodes() -> None:
    objects = [
        *(with_gpus(node(name, 8000, 8000), 8) for name in "abc"),
        with_gpus(replica_set("train", 3, 1000, 100), 2),
        *(with_gpus(pod(f"train-{name}", name, 1000, 100, owner="train"), 2) for name in "abc"),
    ]
    found = repack(inputs(objects), RepackGoal(defragment="example.com/gpu"), RepackOptions())
    assert found.reached
    assert (found.before, found.after, len(found.moves)) == (3, 1, 2)
    assert len({move.target for move in found.moves}) == 1


def test_a_resource_that_nothing_has_is_refused() -> None:
    with pytest.raises(BadInput, match=r"no node and no pod has example\.com/none"):
        repack(inputs([node("a", 4000, 8000)]), RepackGoal(defragment="example.com/none"), RepackOptions())


def test_pods_go_back_to_the_better_unit() -> None:
    policy = {
        "apiVersion": "scheduling.sigs.x-k8s.io/v1alpha1",
        "kind": "ResourcePolicy",
        "metadata": {"name": "web", "namespace": "default", "uid": "uid-policy"},
        "spec": {
            "podSelector": {"matchLabels": {"app": "web"}},
            "units": [
                {"name": "fixed", "priority": 2, "nodeSelector": {"matchLabels": {"pool": "fixed"}}},
                {"name": "spot", "priority": 1, "nodeSelector": {"matchLabels": {"pool": "spot"}}},
            ],
        },
    }
    objects = [
        *(node("f", 4000, 8000, pool="fixed"), node("s", 4000, 8000, pool="spot"), policy),
        replica_set("web", 2, 1000, 100),
        *(pod(f"web-{name}", name, 1000, 100, owner="web") for name in "fs"),
    ]
    found = repack(inputs(objects), RepackGoal(restore_order=True), RepackOptions())
    assert found.reached
    assert [(move.pod, move.target) for move in found.moves] == [("default/web-s", "f")]
