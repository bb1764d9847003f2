"""The chart on a cluster from nothing: install, use, upgrade with other values, roll back, uninstall. The tests build on each
other and run in this order."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
from scripts.chart import CHART
from tests.kubernetes.binaries import HELM, NoBinaries, find_or_make
from tests.kubernetes.cluster import OURS
from tests.kubernetes.manifests import namespace
from tests.real_node.builds import Builds
from tests.real_node.conftest import whole
from tests.real_node.from_nothing import NODE, NodeCluster, cluster_from_nothing, everything
from tests.real_node.images import IMAGE
from tests.support import missing

pytestmark = whole
SPACE = "shop"
RELEASE = "wharfinger"
DEFINITION = "CustomResourceDefinition"
PROGRAMS = ("controllers", "dashboard", "placement", "scheduler", "webhook")
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/wharfinger"


class Helm:
    def __init__(self, program: str, cluster: NodeCluster) -> None:
        self._program = program
        self._cluster = cluster

    def __call__(self, *arguments: str) -> str:
        home = {name: str(self._cluster.folder / "helm") for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME")}
        done = subprocess.run(
            [self._program, *arguments, "--kubeconfig", str(self._cluster.kubeconfig), "--namespace", OURS],
            env={**os.environ, **home},
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}\n{self._cluster.why(OURS)}"
        return done.stdout

    def change(self, action: str, values: dict[str, Any], *arguments: str) -> str:
        """Installs or upgrades the release, and waits until all is ready."""
        file = self._cluster.folder / "values.json"
        file.write_text(json.dumps(values))
        return self(action, RELEASE, str(CHART), "--values", str(file), "--wait", "--timeout=5m", *arguments)


@pytest.fixture(scope="module")
def cluster(builds: Builds, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeCluster]:
    with cluster_from_nothing(builds, tmp_path_factory.mktemp("chart")) as made:
        yield made


@pytest.fixture(scope="module")
def helm(cluster: NodeCluster) -> Helm:
    try:
        return Helm(str(find_or_make(HELM)[HELM]), cluster)
    except NoBinaries as error:
        missing("helm", str(error))


@pytest.fixture(scope="module")
def before(cluster: NodeCluster) -> set[tuple[str, str, str]]:
    return everything(cluster)


def values(builds: Builds, number: int = 0, **more: Any) -> dict[str, Any]:
    return {"image": {"repository": "wharfinger", "digest": builds.digests[number]}, **more}


def pod(name: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": IMAGE, "imagePullPolicy": "Never"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": SPACE},
        "spec": {
            "schedulerName": "wharfinger",
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            **spec,
        },
    }


def as_developer(cluster: NodeCluster, document: dict[str, Any]) -> str:
    account = f"system:serviceaccount:{SPACE}:developer"
    return cluster.kubectl("create", "--as", account, "-f", "-", stdin=json.dumps(document), check=False)


def images(cluster: NodeCluster) -> set[str]:
    found = cluster.items(f"/apis/apps/v1/namespaces/{OURS}/deployments")
    return {each["spec"]["template"]["spec"]["containers"][0]["image"] for each in found}


def test_a_release_becomes_ready_and_says_what_is_next(
    helm: Helm, cluster: NodeCluster, builds: Builds, before: set[tuple[str, str, str]]
) -> None:
    assert not any("wharfinger" in name for _, _, name in before)
    said = helm.change("install", values(builds), "--create-namespace")
    assert f"is installed in the namespace {OURS}: scheduler," in said
    assert "Scheduling policies only warn." in said
    assert cluster.deployments() == [f"wharfinger-{program}" for program in PROGRAMS]
    cluster.until(lambda: cluster.get(WEBHOOKS).get("webhooks"), "the webhook has registered itself")


def test_pods_are_scheduled_and_policies_warn(helm: Helm, cluster: NodeCluster) -> None:
    cluster.apply(namespace(SPACE))
    cluster.kubectl("create", "serviceaccount", "developer", "-n", SPACE)
    cluster.kubectl(
        "create", "rolebinding", "developer", "--clusterrole=edit", f"--serviceaccount={SPACE}:developer", "-n", SPACE
    )
    said = as_developer(cluster, pod("greedy", tolerations=[{"operator": "Exists"}]))
    assert "Warning: " in said and "tolerations" in said and "created" in said, said
    cluster.kubectl("wait", "--for=condition=Ready", "pod/greedy", "-n", SPACE, "--timeout=120s")
    assert cluster.get(f"/api/v1/namespaces/{SPACE}/pods/greedy")["spec"]["nodeName"] == NODE
    cluster.kubectl("delete", "pod", "greedy", "-n", SPACE)


def test_an_upgrade_changes_what_the_values_change(helm: Helm, cluster: NodeCluster, builds: Builds) -> None:
    registered = cluster.get(WEBHOOKS)["webhooks"]
    limits = {"scheduler": {"limits": {"memory": "777Mi"}}}
    said = helm.change("upgrade", values(builds, 1, mode="enforce", replicas=1, resources=limits))
    assert "only warn" not in said
    assert images(cluster) == {builds.image(1)}
    scheduler = cluster.get(f"/apis/apps/v1/namespaces/{OURS}/deployments/wharfinger-scheduler")["spec"]
    assert scheduler["replicas"] == 1
    assert scheduler["template"]["spec"]["containers"][0]["resources"]["limits"] == {"memory": "777Mi"}
    assert [each["name"] for each in cluster.get(WEBHOOKS)["webhooks"]] == [each["name"] for each in registered]

    def refused() -> bool:  # the old webhook may still answer for a moment
        said = as_developer(cluster, pod("greedy", tolerations=[{"operator": "Exists"}]))
        if "created" in said:
            cluster.kubectl("delete", "pod", "greedy", "-n", SPACE)
        return "denied the request" in said

    cluster.until(refused, "policies are enforced")


def test_components_can_be_left_out_and_come_back(helm: Helm, cluster: NodeCluster, builds: Builds) -> None:
    definitions = {each for each in everything(cluster) if each[0] == DEFINITION}
    helm.change("upgrade", values(builds, 1, components=["scheduler", "resource-policy"]))
    assert cluster.deployments() == [f"wharfinger-{program}" for program in ("controllers", "scheduler", "webhook")]
    assert definitions <= everything(cluster)
    helm("rollback", RELEASE, "2", "--wait", "--timeout=5m")
    assert cluster.deployments() == [f"wharfinger-{program}" for program in PROGRAMS]
    cluster.until(lambda: cluster.get(WEBHOOKS).get("webhooks"), "the webhook has registered itself again")


def test_uninstalling_leaves_only_definitions_and_the_namespace(
    helm: Helm, cluster: NodeCluster, before: set[tuple[str, str, str]]
) -> None:
    cluster.kubectl("delete", "namespace", SPACE, "--timeout=120s")
    cluster.run_wharf("uninstall", "--keep-definitions", "--yes", cluster=True)
    helm("uninstall", RELEASE, "--wait", "--timeout=2m")
    found = cluster.items("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
    kinds = {DEFINITION, *(each["spec"]["names"]["kind"] for each in found)}
    groups = {each["spec"]["group"] for each in found}
    expected = {("Namespace", "", OURS), ("ConfigMap", OURS, "kube-root-ca.crt"), ("ServiceAccount", OURS, "default")}

    def left() -> set[tuple[str, str, str]]:
        made = everything(cluster) - before - expected
        served = {each for each in made if each[0] == "APIService" and each[2].partition(".")[2] in groups}
        return {each for each in made - served if each[0] not in kinds}

    end = time.monotonic() + 120
    while remaining := left():
        assert time.monotonic() < end, f"this is left: {sorted(remaining)}"
        time.sleep(1)
    assert found and all(each["spec"].get("conversion", {}).get("strategy") != "Webhook" for each in found)
