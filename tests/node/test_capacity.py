"""What a simulated kubelet makes allocatable when the capacity of its node is patched."""

from __future__ import annotations

import pytest
from tests.controllers.world import World

from wharfinger.api.kinds.builtin import NODES
from wharfinger.api.registry import Document
from wharfinger.api.views.nodes import NodeStatus
from wharfinger.node.capacity import changed_allocatable

DONGLE = "example.com/dongle"


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        pytest.param(({}, {}), ({DONGLE: "4"}, {}), {DONGLE: "4"}, id="a new resource is allocatable"),
        pytest.param(({DONGLE: "4"}, {DONGLE: "4"}), ({}, {DONGLE: "4"}), {DONGLE: None}, id="a removed one is not"),
        pytest.param(({"cpu": "4"}, {"cpu": "4"}), ({}, {"cpu": "4"}), {}, id="only extended resources are removed"),
        pytest.param(
            ({"cpu": "8"}, {"cpu": "7500m"}),
            ({"cpu": "4"}, {"cpu": "7500m"}),
            {"cpu": "3500m"},
            id="less what is reserved",
        ),
        pytest.param(({"cpu": "8"}, {"cpu": "2"}), ({"cpu": "4"}, {"cpu": "2"}), {"cpu": "0"}, id="never negative"),
        pytest.param(({"cpu": "8"}, {"cpu": "8"}), ({"cpu": "4"}, {"cpu": "3"}), {}, id="both were given"),
        pytest.param(({"cpu": "8"}, {"cpu": "8"}), ({"cpu": "8"}, {"cpu": "3"}), {}, id="capacity is the same"),
        pytest.param(
            ({"memory": "8Gi"}, {"memory": "8Gi"}),
            ({"memory": "4Gi"}, {"memory": "8Gi"}),
            {"memory": "4Gi"},
            id="notation",
        ),
    ],
)
def test_allocatable_follows_capacity(
    old: tuple[dict[str, str], dict[str, str]],
    new: tuple[dict[str, str], dict[str, str]],
    changes: dict[str, str | None],
) -> None:
    before, after = (NodeStatus(capacity=capacity, allocatable=allocatable) for capacity, allocatable in (old, new))
    assert changed_allocatable(before, after) == changes


def status(world: World, name: str = "node-1") -> Document:
    found: Document = world.get(NODES, name)["status"]
    return found


@pytest.mark.parametrize("heartbeats", [False, True])
def test_patched_capacity_stays_and_becomes_allocatable(heartbeats: bool) -> None:
    with World(nodes=1, heartbeats=heartbeats) as world:
        patch = {"status": {"capacity": {DONGLE: "1000"}}}
        world.patch(NODES, "node-1", patch, subresource="status")
        assert status(world)["capacity"][DONGLE] == status(world)["allocatable"][DONGLE] == "1k"
        world.advance(600)
        assert status(world)["allocatable"][DONGLE] == "1k"
        world.patch(NODES, "node-1", {"status": {"capacity": {DONGLE: None}}}, subresource="status")
        assert DONGLE not in status(world)["allocatable"]


def test_a_node_that_is_down_reports_when_it_is_back() -> None:
    with World(nodes=1) as world:
        world.node("node-1", down=True)
        world.patch(NODES, "node-1", {"status": {"capacity": {DONGLE: "3"}}}, subresource="status")
        assert DONGLE not in status(world)["allocatable"]
        world.node("node-1", down=False)
        assert status(world)["allocatable"][DONGLE] == "3"


def test_a_restarted_kubelet_adds_what_is_missing() -> None:
    with World(nodes=1) as world:
        world.node("node-1", down=True)
        world.patch(NODES, "node-1", {"status": {"capacity": {DONGLE: "3"}}}, subresource="status")
        world.restart()
        world.node("node-1", down=False)
        assert status(world)["allocatable"][DONGLE] == "3"
