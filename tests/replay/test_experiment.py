"""The openb experiment and its command, on the generated trace of the examples."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.support import wharf_here

from wharfinger.plugins.device_packing.registry import POLICIES
from wharfinger.replay.experiment import DEMAND, arrival_order, kinds_of, run_experiment
from wharfinger.replay.importing import read_trace
from wharfinger.replay.openb import OpenbTrace, read_openb

FOLDER = Path(__file__).parents[2] / "examples" / "replay"
NODES, PODS = str(FOLDER / "nodes.csv"), str(FOLDER / "pods.csv")
COMMAND = ("replay", "--format", "openb", "--nodes", NODES, "--pods", PODS)


@pytest.fixture(scope="module")
def trace() -> OpenbTrace:
    return read_openb(Path(NODES), Path(PODS))


def test_pods_arrive_until_they_ask_for_more_than_there_is(trace: OpenbTrace) -> None:
    kinds, kind_of = kinds_of(trace)

    arrivals = arrival_order(trace, kind_of, kinds, np.random.default_rng(1))

    demand = [kinds[each].demand.total for each in arrivals.tolist()]
    limit = trace.capacity * DEMAND // 100
    assert limit - 8000 < sum(demand) <= limit + 8000
    # All pods of the trace come first, in another order.
    assert sorted(arrivals[: len(trace.pods)].tolist()) == sorted(kind_of.tolist())
    assert arrivals[: len(trace.pods)].tolist() != kind_of.tolist()


def test_a_trace_that_asks_for_too_much_is_thinned_out(trace: OpenbTrace) -> None:
    small = OpenbTrace(trace.nodes[:20], trace.pods)
    kinds, kind_of = kinds_of(small)

    arrivals = arrival_order(small, kind_of, kinds, np.random.default_rng(1))

    assert len(arrivals) < len(small.pods)
    assert sum(kinds[each].demand.total for each in arrivals.tolist()) <= small.capacity * DEMAND / 100


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_allocated_and_fragmented_adds_up(trace: OpenbTrace, policy: str) -> None:
    result = run_experiment(trace, policy, 42)

    for mark in (80, 100, 130):
        assert 0 < result.allocated[mark] <= min(mark + 1, 100)
        assert 0 <= result.fragmented[mark] <= 100 - result.allocated[mark] + 1e-9
    assert result.allocated[80] < result.allocated[100] <= result.allocated[130]


def test_the_same_seed_gives_the_same_result(trace: OpenbTrace) -> None:
    first, again, other = (run_experiment(trace, "Random", seed) for seed in (1, 1, 2))

    assert first.allocated == again.allocated
    assert first.allocated != other.allocated


def test_policies_come_in_the_order_of_the_paper(trace: OpenbTrace) -> None:
    allocated = {
        policy: sum(run_experiment(trace, policy, seed).allocated[130] for seed in range(42, 46)) / 4
        for policy in ("Random", "BestFit", "FGD")
    }

    assert allocated["Random"] < allocated["BestFit"] < allocated["FGD"]


def test_the_command_prints_one_run_for_programs() -> None:
    done = wharf_here(*COMMAND, "--policy", "FGD", "--seed", "42", "-o", "json")

    assert done.returncode == 0
    found = json.loads(done.stdout)
    assert (found["policy"], found["seed"]) == ("FGD", 42)
    assert found["seconds"] > 0
    assert set(found["allocatedPercent"]) == set(found["fragmentedPercent"]) == {"80", "100", "130"}
    assert set(found) == {
        "apiVersion",
        "kind",
        "policy",
        "seed",
        "seconds",
        "allocatedPercent",
        "fragmentedPercent",
    }


def test_the_command_prints_a_line_for_each_policy() -> None:
    given = ("--policy", "BestFit", "--policy", "FGD", "--seeds", "1..2", "--jobs", "1")
    done = wharf_here(*COMMAND, *given)

    lines = done.stdout.splitlines()
    assert lines[0].split()[:2] == ["POLICY", "SEEDS"]
    assert [line.split()[:2] for line in lines[1:]] == [["BestFit", "2"], ["FGD", "2"]]
    listed = json.loads(wharf_here(*COMMAND, *given, "-o", "json").stdout)["items"]
    assert [(each["policy"], each["seed"]) for each in listed] == [
        ("BestFit", 1),
        ("BestFit", 2),
        ("FGD", 1),
        ("FGD", 2),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "needs --policy: Random, DotProd"),
        (("--policy", "Best"), "there is no policy Best"),
        (("--policy", "FGD", "--seed", "1", "--seeds", "1..2"), "not both"),
        (("--policy", "FGD", "--seeds", "5"), "FIRST..LAST"),
        (("--policy", "FGD", "--seeds", "5..1"), "between 1 and"),
    ],
)
def test_bad_arguments_are_explained(arguments: tuple[str, ...], message: str) -> None:
    done = wharf_here(*COMMAND, *arguments)

    assert done.returncode == 2
    assert message in done.stderr


def test_bad_rows_end_the_command(tmp_path: Path) -> None:
    rows = Path(PODS).read_text().splitlines()
    rows[3] = rows[3].replace(rows[3].split(",")[1], "-7", 1)
    (tmp_path / "pods.csv").write_text("\n".join(rows))

    done = wharf_here(
        "replay", "--format", "openb", "--nodes", NODES, "--pods", str(tmp_path / "pods.csv"), "--policy", "FGD"
    )

    assert done.returncode == 2
    assert f"{tmp_path}/pods.csv: line 4: cpu_milli is negative: -7" in done.stderr


def test_a_trace_can_be_saved_for_the_whole_control_plane(tmp_path: Path, trace: OpenbTrace) -> None:
    done = wharf_here(*COMMAND, "--save-trace", str(tmp_path / "trace"))

    assert done.returncode == 0, done.stderr
    saved = read_trace(tmp_path / "trace")
    assert len(saved.nodes) == len(trace.nodes)
    assert len(saved.pods) == len(trace.pods)
    shared = sum(1 for pod in trace.pods if pod.demand.devices)
    claims = [each for each in saved.objects if each.document["kind"] == "ResourceClaim"]
    assert len(claims) == shared
    # Every claim is there before its pod.
    arrivals = {pod.name: pod.arrival for pod in saved.pods}
    assert all(each.at < arrivals[each.document["metadata"]["name"]] for each in claims)
    first = min(trace.pods, key=lambda pod: pod.created or 0)
    assert saved.pods[0].name == first.name
