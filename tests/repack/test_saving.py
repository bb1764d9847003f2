"""Freeing the nodes that save most money."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.repack.worlds import inputs, node, pod, random_cluster, replica_set, sizes

from wharfinger.cli.commands.repack import command
from wharfinger.repack.finding import RepackOptions
from wharfinger.repack.plans import RepackGoal, RepackPlan
from wharfinger.simulate.repacking import repack


def saved(objects: list[dict[str, object]], prices: dict[str, float], *, proof: bool = False) -> RepackPlan:
    return repack(inputs(objects), RepackGoal(save_cost=True), RepackOptions(prices=prices, proof=proof))


def test_the_dear_node_is_freed_and_not_the_one_with_fewest_pods() -> None:
    objects = [node("dear", 4000, 8000), node("cheap", 4000, 8000)]
    for name, where in (("a", "dear"), ("b", "dear"), ("c", "cheap")):
        objects += [replica_set(name, 1, 1000, 100), pod(f"{name}-0", where, 1000, 100, owner=name)]
    found = saved(objects, {"dear": 2.0, "cheap": 1.0}, proof=True)
    assert (found.freed, found.saved, found.optimal, found.surprise) == (["dear"], 2.0, True, "")
    assert found.document()["saved"] == {"perHour": 2, "most": 2}


@pytest.mark.parametrize("seed", range(6))
def test_no_plan_saves_more_than_the_bound_and_every_move_fits(seed: int) -> None:
    objects = random_cluster(seed, 8, 0.55)
    nodes, pods = sizes(objects)
    prices = {name: round(cpu / 4000 + index * 0.1, 2) for index, (name, (cpu, _)) in enumerate(nodes.items())}
    found = saved(objects, prices)
    assert 0 < found.saved == pytest.approx(sum(prices[name] for name in found.freed))
    assert found.saved <= found.most_saved + 1e-9
    where = {name: place for name, (place, _) in pods.items()}
    for move in found.moves:
        assert where[move.pod] == move.source
        where[move.pod] = move.target
        for name, (cpu, memory) in nodes.items():
            there = [pods[each][1] for each, place in where.items() if place == name]
            assert sum(need for need, _ in there) <= cpu and sum(need for _, need in there) <= memory
    assert not set(found.freed) & set(where.values())


def test_nodes_without_a_price_save_nothing() -> None:
    found = saved([node("a", 4000, 8000)], {})
    assert not found.reached and list(found.blocked) == ["none of the nodes has a price"]


def test_the_command_needs_prices(tmp_path: Path) -> None:
    first = node("a", 4000, 8000, **{"node.kubernetes.io/instance-type": "m"})
    (tmp_path / "c.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [first]}))
    (tmp_path / "p.csv").write_text("type,price\nm,0.5\n")
    given = ["--cluster", str(tmp_path / "c.json"), "--save-cost"]
    assert CliRunner().invoke(command, given).exit_code == 2
    result = CliRunner().invoke(command, [*given, "--prices", str(tmp_path / "p.csv")])
    assert result.exit_code == 0
    assert "a is empty: removing it saves 0.5 per hour; no plan saves more" in result.stdout
