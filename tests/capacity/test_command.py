"""`wharf capacity` as people and scripts use it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.repack.worlds import node, pod

from wharfinger.cli import capacity_text
from wharfinger.cli.commands.capacity import command

PRICES = "type,group,price,startup,cpu,memory\nsmall,,1,60s,2,4Gi\nlarge,workers,1.8,2m,4,8Gi\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = node("n1", 2000, 4096, **{"cloud.google.com/gke-nodepool": "workers"})
    made["metadata"]["labels"]["node.kubernetes.io/instance-type"] = "small"
    items = [made, pod("old", "n1", 2000, 100)]
    (tmp_path / "cluster.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    pods = [pod(f"p{number}", "", 1900, 100) for number in range(4)]
    for each in pods:
        del each["metadata"]["uid"]
    (tmp_path / "pods.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}))
    (tmp_path / "prices.csv").write_text(PRICES)
    return tmp_path


def run(folder: Path, *arguments: str) -> Result:
    given = ["--cluster", str(folder / "cluster.json"), "-f", str(folder / "pods.json")]
    return CliRunner().invoke(command, [*given, *arguments], catch_exceptions=False)


def test_json_has_the_documented_fields(folder: Path) -> None:
    result = run(folder, "--prices", str(folder / "prices.csv"), "-o", "json")
    assert result.exit_code == 0
    found: dict[str, Any] = json.loads(result.stdout)
    assert (found["apiVersion"], found["kind"]) == ("wharfinger.dev/v1alpha1", "CapacityReport")
    assert found["cost"] == {
        "now": 1,
        "added": 3.6,
        "bound": 3.6,
        "optimal": True,
        "removable": 0,
        "removableMost": 0,
        "after": 4.6,
        "perHour": True,
    }
    (group,) = found["groups"]
    assert (group["name"], group["source"], group["current"], group["new"]) == ("workers", "GKE", 1, 2)
    assert [choice["name"] for choice in found["choices"]] == ["first fit", "cheapest"]
    starts = {each["pod"]: each["afterSeconds"] for each in found["choices"][1]["starts"]}
    assert starts == {f"default/p{number}": 120 for number in range(4)}
    assert found["asItIs"] == {"starts": [], "never": sorted(starts)}
    assert found["removable"] == []


@pytest.mark.parametrize("width", [80, 120])
def test_people_read_it_at_any_width(folder: Path, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity_text, "terminal_width", lambda: width)
    shown = run(folder, "--prices", str(folder / "prices.csv")).stdout
    assert "2 new nodes for 4 pods: 3.6 per hour; no set costs less" in shown
    assert "The cheapest set costs 10 % less than the first nodes that fit." in shown
    assert "Cost per hour: 1 now, 3.6 for new nodes: 4.6 after" in shown
    assert max(len(line) for line in shown.splitlines()) <= width


def test_markdown_has_the_same_tables(folder: Path) -> None:
    shown = run(folder, "--prices", str(folder / "prices.csv"), "-o", "markdown").stdout
    assert "| first fit | 4 | 0 | 4 workers (small) |" in shown
    assert "| default/p0 | never | 60s on workers-new-1 | 2m on workers-new-1 |" in shown


def test_without_prices_every_node_counts_as_one(folder: Path) -> None:
    found = json.loads(run(folder, "--no-timeline", "-o", "json").stdout)
    assert found["cost"]["added"] == 4 and not found["cost"]["perHour"]
    group = {
        "apiVersion": "wharfinger.dev/v1alpha1",
        "kind": "NodeGroup",
        "metadata": {"name": "pool"},
        "spec": {"template": {"capacity": {"cpu": 4, "memory": "8Gi"}}},
    }
    (folder / "group.yaml").write_text(yaml.safe_dump(group))
    for given in (("--node-group", str(folder / "group.yaml")), ("-f", str(folder / "group.yaml"))):
        result = run(folder, "--no-timeline", *given)
        assert result.exit_code == 0 and "2 new nodes for 4 pods; fewer are not enough" in result.stdout


def test_a_pod_that_no_group_serves_exits_with_one(folder: Path) -> None:
    (folder / "prices.csv").write_text("type,price\nsmall,1\n")
    (folder / "huge.json").write_text(json.dumps(pod("huge", "", 9000, 100)))
    given = ("--prices", str(folder / "prices.csv"), "--no-timeline", "-f", str(folder / "huge.json"))
    result = run(folder, *given)
    assert result.exit_code == 1 and "1 pod would get no node, 4 on 4 new nodes" in result.stdout
    assert "default/huge   workers: Insufficient cpu" in result.stdout


def test_bad_input_exits_with_two(folder: Path) -> None:
    (folder / "bad.csv").write_text("type,price\na,x\n")
    result = run(folder, "--prices", str(folder / "bad.csv"))
    assert result.exit_code == 2 and "bad.csv, line 2: price" in result.output
    assert run(folder, "--prices", str(folder / "none.csv")).exit_code == 2
    assert run(folder, "--at", "noon").exit_code == 2
    assert run(folder, "--time-limit", "x", "--solver", "cp-sat").exit_code == 2
    assert run(folder, "--more", "deployment/none", "--no-timeline").exit_code == 2
    assert run(folder, "--more", "web", "--no-timeline").exit_code == 2


def test_objects_of_karpenter_and_cluster_api_are_read_even_with_strict(folder: Path) -> None:
    pool = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "default"},
        "spec": {"template": {"spec": {"requirements": []}}, "limits": {"cpu": 8}},
    }
    (folder / "pool.yaml").write_text(yaml.safe_dump(pool))
    given = ("-f", str(folder / "pool.yaml"), "--prices", str(folder / "prices.csv"), "--no-timeline", "-o", "json")
    result = run(folder, *given)
    assert "skipped" not in result.stderr
    assert {group["name"]: group["source"] for group in json.loads(result.stdout)["groups"]} == {
        "default": "Karpenter",
        "workers": "GKE",
    }
    assert "no kind" not in run(folder, *given, "--strict").output


def test_a_mistake_in_a_node_pool_is_told_with_its_file_line_and_field(tmp_path: Path) -> None:
    file = tmp_path / "pool.yaml"
    file.write_text(
        "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: general}\nspec:\n  limits:\n    cpu: ten\n"
    )
    result = CliRunner().invoke(command, ["-f", str(file)])
    assert result.exit_code == 2
    assert f"{file}, document 1, line 6: spec.limits.cpu: Invalid value" in result.stderr
