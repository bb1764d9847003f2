"""Room for pods that wait."""

from __future__ import annotations

import pytest
from tests.repack.worlds import inputs, node, pod, replica_set

from wharfinger.repack.finding import RepackOptions
from wharfinger.repack.plans import RepackGoal
from wharfinger.simulate.inputs import BadInput
from wharfinger.simulate.repacking import repack

ROOM = RepackGoal(room=True)


def test_the_smallest_pod_that_helps_moves() -> None:
    objects = [
        *(node("a", 4000, 8000), node("b", 4000, 8000)),
        *(replica_set("half", 1, 2000, 100), pod("half-0", "a", 2000, 100, owner="half")),
        *(replica_set("third", 1, 1500, 100), pod("third-0", "a", 1500, 100, owner="third")),
        *(replica_set("most", 1, 2500, 100), pod("most-0", "b", 2500, 100, owner="most")),
        pod("waits", "", 2000, 100),
    ]
    found = repack(inputs(objects), ROOM, RepackOptions())
    assert found.reached and found.optimal
    assert [(move.pod, move.source, move.target) for move in found.moves] == [("default/third-0", "a", "b")]
    assert found.started == {"default/waits": "a"}
    assert found.moves[0].why == "makes room for default/waits"


def test_a_pod_that_no_move_helps_is_told() -> None:
    objects = [node("a", 4000, 8000), pod("huge", "", 5000, 100)]
    found = repack(inputs(objects), ROOM, RepackOptions())
    assert not found.reached
    assert found.blocked == ["default/huge: it fits on no node, even an empty one"]


def test_a_pod_that_does_not_wait_is_refused() -> None:
    goal = RepackGoal(room=True, room_for=("default/none",))
    with pytest.raises(BadInput, match="no pod default/none waits for a node"):
        repack(inputs([node("a", 4000, 8000)]), goal, RepackOptions())
