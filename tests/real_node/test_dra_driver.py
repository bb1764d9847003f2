"""The device agent as a DRA driver beside a real kubelet: a portable name and a raw claim bring devices into containers."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.apiserver.running import environment
from tests.kubernetes.cluster import ROOT
from tests.real_node.conftest import NODE, WHARF, RealCluster, Tenant, pod
from tests.real_node.machine import Program, until

DRIVER = "gpu.example.com"
CLASS = "gpu.large"
ALIAS = f"resourceclass.scheduling.sigs.x-k8s.io/{CLASS}"
SHOW = 'echo "ids=$GPU_IDS names=$WHARFINGER_DEVICES"; sleep 1000000'


@pytest.fixture(scope="module")
def driver(cluster: RealCluster) -> Iterator[Program]:
    """The driver and the sample plugin, with four GPUs of two kinds."""
    sample = ROOT / "examples" / "device-plugin"
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # paths of sockets must be short
        log = cluster.machine.folder / "dra-driver.log"
        agent = [*WHARF, "device-agent", "--node", NODE, "--plugin-dir", folder, "--driver", DRIVER]
        agent += ["--kubelet-dir", str(cluster.machine.folder / f"kubelet-{NODE}")]
        agent += ["--cdi-dir", str(cluster.machine.cdi), "--kubeconfig", str(cluster.data / "kubeconfig")]
        command = [sys.executable, str(sample / "plugin.py"), "--devices", str(sample / "devices.json")]
        programs = [
            Program("dra-driver", agent, log, **environment()),
            Program("plugin", [*command, "--plugin-dir", folder], Path(folder, "plugin.log"), **environment()),
        ]
        try:
            until("the devices are published", lambda: len(devices(cluster)) == 4, 60)
            until("the kubelet knows the driver", lambda: "the kubelet registered" in log.read_text(), 60)
            yield programs[0]
        finally:
            for program in reversed(programs):
                program.stop()
            cluster.run("delete", "resourceslices", "--all", check=False)


def devices(cluster: RealCluster) -> list[dict[str, Any]]:
    found = cluster.get("resourceslices")["items"]
    return [each for slice in found for each in slice["spec"].get("devices", ())]


def check_devices(kubectl: Tenant, name: str, *devices: str) -> None:
    """The container of a pod has the environment variables of the driver's CDI file, which containerd gave it."""
    wanted = ",".join(devices)
    said = until("it says what it has", lambda: kubectl.run("logs", name, check=False).stdout.strip())
    assert said == f"ids={wanted} names={wanted}"


def test_a_portable_name_brings_devices_into_a_container(kubectl: Tenant, driver: Program) -> None:
    kubectl.apply(
        {
            "apiVersion": "scheduling.sigs.x-k8s.io/v1alpha1",
            "kind": "ResourceClass",
            "metadata": {"name": CLASS},
            "spec": {
                "resourceName": "example.com/gpu",
                "driver": DRIVER,
                "resourceSelector": [{"matchExpressions": [{"key": "memory", "operator": "Gt", "values": ["15G"]}]}],
            },
        }
    )
    until("the class has devices", lambda: kubectl.get("resourceclass", CLASS)["status"]["devices"] == 2, 60)
    kubectl.apply(pod("p", SHOW, container={"resources": {"limits": {ALIAS: "2"}}}))
    kubectl.wait("pod/p")
    check_devices(kubectl, "p", "gpu-2", "gpu-3")
    kubectl.apply(pod("second", SHOW, container={"resources": {"limits": {ALIAS: "1"}}}))
    until(
        "the second waits", lambda: "cannot allocate all claims" in json.dumps(kubectl.get("pod", "second")["status"])
    )
    kubectl("delete", "pod", "p", "--grace-period=1")
    kubectl.wait("pod/second")
    check_devices(kubectl, "second", "gpu-2")


def test_a_raw_claim_is_prepared_and_unprepared(kubectl: Tenant, cluster: RealCluster, driver: Program) -> None:
    expression = f'device.driver == "{DRIVER}"'
    selector = f'device.attributes["{DRIVER}"].gpuType == "k80"'
    kubectl.apply(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": "any-gpu"},
            "spec": {"selectors": [{"cel": {"expression": expression}}]},
        },
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "old"},
            "spec": {
                "spec": {
                    "devices": {
                        "requests": [
                            {
                                "name": "gpu",
                                "exactly": {
                                    "deviceClassName": "any-gpu",
                                    "selectors": [{"cel": {"expression": selector}}],
                                },
                            }
                        ]
                    }
                }
            },
        },
    )
    claims = [{"name": "gpu", "resourceClaimTemplateName": "old"}]
    kubectl.apply(pod("p", SHOW, resourceClaims=claims, container={"resources": {"claims": [{"name": "gpu"}]}}))
    kubectl.wait("pod/p")
    check_devices(kubectl, "p", "gpu-0")
    (claim,) = kubectl.get("resourceclaims")["items"]
    file = cluster.machine.cdi / f"{DRIVER}-{claim['metadata']['uid']}.json"
    assert file.exists()
    kubectl("delete", "pod", "p", "--grace-period=1")
    until("the claim is unprepared", lambda: not file.exists(), 60)
