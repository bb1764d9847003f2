"""The commands of `wharf score` that need no running server, or whose input is refused before they ask one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.systems.placement.test_capacity import gpu_node, template

from wharfinger.systems.placement.commands.score import command


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A member with three free GPUs, a workload, and a node group for two more nodes."""
    (tmp_path / "state.yaml").write_text(yaml.dump(gpu_node("n1", 3)))
    (tmp_path / "trainer.yaml").write_text(yaml.dump(template()))
    capacity = {"cpu": "64", "memory": "256Gi", "nvidia.com/gpu": "4"}
    group: Any = {"apiVersion": "wharfinger.dev/v1alpha1", "kind": "NodeGroup", "metadata": {"name": "gpu-pool"}}
    group["spec"] = {"maxSize": 2, "template": {"capacity": capacity}}
    (tmp_path / "groups").mkdir()
    (tmp_path / "groups" / "gpu.yaml").write_text(yaml.dump(group))
    return tmp_path


def count(files: Path, *more: str) -> Result:
    return run("capacity", "-f", str(files / "state.yaml"), "--template", str(files / "trainer.yaml"), *more)


def test_capacity_is_printed_for_a_person(files: Path) -> None:
    found = count(files, "--replicas", "12")
    assert (found.exit_code, found.output) == (1, "3 of 12 fit (Insufficient nvidia.com/gpu)\n")
    found = count(files, "--replicas", "3")
    assert (found.exit_code, found.output) == (0, "3 of 3 fit\n")
    found = count(files, "--replicas", "12", "--node-group", str(files / "groups"), "-o", "json")
    assert found.exit_code == 1
    document = json.loads(found.output)
    assert (document["now"], document["afterScaleUp"], document["never"]) == (3, 11, 1)
    assert document["verdict"] == "DoesNotFit"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("capacity",), "give --template"),
        (("capacity", "--cluster-name", "x"), "give --template"),
        (("capacity", "--template", "nowhere.yaml"), "nowhere.yaml: No such file"),
        (("capacity", "--template", "x", "--cluster-name", "y"), "neither --cluster-name"),
        (("capacity", "--template", "x", "--replicas", "0"), "0 is not in the range"),
        (("capacity", "--node-group", "nowhere"), "nowhere: No such file"),
        (("capacity", "--cluster-name", "x", "--hub-kubeconfig", "y", "--interval", "9m"), "quarter of --valid-for"),
        (("set", "c1", "cost", "spot"), "neither NAME=VALUE"),
        (("set", "c1", "cost", "spot=101"), "between -100 and 100"),
        (("set", "c1", "cost", "=1"), "neither NAME=VALUE"),
        (("set", "c1", "cost", "spot=1.5"), "neither NAME=VALUE"),
        (("set", "c1", "cost", "spot=1", "--valid-for", "soon"), "duration"),
        (("set", "c1", "cost", "spot=1", "--valid-for", "0s"), "longer than 0"),
        (("manifests", "Not A Name"), "RFC 1123"),
    ],
)
def test_bad_input_is_refused_with_the_reason(arguments: tuple[str, ...], words: str) -> None:
    found = run(*arguments)
    assert found.exit_code == 2
    assert words in " ".join(found.output.split())


def test_a_template_must_be_one_of_pods(files: Path) -> None:
    (files / "trainer.yaml").write_text("{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}")
    assert "a ConfigMap has no pod template" in count(files).output


def test_manifests_name_the_cluster_and_nothing_else() -> None:
    hub = list(yaml.safe_load_all(run("manifests", "lisbon").output))
    own = next(each for each in hub if each["metadata"]["name"] == "system:wharfinger:cluster-agent:lisbon")
    assert all(rule["resourceNames"] == ["lisbon"] for rule in own["rules"])
    assert all(each["metadata"].get("namespace", "lisbon") == "lisbon" for each in hub)
    member = list(yaml.safe_load_all(run("manifests", "lisbon", "--member", "--image", "x:1").output))
    (role,) = [each for each in member if each["kind"] == "ClusterRole"]
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"get", "list", "watch"}
    assert "secrets" not in {resource for rule in role["rules"] for resource in rule["resources"]}
    (deployment,) = [each for each in member if each["kind"] == "Deployment"]
    assert [each["image"] for each in deployment["spec"]["template"]["spec"]["containers"]] == ["x:1", "x:1"]
