"""Replays by the control plane in virtual time: what is measured, what differs between configurations, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.replay.traces import NODES, write, write_small
from tests.support import wharf_here

from wharfinger.api.configuration import Configuration
from wharfinger.replay.comparing import RECORD, compare, run_document
from wharfinger.replay.importing import read_trace
from wharfinger.replay.playing import play, recorded_nodes
from wharfinger.replay.running import replay
from wharfinger.replay.runs import ReplayConfiguration, ReplayOptions, ReplayRun
from wharfinger.replay.trace import Trace, TraceMoment

ONE_NODE = "name,cpu,memory_gib,usd\na,4,8,0.5\n"
COLUMNS = "name,t,seconds,cpu,memory_mib,priority\n"
PLAIN = ReplayConfiguration("plain", Configuration())
PACKED = {
    "profiles": [
        {
            "schedulerName": "default-scheduler",
            "pluginConfig": [
                {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}},
            ],
        }
    ]
}


def played(trace: Trace, **options: Any) -> ReplayRun:
    return play(trace, PLAIN, {}, ReplayOptions(**options))


def test_pods_wait_for_each_other(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, f"{COLUMNS}x,10,100,3,256,0\ny,20,50,3,256,0\nz,30,20,1,256,0\n", ONE_NODE))

    run = played(trace)

    waits = {key[1]: life.bound - life.arrival for key, life in run.lives.items() if life.bound is not None}
    assert waits["x"] == waits["z"] == 0
    # It waits until x has run for 100 seconds; what ended is noticed at once, the back-off may take some seconds more.
    assert 90 <= waits["y"] < 105
    ends = {key[1]: life.gone for key, life in run.lives.items()}
    assert ends["x"] == trace.start + 110 and ends["z"] == trace.start + 50


def test_what_is_measured_is_exact(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, f"{COLUMNS}x,0,1800,2,2048,0\n", ONE_NODE))

    found = run_document(played(trace, until=3600.0))

    assert found["utilisation"] == pytest.approx({"cpu": 0.25, "memory": 0.125}, abs=1e-3)
    assert found["nodeHours"] == 1.0 and found["cost"] == 0.5
    assert found["costInUse"] == pytest.approx(0.25, abs=1e-3)
    assert found["pods"] == {"arrived": 1, "placed": 1, "left": 0, "waiting": 0, "refused": 0}


def test_fragmentation_is_what_typical_pods_cannot_use(tmp_path: Path) -> None:
    nodes = "name,cpu,memory_gib,usd\na,4,64,0\nb,4,64,0\n"
    work = f"{COLUMNS}x,0,3600,3,1,0\ny,0,3600,3,1,0\n"
    trace = read_trace(write(tmp_path, work, nodes))

    found = run_document(played(trace, until=600.0))

    # One core is idle on each node, and all pods of the trace ask for three.
    assert found["samples"][-1]["fragmentation cpu"] == pytest.approx(0.25)
    assert found["samples"][-1]["utilisation cpu"] == pytest.approx(0.75)


def test_a_preempted_pod_is_submitted_again_and_runs_to_its_end(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, f"{COLUMNS}low,0,100,3,256,0\nhigh,10,50,3,256,1000\n", ONE_NODE))

    run = played(trace)

    low = run.lives["default", "low"]
    assert run.preemptions == low.preemptions == 1
    assert low.resubmissions == 1
    assert run.lives["default", "high"].node == "a"
    assert low.gone is not None and low.gone >= trace.start + 160  # after the other one, all over again


def test_the_same_seed_gives_the_same_replay(tmp_path: Path) -> None:
    folder = write_small(tmp_path)

    first, second = (run_document(played(read_trace(folder), seed=3)) for _ in range(2))

    assert first == second


def test_differences_between_configurations_are_explained(tmp_path: Path) -> None:
    trace = read_trace(write_small(tmp_path))
    packed = ReplayConfiguration("packed", Configuration(scheduler=PACKED))

    runs, comparisons = replay(trace, [PLAIN, packed], ReplayOptions())

    (comparison,) = comparisons
    assert (comparison.base, comparison.other) == ("plain", "packed")
    first = comparison.differences[0]
    assert first.cause == "score of NodeResourcesFit" and "NodeResourcesFit +" in first.detail
    assert comparison.same + len(comparison.differences) == len(runs[0].nodes())
    assert sum(number for _, number in comparison.causes()) == len(comparison.differences)


def test_ties_are_broken_as_recorded(tmp_path: Path) -> None:
    nodes = "name,cpu,memory_gib,usd\n" + "".join(f"n{number},4,8,0\n" for number in range(8))
    work = COLUMNS + "".join(f"p{number},{number},3600,3,256,0\n" for number in range(8))
    trace = read_trace(write(tmp_path, work, nodes))
    for number, pod in enumerate(trace.pods):
        pod.node = f"n{7 - number}"

    expected = recorded_nodes(trace)
    recorded, by_seed = (
        compare(expected, play(trace, PLAIN, expected, ReplayOptions(until=60.0, ties=ties)), RECORD)
        for ties in (True, False)
    )

    assert recorded.same == 8 and not recorded.differences
    assert {each.cause for each in by_seed.differences} <= {
        "equal scores",
        "NodeResourcesFit: Insufficient cpu",
    }
    assert by_seed.differences[0].cause == "equal scores"


def test_what_cannot_have_been_is_the_first_difference(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, f"{COLUMNS}x,0,600,3,256,0\ny,5,600,3,256,0\n", NODES))
    for pod in trace.pods:
        pod.node = "a"  # both do not fit there

    _, (comparison,) = replay(trace, [PLAIN], ReplayOptions(until=60.0))

    (first, *_) = comparison.differences
    assert first.pod == "default/x" and first.cause == "score of NodeResourcesFit"  # c is larger


def test_a_check_stays_in_the_recorded_state(tmp_path: Path) -> None:
    """One decision that cannot be explained does not make all later ones differ."""
    nodes = "name,cpu,memory_gib,usd\na,4,8,0\nb,4,8,0\n"
    work = COLUMNS + "".join(f"p{number},{10 * number},3600,1,256,0\n" for number in range(6))
    trace = read_trace(write(tmp_path, work, nodes))
    for pod, node in zip(trace.pods, "aabbab", strict=True):  # the second one should have gone to b
        pod.node, pod.bound = node, TraceMoment(pod.arrival.time + 0.5, pod.arrival.order)

    _, (checked,) = replay(trace, [PLAIN], ReplayOptions(until=120.0, check=True))

    assert [each.pod for each in checked.differences] == ["default/p1"]
    assert (checked.differences[0].expected, checked.differences[0].node) == ("a", "b")
    assert checked.same == 5


def test_a_check_allows_for_the_time_between_decision_and_binding(tmp_path: Path) -> None:
    """When x was bound, y had been bound already; but x was decided before."""
    nodes = "name,cpu,memory_gib,usd\na,8,8,0\nb,4,8,0\n"
    work = f"{COLUMNS}x,10,3600,1,256,0\ny,11,3600,7,256,0\n"
    trace = read_trace(write(tmp_path, work, nodes))
    for pod, seconds in zip(trace.pods, (14, 12), strict=True):
        pod.node, pod.bound = "a", TraceMoment(trace.start + seconds, seconds)

    _, (checked,) = replay(trace, [PLAIN], ReplayOptions(until=120.0, check=True))
    assert checked.same == 2

    trace.pods[0].arrival = TraceMoment(trace.start + 13, 13)  # now it was decided after y for sure
    _, (checked,) = replay(trace, [PLAIN], ReplayOptions(until=120.0, check=True))
    assert [each.pod for each in checked.differences] == ["default/x"]


def test_nodes_come_go_and_change(tmp_path: Path) -> None:
    nodes = (
        "name,cpu,memory_gib,usd,from,to,taints\n"
        "a,4,8,1,0,3600,\n"  # tainted after an hour, and gone after two
        "a,4,8,1,3600,7200,no:NoSchedule\n"
        "b,4,8,1,5400,,\n"
    )
    work = f"{COLUMNS}x,60,60,1,256,0\ny,3700,60,1,256,0\nz,7300,60,1,256,0\n"
    trace = read_trace(write(tmp_path, work, nodes))

    run = played(trace, until=9000.0)

    lives = {key[1]: life for key, life in run.lives.items()}
    assert [lives[name].node for name in "xyz"] == ["a", "b", "b"]
    assert lives["y"].bound is not None and lives["y"].bound >= trace.start + 5400
    assert run.meter.total("nodes") == pytest.approx(2 + 1)  # node hours


def test_a_pod_leaves_when_the_trace_says(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, f"{COLUMNS}x,10,,3,256,0\ny,20,,3,256,0\n", ONE_NODE))
    for pod, end in zip(trace.pods, (100, 300), strict=True):
        pod.departure = TraceMoment(trace.start + end, end)
        pod.stopping = TraceMoment(trace.start + end - 30, end)

    run = played(trace)

    assert {key[1]: (life.gone or 0) - trace.start for key, life in run.lives.items()} == {"x": 100, "y": 300}
    assert run.lives["default", "y"].bound is not None
    assert recorded_nodes(trace) == {}


def test_the_command_compares_and_reports(tmp_path: Path) -> None:
    folder = write_small(tmp_path / "small", pods=12)
    (tmp_path / "packed.yaml").write_text(
        json.dumps({"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", **PACKED})
    )
    (tmp_path / "plain.yaml").write_text(
        json.dumps({"apiVersion": "wharfinger.dev/v1alpha1", "kind": "WharfingerConfiguration"})
    )
    configs = [part for name in ("plain", "packed") for part in ("--config", str(tmp_path / f"{name}.yaml"))]
    page = tmp_path / "report.html"

    done = wharf_here("replay", str(folder), *configs, "--report", str(page), "-o", "json")

    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["apiVersion"], report["kind"]) == ("wharfinger.dev/v1alpha1", "ReplayReport")
    assert [run["configuration"] for run in report["runs"]] == ["plain", "packed"]
    assert report["comparisons"][0]["firstDifference"]["cause"].startswith("score of ")
    text = page.read_text()
    assert text.count("<svg") >= 4 and "Decisions that differ" in text
    for outside in ("<script", "http://", "https://"):
        assert outside not in text.replace("http://www.w3.org/", ""), outside
    table = wharf_here("replay", str(folder), *configs).stdout
    assert "plain" in table and "packed beside plain: " in table and "  First: " in table


def test_objects_of_a_configuration_apply_to_its_replay_only(tmp_path: Path) -> None:
    folder = write(tmp_path / "t", f"{COLUMNS}x,5,60,1,256,0\n", ONE_NODE)
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "none", "namespace": "default"},
        "spec": {"hard": {"pods": "0"}},
    }
    (tmp_path / "quota.yaml").write_text(json.dumps(quota))
    (tmp_path / "plain.yaml").write_text("apiVersion: wharfinger.dev/v1alpha1\nkind: WharfingerConfiguration\n")

    done = wharf_here(
        "replay",
        str(folder),
        "--config",
        str(tmp_path / "plain.yaml"),
        "--config",
        str(tmp_path / "quota.yaml"),
        "-o",
        "json",
    )

    report = json.loads(done.stdout)
    assert [run["pods"]["refused"] for run in report["runs"]] == [0, 1]
    assert report["comparisons"][0]["firstDifference"]["cause"] == "refused by the API server"


def test_bad_arguments_are_refused(tmp_path: Path) -> None:
    folder = write_small(tmp_path / "t", pods=2)

    for arguments, message in (
        ([], "name the folder of a trace"),
        ([str(tmp_path / "none")], "no such folder"),
        ([str(folder), "--until", "soon"], "--until"),
        ([str(folder), "--config", str(tmp_path / "no.yaml")], "no such file"),
        ([str(folder), "--policy", "FGD"], "belong to --format openb"),
        (["--format", "openb", "--config", "a.yaml"], "--format openb takes no"),
    ):
        done = wharf_here("replay", *arguments)
        assert done.returncode == 2 and message in done.stderr, (arguments, done.stderr)


def test_a_trace_is_saved_as_tables(tmp_path: Path) -> None:
    folder = write_small(tmp_path / "t", pods=5)

    done = wharf_here("replay", str(folder), "--save-trace", str(tmp_path / "saved"))

    assert done.returncode == 0
    assert len(read_trace(tmp_path / "saved").pods) == 5


@pytest.mark.needs_system("resource_policy")
@pytest.mark.needs_system("reservation")
def test_units_and_reservations_are_followed(tmp_path: Path) -> None:
    nodes = "name,cpu,memory_gib,usd,labels\n" + "".join(
        f'{name},8,32,0,"{{""pool"": ""{name}""}}"\n' for name in ("a", "b")
    )
    work = "name,t,seconds,cpu,memory_mib,labels\n" + "".join(
        f'p{number},{60 + number},600,1,256,"{{""app"": ""web""}}"\n' for number in range(4)
    )
    folder = write(tmp_path / "t", work, nodes)
    units = [
        {"name": unit, "priority": priority, "nodeSelector": {"matchLabels": {"pool": unit}}, **most}
        for unit, priority, most in (("a", 5, {"maxCount": 2}), ("b", 4, {}))
    ]
    policy = {
        "apiVersion": "scheduling.sigs.x-k8s.io/v1alpha1",
        "kind": "ResourcePolicy",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"podSelector": {"matchLabels": {"app": "web"}}, "units": units},
    }
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "2"}}}
    reservation = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "spare"},
        "spec": {
            "template": {"spec": {"containers": [container]}},
            "owners": [{"labelSelector": {"matchLabels": {"app": "db"}}}],
            "ttl": "0s",
        },
    }
    (tmp_path / "c").mkdir()
    for document in (policy, reservation):
        (tmp_path / "c" / f"{document['kind']}.yaml").write_text(json.dumps(document))

    done = wharf_here("replay", str(folder), "--config", str(tmp_path / "c"), "--until", "5m", "-o", "json")

    (run,) = json.loads(done.stdout)["runs"]
    last = run["samples"][-1]
    assert (last["unit fill default/web a"], last["unit pods default/web b"]) == (1.0, 2.0)
    assert last["reservation use cpu"] == 0.0
    assert set(run["measures"]) == {"unit fill default/web a", "unit pods default/web b", "reservation use cpu"}


@pytest.mark.parametrize(
    ("line", "extra"),
    [
        ("replay {trace}", "replay"),
        ("replay {trace} --report r.html", "replay"),
        ("record -o {new}", "replay"),
        ("sweep {trace}/trace.yaml", "replay"),
        ("sweep {trace}/trace.yaml --dask tcp://127.0.0.1:1", "dask,replay"),
    ],
)
def test_what_has_to_be_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, extra: str
) -> None:
    folder = write_small(tmp_path / "t", pods=2)
    monkeypatch.setattr("wharfinger.replay.extras.find_spec", lambda name: None)

    done = wharf_here(*(word.format(trace=folder, new=tmp_path / "new") for word in line.split()))

    assert done.returncode == 2 and f"this needs `pip install 'wharfinger[{extra}]'`" in done.stderr
