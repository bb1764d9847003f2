"""`wharf simulate` and `wharf test` as a user calls them: outcome, exit status, faults by file and path."""

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

NODE = """
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "10"}, capacity: {cpu: "4", memory: 8Gi, pods: "10"}}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: shop}
spec: {containers: [{name: c, image: i, resources: {requests: {cpu: "CPU"}}}]}
"""
SCENARIO = """
apiVersion: wharfinger.dev/v1alpha1
kind: Scenario
metadata: {name: one}
steps:
- expect: [{kind: Pod, namespace: shop, name: a, fields: {spec.nodeName: WHERE}}]
"""


def wharf(*arguments: str, stdin: str = "", hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    source = str(Path(__file__).parents[2] / "src")
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": source}
    return subprocess.run(
        [sys.executable, "-m", "wharfinger.cli.main", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
    )


def test_pods_of_a_snapshot_bring_the_priority_classes_that_it_leaves_out() -> None:
    made = POD.replace("CPU", "4").replace("spec: {", "spec: {nodeName: n1, priorityClassName: low, priority: 5, ")
    made = made.replace("namespace: shop", 'namespace: shop, uid: u1, creationTimestamp: "2026-01-01T00:00:00Z"')
    new = POD.replace("CPU", "1").replace("name: a", "name: b").replace("spec: {", "spec: {priorityClassName: low, ")
    unknown = new.replace("name: b", "name: d").replace("low", "high")
    done = wharf("simulate", "-f", "-", "-o", "json", stdin="---".join([NODE, made, new, unknown]))
    report = json.loads(done.stdout)
    pods = {each["metadata"]["name"]: each["spec"] for each in report["objects"] if each["kind"] == "Pod"}
    assert {name: spec["priority"] for name, spec in pods.items()} == {"a": 5, "b": 5}
    assert [each["name"] for each in report["rejections"]] == ["d"]
    assert [each["name"] for each in report["unscheduled"]] == ["b"]


def test_the_report_tells_where_pods_are_and_what_waits(tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text(
        "---".join([NODE, POD.replace("CPU", "1"), POD.replace("CPU", "9").replace("name: a", "name: b")])
    )
    done = wharf("simulate", "-f", str(tmp_path), "-o", "json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["kind"] == "SimulationReport"
    placed = {
        each["metadata"]["name"]: each["spec"].get("nodeName") for each in report["objects"] if each["kind"] == "Pod"
    }
    assert placed == {"a": "n1", "b": None}
    (waiting,) = report["unscheduled"]
    assert (waiting["namespace"], waiting["name"], waiting["reasons"]) == ("shop", "b", {"Insufficient cpu": 1})
    assert waiting["message"].startswith("0/1 nodes are available: 1 Insufficient cpu.")
    assert {event["reason"] for event in report["events"]} >= {"Scheduled", "FailedScheduling"}
    text = wharf("simulate", "-f", str(tmp_path)).stdout
    assert "shop/b   0/1 nodes are available: 1 Insufficient cpu." in text


def test_the_same_seed_gives_the_same_bytes_whatever_the_hash_seed() -> None:
    text = "---".join(
        [NODE, NODE.replace("n1", "n2"), *(POD.replace("CPU", "1").replace("name: a", f"name: p{i}") for i in range(6))]
    )
    outputs = {
        wharf("simulate", "-f", "-", "--seed", "7", "-o", "yaml", stdin=text, hash_seed=seed).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
    assert "SimulationReport" in outputs.pop()


def test_a_list_is_read_as_its_items(tmp_path: Path) -> None:
    nodes = [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{i}"}} for i in range(2)]
    done = wharf(
        "simulate", "-f", "-", "-o", "json", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": nodes})
    )
    assert done.returncode == 0, done.stderr
    assert {each["metadata"]["name"] for each in json.loads(done.stdout)["objects"] if each["kind"] == "Node"} == {
        "n0",
        "n1",
    }


def test_pods_of_a_snapshot_live_on_without_their_owners(tmp_path: Path) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "11111111-1111", "controller": True}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "web-1",
            "namespace": "shop",
            "uid": "u-1",
            "creationTimestamp": "2026-05-01T00:00:00Z",
            "ownerReferences": [owner],
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Running"},
    }
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "uid": "u-2"}}
    done = wharf(
        "simulate",
        "-f",
        "-",
        "-o",
        "json",
        stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": [node, pod]}),
    )
    assert done.returncode == 0, done.stderr
    (kept,) = [each for each in json.loads(done.stdout)["objects"] if each["kind"] == "Pod"]
    assert (kept["metadata"]["uid"], kept["metadata"]["creationTimestamp"]) == ("u-1", "2026-05-01T00:00:00Z")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: [", "all.yaml, document 1"),
        ("just words", "all.yaml, document 1"),
        (
            NODE + "---\napiVersion: v1\nkind: Nonsense\nmetadata: {name: x}\n",
            'document 2, line 8: kind: no kind "Nonsense"',
        ),
        (
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: []\n",
            "is known here; it belongs to --config",
        ),
        (SCENARIO.replace("expect", "expct"), "steps[0].expct: unknown field"),
        (
            "apiVersion: wharfinger.dev/v1alpha1\nkind: WharfingerConfiguration\nschedulr: {}\n",
            "schedulr: unknown field",
        ),
        (
            "apiVersion: wharfinger.dev/v1alpha1\nkind: WharfingerConfiguration\nscheduler: {extenders: [{}]}\n",
            "scheduler.extenders: extenders are not supported",
        ),
    ],
)
def test_bad_input_is_named_by_its_place_and_nothing_runs(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "all.yaml").write_text(text)
    done = wharf("simulate", "-f", str(tmp_path))
    assert done.returncode == 2
    assert told in done.stderr
    assert done.stdout == ""


def test_wharf_test_sums_up_and_writes_junit(tmp_path: Path) -> None:
    base = "---".join([NODE, POD.replace("CPU", "1")]) + "---"
    (tmp_path / "good.yaml").write_text(base + SCENARIO.replace("WHERE", "n1"))
    assert wharf("test", str(tmp_path)).returncode == 0
    (tmp_path / "wrong.yaml").write_text(base + SCENARIO.replace("WHERE", "n2"))
    done = wharf("test", str(tmp_path), "--junit", str(tmp_path / "junit.xml"))
    assert done.returncode == 1
    assert 'spec.nodeName: expected "n2", found "n1"' in done.stdout
    assert done.stdout.endswith("1 passed, 1 failed\n")
    suite = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")


def test_a_refusal_fails_a_scenario_that_does_not_expect_it(tmp_path: Path) -> None:
    steps = """
- apply: [{apiVersion: v1, kind: Pod, metadata: {name: bad}, spec: {containers: []}}]
"""
    head = SCENARIO.split("steps:")[0] + "steps:"
    (tmp_path / "a.yaml").write_text(head + steps)
    done = wharf("test", str(tmp_path / "a.yaml"))
    assert done.returncode == 1
    assert "spec.containers: Required value" in done.stdout
    (tmp_path / "a.yaml").write_text(head + steps + "  rejected: spec.containers\n")
    assert wharf("test", str(tmp_path / "a.yaml")).returncode == 0


def test_a_manifest_that_is_refused_fails_the_scenario_that_comes_after_it(tmp_path: Path) -> None:
    bad = "\napiVersion: v1\nkind: Pod\nmetadata: {name: bad, namespace: shop}\nspec: {containers: []}\n"
    file = tmp_path / "a.yaml"
    file.write_text("---".join([NODE, POD.replace("CPU", "1"), bad, SCENARIO.replace("WHERE", "n1")]))
    done = wharf("test", str(file))
    assert done.returncode == 1
    assert f"{file}, document 3, line 11" in done.stdout
    assert 'the API refused Pod shop/bad: Pod "bad" is invalid: spec.containers: Required value' in done.stdout
    assert wharf("simulate", "-f", str(file)).returncode == 1


def test_a_failed_expectation_of_a_waiting_pod_is_explained(tmp_path: Path) -> None:
    base = "---".join([NODE, POD.replace("CPU", "9")]) + "---"
    (tmp_path / "a.yaml").write_text(base + SCENARIO.replace("WHERE", "n1"))
    done = wharf("test", str(tmp_path / "a.yaml"))
    assert done.returncode == 1
    assert "NodeResourcesFit refuses n1: Insufficient cpu" in done.stdout


def test_the_configuration_may_ask_for_sample_nodes() -> None:
    configuration = "apiVersion: wharfinger.dev/v1alpha1\nkind: WharfingerConfiguration\nnodes: {count: 3}\n---"
    done = wharf("simulate", "-f", "-", "-o", "json", stdin=configuration + POD.replace("CPU", "1"))
    assert done.returncode == 0, done.stderr
    objects = json.loads(done.stdout)["objects"]
    assert {each["metadata"]["name"] for each in objects if each["kind"] == "Node"} == {"node-1", "node-2", "node-3"}
    assert next(each["spec"]["nodeName"] for each in objects if each["kind"] == "Pod").startswith("node-")
