"""`wharf simulate --timeline`, the summary by pool and zone, and `wharf test --cluster`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from wharfinger.api.views import Node, Pod, view
from wharfinger.cli.main import wharf
from wharfinger.simulate.utilisation import utilisation

Document = dict[str, Any]


def node(name: str, **labels: str) -> Document:
    metadata = {"name": name, "labels": {key.replace("_", "/"): value for key, value in labels.items()}}
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "20"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"allocatable": allocatable}}


def deployment(replicas: int, cpu: str) -> Document:
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}},
        },
    }


def scenario(*steps: Document, **more: str) -> Document:
    return {"apiVersion": "wharfinger.dev/v1alpha1", "kind": "Scenario", "steps": list(steps), **more}


def write(path: Path, *documents: Document) -> str:
    path.write_text("\n---\n".join(map(json.dumps, documents)))
    return str(path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(wharf, arguments)


SCALED = {"patch": {"kind": "Deployment", "namespace": "shop", "name": "web", "merge": {"spec": {"replicas": 5}}}}


def test_the_story_is_told_by_workload_as_it_happens(tmp_path: Path) -> None:
    file = write(tmp_path / "a.yaml", node("n1"), node("n2"), deployment(4, "2"), scenario({"at": "1m", **SCALED}))
    result = run("simulate", "-f", file, "--timeline")
    assert result.exit_code == 0
    told = [line.strip() for line in result.stdout.partition("\n\n")[0].splitlines()]
    assert told[:3] == ["From 2026-01-01T00:00:00Z:", "0s  2 nodes added: n1, n2", "2 nodes ready: n1, n2"]
    assert "Deployment shop/web: 4 pods created" in told
    assert any(line.startswith("Deployment shop/web: 4 pods scheduled on n") for line in told)
    assert any(line.startswith("+1s  Deployment shop/web: 4 pods running on n") for line in told)
    assert any(line.startswith("Deployment shop/web: 1 pod pending: 0/2 nodes are available:") for line in told)
    assert [line for line in told if line.startswith("+60s")]
    assert "\n\nSimulated until " in result.stdout

    document = json.loads(run("simulate", "-f", file, "--timeline", "-o", "json").stdout)
    assert {"seconds": 1, "what": "running", "count": 4}.items() <= next(
        each for each in document["timeline"] if each["what"] == "running"
    ).items()
    assert "timeline" not in json.loads(run("simulate", "-f", file, "-o", "json").stdout)


def test_a_warning_is_told_once_and_not_with_every_retry(tmp_path: Path) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "shop"},
        "spec": {"hard": {"pods": 0}},
    }
    file = write(tmp_path / "a.yaml", node("n1"), quota, deployment(1, "1"))
    told = run("simulate", "-f", file, "--timeline", "--for", "2m").stdout
    assert told.count("FailedCreate") == 1


def test_a_large_cluster_is_summed_up_by_pool_and_zone(tmp_path: Path) -> None:
    zone = "topology.kubernetes.io_zone"
    nodes = [node(f"n{i:02}", pool="ab"[i % 2], **{zone: "xyz"[i % 3]}) for i in range(48)]
    file = write(tmp_path / "a.yaml", *nodes, deployment(24, "2"))
    lines = run("simulate", "-f", file).stdout.splitlines()
    start = lines.index("Requested, by pool and zone")
    assert lines[start + 1].split() == ["POOL", "ZONE", "NODES", "PODS", "CPU", "MEMORY"]
    rows = [line.split() for line in lines[start + 2 : start + 8]]
    assert [(row[0], row[1], row[2]) for row in rows] == [(pool, zone, "8") for pool in "ab" for zone in "xyz"]
    assert sum(int(row[3]) for row in rows) == 24
    assert "Pods on nodes: 24 on 48 nodes (--all lists them)" in lines
    assert any(line.startswith("n00 ") for line in run("simulate", "-f", file, "--all").stdout.splitlines())


def test_finished_pods_use_nothing_and_known_labels_name_the_pool() -> None:
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": phase},
            "spec": {"nodeName": "n1", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
            "status": {"phase": phase},
        }
        for phase in ("Running", "Succeeded")
    ]
    nodes = [node("n1", **{"karpenter.sh_nodepool": "spot", "pool": "other"})]
    found = utilisation([view(each, Node) for each in nodes], [view(each, Pod) for each in pods])
    assert [(each.pool, each.zone, each.nodes, each.pods) for each in found] == [("spot", "", 1, 1)]
    assert found[0].share("cpu") == 0.25 and found[0].share("nvidia.com/gpu") is None


def test_scenarios_are_played_on_a_snapshot(tmp_path: Path) -> None:
    cluster = write(tmp_path / "cluster.yaml", node("n1"), node("n2"), deployment(2, "2"))
    pods = {"kind": "Pod", "namespace": "shop", "selector": "app=web", "count": 5, "match": "any"}
    early = "2020-01-01T00:00:00Z"  # before the snapshot: the clock starts when it was taken
    for number, count in enumerate((4, 5)):
        expected = {**pods, "count": count, "fields": {"status.phase": "Running"}}
        write(tmp_path / f"{number}.yaml", scenario(SCALED, {"expect": [expected]}, start=early))
    result = run("test", str(tmp_path / "0.yaml"), str(tmp_path / "1.yaml"), "--cluster", cluster, "-o", "json")
    assert result.exit_code == 1
    verdicts = {Path(each["file"]).name: each["result"] for each in json.loads(result.stdout)["items"]}
    assert verdicts == {"0.yaml": "passed", "1.yaml": "failed"}
    assert run("test", str(tmp_path / "0.yaml"), "--cluster", str(tmp_path / "none")).exit_code == 2
    both = run("test", str(tmp_path / "0.yaml"), "--cluster", cluster, "--kubeconfig", "x")
    assert both.exit_code == 2 and "give one of them" in both.output
