"""Room for pods that wait."""

from __future__ import annotations

import pytest
from tests.repack.worlds import budget, inputs, node, pod, replica_set

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


def test_of_equal_pods_the_one_moves_whose_budget_allows_more() -> None:
    objects = [
        *(node("a", 4000, 8000), node("b", 4000, 8000)),
        *(
            replica_set("loose", 3, 1500, 100),
            budget("loose", 1),
            replica_set("close", 1, 1500, 100),
            budget("close", 0),
        ),
        *(pod("close-0", "a", 1500, 100, owner="close"), pod("loose-0", "a", 1500, 100, owner="loose")),
        *(pod(f"loose-{number}", "b", 1100, 100, owner="loose") for number in (1, 2)),
        pod("waits", "", 2500, 100),
    ]
    found = repack(inputs(objects), ROOM, RepackOptions())
    assert [move.pod for move in found.moves] == ["default/loose-0"]
    assert found.document()["budgets"] == [{"name": "default/loose", "moves": 1, "allowed": 2}]


def test_any_number_of_pods_leaves_a_node() -> None:
    objects = [
        *(node("a", 4000, 8000), node("b", 2000, 8000), node("c", 2000, 8000)),
        *(replica_set("small", 8, 500, 100), pod("waits", "", 4000, 100)),
        *(pod(f"small-{number}", "a", 500, 100, owner="small") for number in range(8)),
    ]
    found = repack(inputs(objects), ROOM, RepackOptions())
    assert found.reached and found.optimal
    assert (len(found.moves), found.bound, found.started) == (8, 8, {"default/waits": "a"})


def test_pods_that_cost_less_together_leave_instead_of_one() -> None:
    dear, kept = pod("dear-0", "a", 1500, 100, owner="dear"), pod("kept", "a", 1000, 100)
    dear["metadata"]["annotations"] = {"wharfinger.dev/disruption-cost": "5"}
    kept["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
    objects = [
        *(node("a", 4000, 8000, pool="here"), node("b", 4000, 8000), kept),
        *(replica_set("dear", 1, 1500, 100), dear, replica_set("cheap", 2, 750, 100)),
        *(pod(f"cheap-{number}", "a", 750, 100, owner="cheap") for number in range(2)),
        pod("waits", "", 1500, 100, nodeSelector={"pool": "here"}),
    ]
    found = repack(inputs(objects), ROOM, RepackOptions())
    assert {move.pod for move in found.moves} == {"default/cheap-0", "default/cheap-1"}
    assert (found.cost, found.bound, found.optimal) == (2, 2, True)


def test_pods_that_fit_start_and_are_not_moved() -> None:
    objects = [
        *(node("a", 4000, 8000), node("b", 4000, 8000), pod("fits", "", 1000, 100)),
        *(replica_set("web", 1, 1000, 100), pod("web-0", "a", 1000, 100, owner="web")),
        *(replica_set("db", 2, 1000, 100), *(pod(f"db-{each}", "b", 1000, 100, owner="db") for each in range(2))),
    ]
    found = repack(inputs(objects), RepackGoal(1), RepackOptions())
    assert [(move.pod, move.target) for move in found.moves] == [("default/web-0", "b")]
    assert (found.freed, found.started, found.surprise) == (["a"], {"default/fits": "b"}, "")
    named = repack(inputs(objects), RepackGoal(room=True, room_for=("default/fits",)), RepackOptions())
    assert named.reached and not named.moves and named.started.keys() == {"default/fits"}


def test_gated_pods_need_no_room() -> None:
    gated = pod("gated", "", 4000, 100, schedulingGates=[{"name": "example.com/later"}])
    objects = [node("a", 4000, 8000), pod("here", "a", 1000, 100), gated]
    found = repack(inputs(objects), ROOM, RepackOptions())
    assert found.reached and not found.moves and not found.started
    named = repack(inputs(objects), RepackGoal(room=True, room_for=("default/gated",)), RepackOptions())
    assert named.blocked == ["default/gated: waiting for scheduling gates: [example.com/later]"]


def test_a_workload_gets_room_for_all_its_waiting_pods() -> None:
    objects = [
        *(node("a", 4000, 8000), node("b", 4000, 8000), node("c", 4000, 8000)),
        replica_set("small", 2, 1000, 100),
        *(pod(f"small-{name}", name, 1000, 100, owner="small") for name in ("a", "b")),
        *(replica_set("other", 1, 1000, 100), pod("other-c", "c", 1000, 100, owner="other")),
        replica_set("big", 2, 3500, 100),
        *(pod(f"big-{number}", "", 3500, 100, owner="big") for number in range(2)),
        pod("alone", "", 3500, 100),
    ]
    goal = RepackGoal(room=True, room_for=("replicaset/default/big",))
    found = repack(inputs(objects), goal, RepackOptions(proof=False))
    assert found.reached, found.blocked
    assert {"default/big-0", "default/big-1"} <= found.started.keys()
    assert "default/alone" not in found.started


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("replicaset/default/none", "there is no ReplicaSet default/none"),
        ("replicaset/default/idle", "no pod of ReplicaSet default/idle waits for a node"),
        ("node/default/a", "want NAMESPACE/POD, or KIND/NAMESPACE/NAME of a workload"),
        ("replicaset/default/", "want NAMESPACE/POD, or KIND/NAMESPACE/NAME of a workload"),
    ],
)
def test_a_workload_without_waiting_pods_is_refused(text: str, message: str) -> None:
    goal = RepackGoal(room=True, room_for=(text,))
    with pytest.raises(BadInput, match=message):
        repack(inputs([node("a", 4000, 8000), replica_set("idle", 0, 100, 100)]), goal, RepackOptions())


def test_a_pod_that_does_not_wait_is_refused() -> None:
    goal = RepackGoal(room=True, room_for=("default/none",))
    with pytest.raises(BadInput, match="no pod default/none waits for a node"):
        repack(inputs([node("a", 4000, 8000)]), goal, RepackOptions())
