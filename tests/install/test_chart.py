"""The chart and `wharf install` give the same objects, and Kustomize takes what `wharf install` prints."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from scripts.chart import CHART, templates
from tests.apiserver.running import environment as running_environment
from tests.kubernetes.binaries import HELM, NoBinaries, find_or_make
from tests.support import missing, require

from wharfinger.api.kinds import registry
from wharfinger.install.components import chosen, components
from wharfinger.install.manifests import manifests
from wharfinger.install.options import InstallOptions
from wharfinger.install.workloads import CONFIG_HASH

Objects = dict[tuple[str, str, str], dict[str, Any]]
DIGEST = f"sha256:{'0a' * 32}"
pytestmark = pytest.mark.needs_system(
    "placement", "reservation", "resource_class", "resource_policy", "scheduling_policy"
)


@pytest.fixture(scope="session")
def helm() -> str:
    cached = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    try:
        required = "helm" in os.environ.get("WHARF_REQUIRE", "").split(",")
        found = [each for each in cached.glob(f"wharfinger/kubernetes-*/{HELM}") if os.access(each, os.X_OK)]
        return str(found[0] if found else find_or_make(HELM)[HELM]) if found or required else missing("helm")
    except NoBinaries as error:
        missing("helm", str(error))


def render(helm: str, values: dict[str, Any], folder: Path) -> Objects:
    file = folder / "values.json"
    file.write_text(json.dumps(values))
    command = [helm, "template", "release", str(CHART), "--namespace", "wharfinger-system", "--values", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return named(list(yaml.safe_load_all(done.stdout)))


def named(documents: list[dict[str, Any]]) -> Objects:
    found = {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each for each in documents
    }
    assert len(found) == len(documents)
    return found


def comparable(objects: Objects) -> Objects:
    """Without what differs on purpose: Helm keeps definitions, and writes the configuration with sorted keys."""
    made = copy.deepcopy(objects)
    for (kind, _, name), each in made.items():
        if kind == "CustomResourceDefinition":
            each["metadata"].pop("annotations", None)
        if (kind, name) == ("ConfigMap", "wharfinger-config"):
            each["data"]["config.yaml"] = yaml.safe_load(each["data"]["config.yaml"])
        if kind == "Deployment":
            del each["spec"]["template"]["metadata"]["annotations"][CONFIG_HASH]
    return made


def test_the_chart_is_up_to_date() -> None:
    for path, text in templates().items():
        assert (CHART / path).read_text() == text, f"{path} is out of date: run `make chart`"


def test_the_schema_names_the_components() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert schema["properties"]["components"]["items"]["enum"] == [*components(), "all"]
    assert schema["properties"].keys() - {"global"} == yaml.safe_load((CHART / "values.yaml").read_text()).keys()


@pytest.mark.parametrize(
    ("values", "options"),
    [
        ({}, {}),
        *(({"components": [name]}, {"components": [name]}) for name in components()),
        (
            {"components": ["placement", "scheduling-policy"], "mode": "enforce"},
            {"components": ["placement", "scheduling-policy"], "enforce": True},
        ),
        (
            {"components": ["reservation", "resource-class"], "replicas": 3},
            {"components": ["reservation", "resource-class"], "replicas": 3},
        ),
        ({"image": {"repository": "example.com/w", "tag": "1"}}, {"image": "example.com/w:1"}),
        ({"image": {"repository": "example.com/w", "digest": DIGEST}}, {"image": f"example.com/w@{DIGEST}"}),
        (
            {"schedulerNames": ["default-scheduler", "wharfinger"], "scheduledNodes": "pool=ours,disk!=hdd"},
            {"scheduler_names": "default-scheduler,wharfinger", "node_selector": "pool=ours,disk!=hdd"},
        ),
        ({"nodeSelector": {"role": "control"}}, {"pod_node_selector": {"role": "control"}}),
        ({"resources": {"scheduler": {"limits": {"memory": "9Gi"}}}}, {"memory": {"scheduler": "9Gi"}}),
        ({"certManager": {"issuer": {"name": "ca"}}}, {"issuer": "ClusterIssuer/ca"}),
        ({"certManager": {"issuer": {"kind": "Issuer", "name": "ca"}}}, {"issuer": "Issuer/ca"}),
        (
            {
                "config": {
                    "reservation": {"chargeQuota": True},
                    "schedulingPolicy": {"mode": "audit", "schedulerIdentities": ["x"]},
                }
            },
            {
                "configuration": {
                    "reservation": {"chargeQuota": True},
                    "schedulingPolicy": {"mode": "audit", "schedulerIdentities": ["x"]},
                }
            },
        ),
    ],
    ids=lambda each: json.dumps(each)[:60],
)
def test_helm_renders_what_is_installed(
    helm: str, values: dict[str, Any], options: dict[str, Any], tmp_path: Path
) -> None:
    asked = {**options, "components": chosen(options.get("components", ["all"]))}
    expected = comparable(named(manifests(InstallOptions(**asked), registry())))
    found = comparable(render(helm, {"createNamespace": True, **values}, tmp_path))
    assert found.keys() == expected.keys()
    for key, each in expected.items():
        assert found[key] == json.loads(json.dumps(each)), key


def test_definitions_stay_and_a_changed_configuration_restarts_programs(helm: str, tmp_path: Path) -> None:
    plain, changed = (render(helm, {"config": each}, tmp_path) for each in ({}, {"reservation": {"chargeQuota": True}}))
    for (kind, _, name), each in plain.items():
        if kind == "CustomResourceDefinition":
            assert each["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
        if kind == "Deployment":
            hashes = [
                found[kind, "wharfinger-system", name]["spec"]["template"]["metadata"]["annotations"][CONFIG_HASH]
                for found in (plain, changed)
            ]
            assert hashes[0] != hashes[1] and all(isinstance(value, str) for value in hashes)
    assert not any(kind == "Namespace" for kind, _, _ in plain)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"components": ["scheduling"]}, "components/0"),
        ({"replica": 1}, "replica"),
        ({"image": {"repository": "w", "digest": "sha256:0a"}}, "digest"),
        ({"mode": "off"}, "mode"),
    ],
)
def test_wrong_values_are_refused(helm: str, values: dict[str, Any], said: str, tmp_path: Path) -> None:
    file = tmp_path / "values.json"
    file.write_text(json.dumps(values))
    done = subprocess.run(
        [helm, "template", "r", str(CHART), "-f", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0 and said in done.stderr


def test_the_chart_passes_the_linter(helm: str) -> None:
    done = subprocess.run([helm, "lint", "--strict", str(CHART)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_kustomize_takes_what_is_printed(tmp_path: Path) -> None:
    """Without a cluster and without a kubeconfig, as a repository for GitOps is written."""
    kubectl = require("kubectl")
    environment = {**running_environment(), "HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "none")}
    printed = subprocess.run(
        [sys.executable, "-m", "wharfinger.cli.main", "install", "--offline", "--components", "all"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    (tmp_path / "wharfinger.yaml").write_text(printed)
    patch = [{"op": "add", "path": "/spec/template/spec/tolerations", "value": [{"operator": "Exists"}]}]
    (tmp_path / "kustomization.yaml").write_text(
        yaml.safe_dump(
            {
                "resources": ["wharfinger.yaml"],
                "images": [{"name": "wharfinger", "newName": "example.com/wharfinger", "digest": DIGEST}],
                "patches": [{"target": {"kind": "Deployment"}, "patch": yaml.safe_dump(patch)}],
            }
        )
    )
    built = subprocess.run(
        [kubectl, "kustomize", str(tmp_path)], env=environment, capture_output=True, text=True, check=True
    ).stdout
    before, after = (named(list(yaml.safe_load_all(text))) for text in (printed, built))
    assert before.keys() == after.keys()
    for key, each in before.items():
        if key[0] == "Deployment":
            spec = each["spec"]["template"]["spec"]
            spec["containers"][0]["image"] = f"example.com/wharfinger@{DIGEST}"
            spec["tolerations"] = [{"operator": "Exists"}]
        assert after[key] == each
