"""Freed nodes: plans are valid by plain arithmetic, and as short as an exhaustive search finds them."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

import pytest
from tests.repack.worlds import Amounts, budget, inputs, node, pod, random_cluster, replica_set, sizes
from tests.support import require_module

from wharfinger.repack.finding import RepackOptions
from wharfinger.repack.plans import RepackGoal, RepackPlan
from wharfinger.simulate.inputs import BadInput
from wharfinger.simulate.repacking import repack


def plan(objects: list[dict[str, Any]], number: int, select: str = "", **options: Any) -> RepackPlan:
    return repack(inputs(objects), RepackGoal(number, select), RepackOptions(**options))


def check(objects: list[dict[str, Any]], found: RepackPlan, number: int) -> None:
    """The moves are possible one after the other, and free what the plan says."""
    nodes, pods = sizes(objects)
    at = {name: where for name, (where, _) in pods.items()}
    for move in found.moves:
        assert at[move.pod] == move.source
        at[move.pod] = move.target
        for place in range(2):
            used = sum(pods[name][1][place] for name, where in at.items() if where == move.target)
            assert used <= nodes[move.target][place]
    assert len(found.freed) == number
    assert not set(found.freed) & set(at.values())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("load", [0.5, 0.8])
def test_moves_are_possible_and_free_the_nodes(seed: int, load: float) -> None:
    objects = random_cluster(seed, 20, load)
    found = plan(objects, 3, proof=seed == 0)
    assert found.reached
    check(objects, found, 3)


@pytest.mark.parametrize("seed", range(8))
def test_plans_of_small_clusters_are_the_shortest(seed: int) -> None:
    objects = random_cluster(seed, 4, 0.75)
    nodes, pods = sizes(objects)
    least = shortest(nodes, pods, 1)
    found = plan(objects, 1, proof=False)
    if least is None:
        assert not found.reached
        return
    check(objects, found, 1)
    assert found.bound <= least
    assert found.cost == least or (found.cost == least + 1 and not found.optimal)


def shortest(nodes: dict[str, Amounts], pods: dict[str, tuple[str, Amounts]], number: int) -> int | None:
    """The least moves to free nodes by trying everything, with at most one pod moved out of the way."""
    best: int | None = None
    for freed in combinations(nodes, number):
        leaving = [name for name, (where, _) in pods.items() if where in freed]
        others = [name for name in pods if name not in leaving]
        for extra in ((), *((name,) for name in others)):
            moved = [*leaving, *extra]
            if best is not None and len(moved) >= best:
                continue
            targets = [name for name in nodes if name not in freed]
            if len(targets) ** len(moved) > 10_000:
                continue
            for choice in product(targets, repeat=len(moved)):
                at = {name: where for name, (where, _) in pods.items()} | dict(zip(moved, choice, strict=True))
                if all(
                    sum(pods[name][1][place] for name, where in at.items() if where == target) <= nodes[target][place]
                    for target in targets
                    for place in range(2)
                ):
                    best = len(moved)
                    break
    return best


def test_no_node_is_free_without_moves() -> None:
    found = plan([node("a", 4000, 8000), pod("x", "a", 100, 100)], 0)
    assert found.reached and found.optimal and not found.moves


def test_a_pod_moves_out_of_the_way() -> None:
    objects = [
        *(node("a", 4000, 8000, tier="old"), node("b", 4000, 8000), node("c", 2000, 8000)),
        *(replica_set("big", 1, 3000, 100), pod("big-0", "a", 3000, 100, owner="big")),
        *(replica_set("small", 1, 2000, 100), pod("small-0", "b", 2000, 100, owner="small")),
    ]
    found = plan(objects, 1, select="tier=old")
    check(objects, found, 1)
    assert [(move.pod, move.target) for move in found.moves] == [("default/small-0", "c"), ("default/big-0", "b")]
    assert not found.optimal  # that one move is not enough is not proven


def test_what_stands_in_the_way_is_told() -> None:
    kept = pod("kept-0", "a", 100, 100, owner="kept")
    kept["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
    objects = [
        *(node("a", 4000, 8000), node("b", 4000, 8000), budget("held", "100%")),
        *(replica_set("kept", 1, 100, 100), kept),
        *(replica_set("held", 1, 100, 100), pod("held-0", "b", 100, 100, owner="held")),
    ]
    found = plan(objects, 1)
    assert not found.reached
    assert "karpenter.sh/do-not-disrupt" in " ".join(found.blocked)
    assert "PodDisruptionBudget default/held allows no disruption" in " ".join(found.blocked)


def test_costly_pods_stay() -> None:
    costly = pod("costly-0", "a", 100, 100, owner="costly")
    costly["metadata"]["annotations"] = {"wharfinger.dev/disruption-cost": "5"}
    objects = [
        *(node("a", 4000, 8000), node("b", 4000, 8000)),
        *(replica_set("costly", 1, 100, 100), costly),
        replica_set("cheap", 2, 100, 100),
        *(pod(f"cheap-{number}", "b", 100, 100, owner="cheap") for number in range(2)),
    ]
    found = plan(objects, 1)
    assert found.freed == ["b"]
    assert (found.cost, found.bound, len(found.moves)) == (2, 2, 2)


def test_pods_whose_budget_allows_more_move_first() -> None:
    objects = [
        *(node("a", 4000, 8000), node("b", 4000, 8000), node("c", 4000, 8000)),
        *(replica_set("tight", 2, 100, 100), replica_set("loose", 4, 100, 100), budget("tight", 1), budget("loose", 1)),
        *(pod("tight-0", "a", 100, 100, owner="tight"), pod("loose-0", "b", 100, 100, owner="loose")),
        pod("tight-1", "c", 100, 100, owner="tight"),
        *(pod(f"loose-{number}", "c", 100, 100, owner="loose") for number in range(1, 4)),
    ]
    found = plan(objects, 1)
    assert found.reached and found.optimal
    assert (found.freed, found.cost, found.bound) == (["b"], 1, 1)
    assert found.document()["budgets"] == [{"name": "default/loose", "moves": 1, "allowed": 3}]


def test_a_cost_that_is_no_number_is_refused() -> None:
    wrong = pod("wrong-0", "a", 100, 100)
    wrong["metadata"]["annotations"] = {"wharfinger.dev/disruption-cost": "much"}
    with pytest.raises(BadInput, match="must be a positive number, not 'much'"):
        plan([node("a", 4000, 8000), wrong], 1)


def test_pods_of_daemon_sets_leave_with_their_node() -> None:
    daemon = pod("agent-0", "a", 100, 100)
    reference = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "uid-agent", "controller": True}
    daemon["metadata"]["ownerReferences"] = [reference]
    found = plan([node("a", 4000, 8000), daemon], 1)
    assert (found.freed, found.moves) == (["a"], [])


def test_all_nodes_of_a_group_are_freed() -> None:
    objects = [
        *(node("a", 4000, 8000, pool="old"), node("b", 4000, 8000, pool="old"), node("c", 4000, 8000, pool="new")),
        replica_set("web", 2, 1000, 100),
        *(pod(f"web-{index}", where, 1000, 100, owner="web") for index, where in enumerate("ab")),
    ]
    found = repack(inputs(objects), RepackGoal(None, "pool=old", all_selected=True), RepackOptions())
    assert found.freed == ["a", "b"]
    assert {move.target for move in found.moves} == {"c"}


def test_a_solver_finds_what_the_search_finds() -> None:
    require_module("ortools")
    costs = []
    for seed in range(6):
        objects = random_cluster(seed, 20, 0.85)
        own = plan(objects, 3, proof=False)
        best = plan(objects, 3, proof=False, solver_seconds=10.0)
        if best.reached:
            assert best.cost <= own.cost
            check(objects, best, 3)
            costs.append((own.cost, best.cost))
    assert sum(own for own, _ in costs) <= 1.1 * sum(best for _, best in costs)
