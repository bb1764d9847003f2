"""Sweeps: what is tried, what is kept, that they go on where they stopped, and which configuration is best."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.replay.traces import write_small
from tests.support import wharf_here

from wharfinger.replay.sweep_spec import SweepJob, SweepObjective, SweepParameter, read_spec, set_field
from wharfinger.replay.sweeping import Row, SweepResults, run_here, run_local, run_on_dask, standings, sweep
from wharfinger.simulate.inputs import BadInput

ROOT = Path(__file__).parents[2] / "examples" / "replay"
STRATEGY = (
    "scheduler.profiles[schedulerName=default-scheduler].pluginConfig[name=NodeResourcesFit].args.scoringStrategy.type"
)


def spec(folder: Path, **fields: Any) -> Path:
    write_small(folder / "small", pods=8)
    document = {
        "apiVersion": "wharfinger.dev/v1alpha1",
        "kind": "Sweep",
        "traces": ["small"],
        "seeds": {"first": 1, "last": 2},
        "parameters": [{"path": STRATEGY, "values": ["LeastAllocated", "MostAllocated"]}],
        "objective": {"minimize": "costInUse"},
        **fields,
    }
    path = folder / "sweep.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def test_a_grid_is_every_combination(tmp_path: Path) -> None:
    path = spec(
        tmp_path,
        parameters=[
            {"path": STRATEGY, "values": ["LeastAllocated", "MostAllocated"]},
            {"path": "scheduler.podInitialBackoffSeconds", "min": 1, "max": 3, "steps": 3, "integer": True},
        ],
    )

    jobs = read_spec(path).jobs

    assert len(jobs) == 2 * 3 * 2 and len({job.key for job in jobs}) == 12
    assert jobs[0].name == "type=LeastAllocated, podInitialBackoffSeconds=1"
    assert jobs[0].configuration["scheduler"]["profiles"][0] == {
        "schedulerName": "default-scheduler",
        "pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "LeastAllocated"}}}],
    }


def test_a_random_search_is_the_same_each_time(tmp_path: Path) -> None:
    backoff = {"path": "scheduler.podInitialBackoffSeconds", "min": 1, "max": 1000, "integer": True, "log": True}
    path = spec(tmp_path, parameters=[backoff], search={"random": 5, "seed": 7}, seeds=[0])

    first, second = read_spec(path).jobs, read_spec(path).jobs

    assert [job.key for job in first] == [job.key for job in second] and len(first) == 5
    assert all(1 <= job.parameters[0][1] <= 1000 for job in first)


def test_ranges_are_evenly_spread() -> None:
    assert SweepParameter("a", min=0, max=1, steps=5).grid() == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert SweepParameter("a", min=1, max=100, steps=3, log=True).grid() == [1.0, 10.0, 100.0]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"traces": ["none"]}, "traces: "),
        ({"traces": []}, "traces: missing"),
        ({"seeds": "many"}, "seeds: not a list of numbers"),
        ({"until": "soon"}, "until: invalid duration"),
        ({"objective": {"most": "x"}}, "objective: needs `maximize` or `minimize`"),
        ({"parameters": [{"path": "a"}]}, "parameters[0]: needs `values`, or `min` and `max`"),
        ({"parameters": [{"path": "nodes.colour", "values": [1]}]}, "colour"),
        ({"parameters": [{"path": "a", "values": [1], "more": 2}]}, "parameters[0]: Object contains unknown field"),
        ({"search": "clever"}, "search: is `grid`"),
        ({"policies": ["FGD"]}, "policies: belongs to `openb`"),
        ({"openb": {"nodes": "a.csv"}}, "openb[0]: needs `nodes` and `pods`"),
        ({"colour": 1}, "colour: unknown field"),
    ],
)
def test_what_cannot_be_tried_is_refused(tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_spec(spec(tmp_path, **fields))
    assert any(message in each for each in caught.value.problems), caught.value.problems


def test_fields_are_set_on_paths() -> None:
    document: dict[str, Any] = {"a": [{"name": "x", "b": 1}]}
    set_field(document, "a[name=x].b", 2)
    set_field(document, "a[name=y].c.d", 3)
    set_field(document, "a[0].b", 4)
    assert document == {"a": [{"name": "x", "b": 4}, {"name": "y", "c": {"d": 3}}]}
    for path in ("a.b", "a[5].b", "a[0]b"):
        with pytest.raises(ValueError, match=r"^a"):
            set_field(document, path, 1)


def fake(jobs: Sequence[SweepJob]) -> Iterator[Row]:
    for job in jobs:
        yield {"key": job.key, "trace": "t", "configuration": job.name, "seed": job.seed, "score": float(job.seed)}


def test_a_sweep_goes_on_where_it_stopped(tmp_path: Path) -> None:
    jobs = [SweepJob("t", "a", seed) for seed in range(6)]
    path = tmp_path / "r.parquet"

    def stopping(left: Sequence[SweepJob]) -> Iterator[Row]:
        yield from fake(left[:2])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(jobs, SweepResults(path), stopping)
    with path.with_name("r.parquet.journal").open("ab") as file:
        file.write(b'{"key": "half')  # the process was killed while it wrote
    again: list[int] = []

    def counted(left: Sequence[SweepJob]) -> Iterator[Row]:
        again.extend(job.seed for job in left)
        return fake(left)

    rows = sweep(jobs, SweepResults(path), counted)
    assert again == [2, 3, 4, 5] and [row["seed"] for row in rows] == list(range(6))
    assert not path.with_name("r.parquet.journal").exists()
    assert sweep(jobs, SweepResults(path), stopping) == rows  # nothing is left to be done


def test_the_best_are_those_with_the_best_mean() -> None:
    rows: list[Row] = [
        {"key": str(index), "configuration": name, "score": value, "parameter.x": name}
        for index, (name, value) in enumerate([("a", 1.0), ("a", 5.0), ("b", 4.0), ("b", 4.0), ("c", 0.0)])
    ]
    best = standings(rows, SweepObjective("score", True))
    assert [(each.configuration, each.mean, each.lowest, each.highest) for each in best] == [
        ("b", 4.0, 4.0, 4.0),
        ("a", 3.0, 1.0, 5.0),
        ("c", 0.0, 0.0, 0.0),
    ]
    assert [each.configuration for each in standings(rows, SweepObjective("score", False))] == ["c", "a", "b"]
    with pytest.raises(BadInput, match="there is no result beauty; there are score"):
        standings(rows, SweepObjective("beauty", True))


def test_the_command_runs_a_sweep(tmp_path: Path) -> None:
    path = spec(tmp_path)

    done = wharf_here("sweep", str(path), "--jobs", "1", "-o", "json")

    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["kind"] == "SweepReport" and report["runs"] == 4
    assert [each["runs"] for each in report["best"]] == [2, 2]
    assert report["best"][0]["mean"] <= report["best"][1]["mean"]
    best = report["best"][0]["parameters"][STRATEGY]
    assert Path(report["results"]) == tmp_path / "sweep.parquet"
    table = wharf_here("sweep", str(path)).stdout  # all is done already
    assert "lowest costInUse first" in table and f"type={best}" in table.splitlines()[3]


def test_processes_give_the_same_as_one(tmp_path: Path) -> None:
    jobs = read_spec(spec(tmp_path, seeds=[1])).jobs

    rows = {row["key"]: row for row in run_local(jobs, workers=2)}

    assert {key: _without_time(row) for key, row in rows.items()} == {
        job.key: _without_time(run_here(job)) for job in jobs
    }


def test_dask_gives_the_same_as_one_process(tmp_path: Path) -> None:
    import distributed

    jobs = read_spec(spec(tmp_path, seeds=[1])).jobs
    with distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        protocol="tcp://",
        dashboard_address="127.0.0.1:0",
        host="127.0.0.1",
    ) as cluster:
        rows = {row["key"]: row for row in run_on_dask(jobs, cluster.scheduler_address)}

    assert {key: _without_time(row) for key, row in rows.items()} == {
        job.key: _without_time(run_here(job)) for job in jobs
    }


def _without_time(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != "wallSeconds"}


def test_policies_of_the_openb_experiment_are_compared(tmp_path: Path) -> None:
    small = {"nodes": str(ROOT / "nodes.csv"), "pods": str(ROOT / "pods.csv")}
    document = {"openb": small, "policies": ["FGD", "Random"], "seeds": [42]}
    path = tmp_path / "sweep.yaml"
    path.write_text(yaml.safe_dump({"apiVersion": "wharfinger.dev/v1alpha1", "kind": "Sweep", **document}))

    done = wharf_here("sweep", str(path), "--jobs", "1", "-o", "json")

    report = json.loads(done.stdout)
    assert report["objective"] == {"maximize": "allocated.100"}
    assert [each["configuration"] for each in report["best"]] == ["FGD", "Random"]
