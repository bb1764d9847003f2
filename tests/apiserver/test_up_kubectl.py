"""`kubectl` with `wharf up`: commands that need controllers, a scheduler and nodes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.apiserver.running import Api, environment
from tests.apiserver.test_kubectl import DEPLOYMENT, Kubectl
from tests.controllers.test_certificates import encoded_request


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    directory = tmp_path_factory.mktemp("up")
    command = [sys.executable, "-m", "wharfinger.cli.main", "up", "--data-dir", str(directory / "d")]
    with (directory / "out").open("w") as out:
        process = subprocess.Popen(
            [*command, "--port", "0", "--nodes", "2"],
            stdout=out,
            stderr=out,
            env=environment(),
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + 120
        while "Ctrl-C stops everything" not in (directory / "out").read_text():
            assert process.poll() is None and time.monotonic() < deadline, (directory / "out").read_text()
            time.sleep(0.2)
        yield Api(directory / "d" / "kubeconfig")
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


@pytest.fixture
def kubectl(up: Api, tmp_path: Path) -> Kubectl:
    return Kubectl(up, up.namespace(), tmp_path)


def image(kubectl: Kubectl) -> str:
    found = kubectl.get("deploy", "web")["spec"]["template"]["spec"]["containers"][0]["image"]
    assert isinstance(found, str)
    return found


def test_a_deployment_is_rolled_out_undone_and_restarted(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=DEPLOYMENT)
    done = 'deployment "web" successfully rolled out'
    assert done in kubectl("rollout", "status", "deploy/web", "--timeout=50s")
    watching = kubectl.start("get", "deploy", "web", "-w", "--output-watch-events")
    kubectl("set", "image", "deploy/web", "main=nginx:2")
    assert done in kubectl("rollout", "status", "deploy/web", "--timeout=50s")
    assert kubectl("rollout", "history", "deploy/web").count("<none>") == 2
    kubectl("rollout", "undo", "deploy/web")
    assert done in kubectl("rollout", "status", "deploy/web", "--timeout=50s")
    assert image(kubectl) == "nginx:1"
    kubectl("rollout", "restart", "deploy/web")
    assert done in kubectl("rollout", "status", "deploy/web", "--timeout=50s")
    kubectl("scale", "deploy/web", "--replicas=3")
    assert "condition met" in kubectl("wait", "--for=jsonpath={.status.readyReplicas}=3", "deploy/web", "--timeout=50s")
    watching.terminate()
    out, _ = watching.communicate(timeout=20)
    assert out.startswith("EVENT")
    assert "MODIFIED" in out
    events = kubectl("events", "--for", "deploy/web")
    assert "ScalingReplicaSet" in events
    kubectl("delete", "deploy", "web", "--wait", "--timeout=50s")
    assert "condition met" not in kubectl.try_("wait", "--for=delete", "pod", "-l", "app=web", "--timeout=50s").stderr


def test_a_node_is_drained_and_comes_back(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=DEPLOYMENT)
    kubectl("rollout", "status", "deploy/web", "--timeout=50s")
    node = kubectl.get("pods")["items"][0]["spec"]["nodeName"]
    drained = kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=60s")
    assert drained.endswith(f"node/{node} drained\n")
    kubectl("rollout", "status", "deploy/web", "--timeout=50s")
    assert {pod["spec"]["nodeName"] for pod in kubectl.get("pods")["items"]}.isdisjoint({node})
    assert "SchedulingDisabled" in kubectl("get", "node", node)
    kubectl("uncordon", node)
    assert "SchedulingDisabled" not in kubectl("get", "node", node)


def test_pods_get_ready_and_are_replaced_and_described(kubectl: Kubectl) -> None:
    kubectl("run", "one", "--image=nginx")
    assert kubectl("wait", "--for=condition=Ready", "pod/one", "--timeout=50s") == "pod/one condition met\n"
    described = kubectl("describe", "pod", "one")
    assert "Scheduled" in described
    assert "Successfully assigned" in described
    found = kubectl.get("pod", "one")
    found["metadata"]["labels"]["replaced"] = "yes"
    kubectl("replace", "-f", "-", stdin=json.dumps(found))
    assert kubectl("get", "pods", "-l", "replaced=yes", "-o", "name") == "pod/one\n"
    kubectl("delete", "pod", "one", "--timeout=50s")


def test_logs_of_a_simulated_pod(kubectl: Kubectl) -> None:
    kubectl("run", "once", "--image=x", "--restart=Never", "--annotations=wharfinger.dev/run-for=2s")
    kubectl("wait", "--for=jsonpath={.status.podIP}", "pod/once", "--timeout=50s")  # it may have finished already
    lines = kubectl("logs", "-f", "once").splitlines()
    assert [line.partition(" ")[2] for line in lines[2:]] == [
        "container once started",
        "container once ready",
        "container once finished with exit code 0 (Completed)",
    ]
    assert kubectl("logs", "once", "--tail=1", "--timestamps").count("container once finished") == 1
    kubectl("run", "web", "--image=x")
    kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=50s")
    for command in (("exec", "web", "--", "ls"), ("attach", "web"), ("port-forward", "web", "8080:80")):
        refused = kubectl.try_(*command)
        assert refused.returncode != 0
        assert "is simulated, so no container of the pod runs" in refused.stderr


def test_usage_and_autoscaling(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "web", "--image=x")
    kubectl("set", "resources", "deployment", "web", "--requests=cpu=100m,memory=64Mi")
    kubectl("rollout", "status", "deploy/web", "--timeout=50s")
    kubectl("autoscale", "deployment", "web", "--min=2", "--max=4", "--cpu-percent=50")
    top = kubectl("top", "pods", "--no-headers").split()
    assert top[1:] == ["100m", "64Mi"]
    assert "node-1" in kubectl("top", "nodes")
    kubectl("wait", "--for=jsonpath={.spec.replicas}=2", "deploy/web", "--timeout=50s")
    kubectl("wait", "--for=jsonpath={.spec.replicas}=4", "deploy/web", "--timeout=110s")  # a usage of 100 %
    old = json.loads(kubectl("get", "horizontalpodautoscalers.v1.autoscaling", "web", "-o", "json"))
    assert old["spec"]["targetCPUUtilizationPercentage"] == 50
    assert "SuccessfulRescale" in kubectl("describe", "hpa", "web")


def test_certificates_are_approved_and_signed(kubectl: Kubectl) -> None:
    name = f"csr-{uuid.uuid4().hex[:8]}"
    document = {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {
            "request": encoded_request(),
            "signerName": "kubernetes.io/kube-apiserver-client",
            "usages": ["client auth"],
        },
    }
    kubectl("create", "-f", "-", stdin=json.dumps(document))
    assert "approved" in kubectl("certificate", "approve", name)
    kubectl("wait", "--for=jsonpath={.status.certificate}", f"csr/{name}", "--timeout=50s")
    assert "Approved,Issued" in kubectl("get", "csr", name)
    kubectl("delete", "csr", name)


def test_services_have_endpoints_and_namespaces_the_authority(kubectl: Kubectl) -> None:
    kubectl("run", "web", "--image=x", "--port=80", "--expose")
    kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=50s")
    address = kubectl.get("pod", "web")["status"]["podIP"]
    kubectl("wait", f"--for=jsonpath={{.subsets[0].addresses[0].ip}}={address}", "endpoints/web", "--timeout=50s")
    [found] = kubectl.get("endpointslices", "-l", "kubernetes.io/service-name=web")["items"]
    assert found["endpoints"][0]["addresses"] == [address]
    kubectl("wait", "--for=create", "configmap/kube-root-ca.crt", "--timeout=50s")
    assert "BEGIN CERTIFICATE" in kubectl.get("configmap", "kube-root-ca.crt")["data"]["ca.crt"]
