"""Real containers under our API server, controllers and scheduler."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import kubernetes.stream
from tests.apiserver.running import Api
from tests.real_node.conftest import NODE, RealCluster, Tenant, container, free_port, pod, pod_spec
from tests.real_node.machine import until

import kubernetes

TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"


def test_a_kubelet_joins_with_a_bootstrap_token(cluster: RealCluster) -> None:
    requests = cluster.get("csr")["items"]
    mine = [one for one in requests if one["spec"]["username"].startswith("system:bootstrap:")]
    assert mine and all(one["spec"]["signerName"] == "kubernetes.io/kube-apiserver-client-kubelet" for one in mine)
    assert any(one["status"].get("certificate") for one in mine)
    node = cluster.get("node", NODE)
    assert node["metadata"]["annotations"]["wharfinger.dev/simulated"] == "false"
    assert node["status"]["nodeInfo"]["containerRuntimeVersion"].startswith("containerd://")
    shown = json.loads(cluster("get", "node", NODE, "-o", "json", "--show-managed-fields"))["metadata"]["managedFields"]
    assert "kubelet" in {entry["manager"] for entry in shown}
    assert "wharfinger-nodes" not in {entry["manager"] for entry in shown}
    simulated = cluster.get("node", "node-1")
    assert simulated["status"]["nodeInfo"]["containerRuntimeVersion"] == "simulated://1"


def test_containers_run_and_their_output_is_the_log(kubectl: Tenant) -> None:
    kubectl.apply(pod("p", "echo one; echo two >&2; sleep 1; echo three; exit 7", restartPolicy="Never"))
    until("it starts", lambda: "waiting" not in kubectl.get("pod", "p")["status"]["containerStatuses"][0]["state"])
    lines = kubectl("logs", "p", "--follow").split()
    assert (sorted(lines[:2]), lines[2:]) == (["one", "two"], ["three"])  # two pipes have no order between them
    kubectl.wait("pod/p", "jsonpath={.status.phase}=Failed")
    (status,) = kubectl.get("pod", "p")["status"]["containerStatuses"]
    assert status["state"]["terminated"]["exitCode"] == 7
    assert kubectl("logs", "p", "--tail=1") == "three\n"
    assert kubectl("logs", "p", "--tail=1", "--timestamps").split()[1] == "three"


def test_a_log_of_a_container_that_waits_is_refused_with_the_reason(kubectl: Tenant) -> None:
    kubectl.apply(pod("p", container={"image": "wharfinger.test/nosuch:1"}))
    until("the image is missed", lambda: "ErrImageNeverPull" in kubectl("get", "pod", "p"))
    refused = kubectl.run("logs", "p", check=False)
    assert refused.returncode == 1
    assert 'container "main" in pod "p" is waiting to start: ErrImageNeverPull' in refused.stderr


def test_a_container_is_restarted_and_its_previous_log_kept(kubectl: Tenant) -> None:
    kubectl.apply(pod("p", "echo run; exit 1"))
    until("it restarts", lambda: kubectl.get("pod", "p")["status"]["containerStatuses"][0]["restartCount"] >= 1)
    assert kubectl("logs", "p", "--previous") == "run\n"


def test_commands_are_executed_in_containers(kubectl: Tenant, tmp_path: Path) -> None:
    kubectl.apply(pod("p"))
    kubectl.wait("pod/p")
    assert kubectl("exec", "p", "--", "echo", "a b", "c") == "a b c\n"
    assert kubectl("exec", "-i", "p", "--", "cat", stdin="given\n" * 50_000) == "given\n" * 50_000
    failed = kubectl.run("exec", "p", "--", "sh", "-c", "echo out; echo err >&2; exit 3", check=False)
    assert (failed.returncode, failed.stdout) == (3, "out\n")
    assert failed.stderr.startswith("err\n")
    original = tmp_path / "original"
    original.write_bytes(bytes(range(256)) * 4096)
    kubectl("cp", str(original), "p:/tmp/there")
    kubectl("cp", "p:/tmp/there", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == original.read_bytes()


def test_commands_are_executed_over_websockets(kubectl: Tenant) -> None:
    """As client libraries do; kubectl prefers SPDY here, since the runtime does not know its newest protocol."""
    kubectl.apply(pod("p"))
    kubectl.wait("pod/p")
    client = kubernetes.config.new_client_from_config(str(kubectl.cluster.data / "kubeconfig"))
    call = kubernetes.client.CoreV1Api(client).connect_get_namespaced_pod_exec
    arguments = {"command": ["sh", "-c", "echo out; echo err >&2"], "stdout": True, "stderr": True}
    said = kubernetes.stream.stream(call, "p", kubectl.namespace, **arguments)
    assert sorted(said.split()) == ["err", "out"]
    talking = kubernetes.stream.stream(
        call, "p", kubectl.namespace, command=["cat"], stdin=True, stdout=True, _preload_content=False
    )
    talking.write_stdin("hello\n")
    assert talking.readline_stdout(timeout=30) == "hello"
    talking.close()


def test_attach_reaches_the_main_process(kubectl: Tenant) -> None:
    kubectl.apply(pod("p", "while read line; do echo got $line; done", container={"stdin": True}))
    kubectl.wait("pod/p")
    with kubectl.start("attach", "-i", "p") as attached:
        assert attached.stdin is not None and attached.stdout is not None
        for word in ("one", "two"):
            attached.stdin.write(f"{word}\n")
            attached.stdin.flush()
            assert attached.stdout.readline() == f"got {word}\n"
        attached.terminate()


def test_ports_are_forwarded(kubectl: Tenant) -> None:
    kubectl.apply(pod("p", "echo hello > /www/index.html; exec httpd -f -p 8080 -h /www"))
    kubectl.wait("pod/p")
    port = free_port()
    with kubectl.start("port-forward", "pod/p", f"{port}:8080") as forwarding:
        assert forwarding.stdout is not None
        assert forwarding.stdout.readline().startswith("Forwarding from")
        for _ in range(3):
            assert fetch(("127.0.0.1", port), "/index.html").endswith("hello\n")
        forwarding.terminate()


def fetch(address: tuple[str, int], path: str) -> str:
    with socket.create_connection(address, timeout=20) as connection:
        connection.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        said = b""
        while data := connection.recv(65536):
            said += data
    return said.decode()


def test_nodes_pods_and_services_are_proxied(kubectl: Tenant) -> None:
    assert kubectl("get", "--raw", f"/api/v1/nodes/{NODE}/proxy/healthz") == "ok"
    configuration = json.loads(kubectl("get", "--raw", f"/api/v1/nodes/{NODE}/proxy/configz"))
    assert configuration["kubeletconfig"]["containerRuntimeEndpoint"] == kubectl.cluster.machine.runtime
    kubectl.apply(pod("p", "echo hello > /www/index.html; exec httpd -f -p 8080 -h /www"))
    kubectl.wait("pod/p")
    base = f"/api/v1/namespaces/{kubectl.namespace}"
    assert kubectl("get", "--raw", f"{base}/pods/p:8080/proxy/index.html") == "hello\n"
    kubectl("expose", "pod", "p", "--name=s", "--port=80", "--target-port=8080")
    path = f"{base}/services/s:80/proxy/index.html"
    until("the service has endpoints", lambda: kubectl("get", "--raw", path) == "hello\n", 30)


def test_usage_is_measured(kubectl: Tenant) -> None:
    kubectl.apply(pod("p", "while true; do :; done", container={"resources": {"limits": {"cpu": "200m"}}}))
    kubectl.wait("pod/p")

    def used() -> bool:
        path = f"/apis/metrics.k8s.io/v1beta1/namespaces/{kubectl.namespace}/pods/p"
        (container,) = json.loads(kubectl("get", "--raw", path))["containers"]
        return int(container["usage"]["cpu"].removesuffix("n")) > 50_000_000

    until("the usage of the container is known", used)
    assert kubectl("top", "pod", "p", "--no-headers").split()[0] == "p"
    assert any(line.startswith(NODE) for line in kubectl("top", "nodes").splitlines())


def test_pods_read_config_maps_and_secrets(kubectl: Tenant) -> None:
    kubectl("create", "configmap", "c", "--from-literal=key=one")
    kubectl("create", "secret", "generic", "s", "--from-literal=key=secret")
    mounts = [{"name": "c", "mountPath": "/c"}]
    variable = {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "key"}}}
    volumes = [{"name": "c", "configMap": {"name": "c"}}]
    kubectl.apply(pod("p", container={"volumeMounts": mounts, "env": [variable]}, volumes=volumes))
    kubectl.wait("pod/p")
    assert kubectl("exec", "p", "--", "sh", "-c", "cat /c/key; echo $SECRET") == "onesecret\n"
    kubectl("patch", "configmap", "c", "--patch", '{"data":{"key":"two"}}')
    until("the kubelet sees the change", lambda: kubectl("exec", "p", "--", "cat", "/c/key") == "two")


def test_a_pod_uses_the_api_with_its_token(kubectl: Tenant) -> None:
    """kubectl in the pod finds the server, its certificate and the token as every client in a pod does."""
    programs = kubectl.cluster.binaries["kubectl"].parent
    folders = {"/kubernetes": str(programs), "/lib": "/usr/lib", "/lib64": "/usr/lib64"}
    volumes = [{"name": f"v{number}", "hostPath": {"path": path}} for number, path in enumerate(folders.values())]
    mounts = [{"name": f"v{number}", "mountPath": at, "readOnly": True} for number, at in enumerate(folders)]
    kubectl("create", "rolebinding", "view", "--clusterrole=view", f"--serviceaccount={kubectl.namespace}:default")
    kubectl.apply(pod("p", container={"volumeMounts": mounts}, volumes=volumes))
    kubectl.wait("pod/p")

    def inside(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return kubectl.run("exec", "p", "--", "/kubernetes/kubectl", *arguments, check=check)

    until("the role is in effect", lambda: inside("get", "pods", "-o", "name", check=False).stdout == "pod/p\n", 30)
    refused = inside("get", "secrets", check=False)
    assert f'User "system:serviceaccount:{kubectl.namespace}:default" cannot list resource "secrets"' in refused.stderr
    info = json.loads(inside("auth", "whoami", "-o", "json").stdout)["status"]["userInfo"]
    assert info["extra"]["authentication.kubernetes.io/pod-name"] == ["p"]
    assert info["extra"]["authentication.kubernetes.io/node-name"] == [NODE]

    token = kubectl("exec", "p", "--", "cat", f"{TOKEN}/token")
    api = Api(kubectl.cluster.data / "kubeconfig", token)
    assert api.ask("GET", "/version").status == 200
    kubectl("delete", "pod", "p", "--grace-period=1")
    assert api.ask("GET", "/version").status == 401


def test_the_scheduler_knows_what_the_node_has(kubectl: Tenant) -> None:
    capacity = int(kubectl.cluster.get("node", NODE)["status"]["capacity"]["cpu"])
    kubectl.apply(pod("large", container={"resources": {"requests": {"cpu": str(capacity + 1)}}}))
    until("it waits for a reason", lambda: "Insufficient cpu" in json.dumps(kubectl.get("pod", "large")["status"]))
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {
            "replicas": 4,
            "selector": {"matchLabels": {"app": "d"}},
            "template": {"metadata": {"labels": {"app": "d"}}, "spec": spread()},
        },
    }
    kubectl.apply(deployment)
    kubectl.wait("deployment/d", "condition=Available")
    pods = kubectl.get("pods", "-l", "app=d")["items"]
    assert sorted(one["spec"]["nodeName"] for one in pods) == ["node-1", "node-1", NODE, NODE]


def spread() -> dict[str, Any]:
    """A pod for any node, spread evenly."""
    constraint = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "d"}},
    }
    spec = pod_spec(topologySpreadConstraints=[constraint])
    return {key: value for key, value in spec.items() if key != "nodeSelector"}


def test_a_budget_guards_against_eviction_and_drain(kubectl: Tenant) -> None:
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "d"}}},
    }
    template = {"metadata": {"labels": {"app": "d"}}, "spec": pod_spec()}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "d"}}, "template": template}
    kubectl.apply(budget, {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec})
    kubectl.wait("deployment/d", "condition=Available")
    (name,) = (one["metadata"]["name"] for one in kubectl.get("pods", "-l", "app=d")["items"])
    until("the budget is known", lambda: kubectl.get("pdb", "b")["status"].get("currentHealthy") == 1, 30)
    own = ("drain", NODE, "--ignore-daemonsets", "--delete-emptydir-data", "--pod-selector=app=d")
    try:
        refused = kubectl.run(*own, "--timeout=8s", check=False)
        assert refused.returncode == 1
        assert "Cannot evict pod as it would violate the pod's disruption budget." in refused.stderr
        assert kubectl.get("pod", name)["status"]["phase"] == "Running"
        kubectl("delete", "pdb", "b")
        assert f"pod/{name} evicted" in kubectl(*own, "--timeout=120s")
        replacement = until("a new pod waits", lambda: kubectl.get("pods", "-l", "app=d")["items"], 60)
        until("nothing fits", lambda: "unschedulable" in json.dumps(kubectl.get("pods", "-l", "app=d")), 60)
        assert [one["metadata"]["name"] for one in replacement] != [name]
    finally:
        kubectl("uncordon", NODE)
    kubectl.wait("deployment/d", "condition=Available")


def test_a_running_container_is_resized(kubectl: Tenant) -> None:
    resources = {"requests": {"cpu": "50m", "memory": "16Mi"}, "limits": {"cpu": "100m", "memory": "64Mi"}}
    kubectl.apply(pod("p", container={"resources": resources}))
    kubectl.wait("pod/p")
    before = kubectl.get("pod", "p")["status"]["containerStatuses"][0]
    wanted = {"requests": {"cpu": "80m"}, "limits": {"cpu": "200m"}}
    patch = json.dumps({"spec": {"containers": [{"name": "main", "resources": wanted}]}})
    kubectl("patch", "pod", "p", "--subresource", "resize", "--patch", patch)

    def resized() -> bool:
        (status,) = kubectl.get("pod", "p")["status"]["containerStatuses"]
        return bool(status.get("resources", {}).get("limits", {}).get("cpu") == "200m")

    until("the kubelet reports the new limit", resized)
    after = kubectl.get("pod", "p")["status"]["containerStatuses"][0]
    assert after["containerID"] == before["containerID"] and after["restartCount"] == 0
    assert after["allocatedResources"]["cpu"] == "80m"
    identity = after["containerID"].removeprefix("containerd://")
    assert quota_of(identity) == 20_000
    wanted = {"requests": {"cpu": "900"}, "limits": {"cpu": "900"}}
    patch = json.dumps({"spec": {"containers": [{"name": "main", "resources": wanted}]}})
    kubectl("patch", "pod", "p", "--subresource", "resize", "--patch", patch)

    def pending() -> Any:
        conditions = kubectl.get("pod", "p")["status"]["conditions"]
        return next((one for one in conditions if one["type"] == "PodResizePending"), None)

    found = until("the kubelet says that it does not fit", pending)
    assert "Node didn't have enough resource: cpu" in found["message"]
    assert quota_of(identity) == 20_000


def quota_of(container_id: str) -> int:
    """The CPU time in microseconds that the kernel allows a container in each period of 100 ms."""
    root = Path("/sys/fs/cgroup")
    for path in root.rglob(f"{container_id}/cpu.cfs_quota_us"):
        return int(path.read_text())
    for path in root.rglob(f"*{container_id}*/cpu.max"):
        return int(path.read_text().split()[0])
    raise AssertionError(f"container {container_id} has no cgroup")


def test_pods_leave_a_lost_node_and_it_comes_back(kubectl: Tenant) -> None:
    cluster = kubectl.cluster
    tolerations = [
        {"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
        for name in ("unreachable", "not-ready")
    ]
    template = {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [container()], "tolerations": tolerations}}
    template["spec"]["affinity"] = prefers(NODE)
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "d"}}, "template": template}
    kubectl.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec})
    kubectl.wait("deployment/d", "condition=Available")
    (first,) = kubectl.get("pods", "-l", "app=d")["items"]
    assert first["spec"]["nodeName"] == NODE
    assert cluster.kubelet is not None
    cluster.kubelet.stop(signal.SIGKILL)

    until("the node is unknown", lambda: cluster.node_condition("Ready") == "Unknown", 180)
    taints = until("it is tainted", lambda: cluster.get("node", NODE)["spec"].get("taints"), 30)
    assert {taint["key"] for taint in taints} == {"node.kubernetes.io/unreachable"}

    def moved() -> bool:
        pods = kubectl.get("pods", "-l", "app=d")["items"]
        return any(one["spec"].get("nodeName") == "node-1" and one["status"]["phase"] == "Running" for one in pods)

    until("the pod is replaced on another node", moved, 60)
    # No kubelet confirms that the first one has ended, so it stays.
    name = first["metadata"]["name"]
    assert kubectl.get("pod", name)["metadata"]["deletionTimestamp"]
    refused = kubectl.run("logs", name, check=False)
    assert refused.returncode == 1 and "connect: connection refused" in refused.stderr

    cluster.join(NODE)  # with a certificate of its own this time
    cluster.wait_ready()
    until("the taints are gone", lambda: not cluster.get("node", NODE)["spec"].get("taints"), 60)
    until("the first pod is gone", lambda: kubectl.run("get", "pod", name, check=False).returncode == 1)
    kubectl.apply(pod("after"))
    kubectl.wait("pod/after")


def prefers(node: str) -> dict[str, Any]:
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    term = {"weight": 100, "preference": {"matchExpressions": [expression]}}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}


def test_a_pod_ends_when_its_time_is_over(kubectl: Tenant) -> None:
    kubectl.apply(pod("p", activeDeadlineSeconds=2))
    kubectl.wait("pod/p", "jsonpath={.status.phase}=Failed")
    status = kubectl.get("pod", "p")["status"]
    assert status["reason"] == "DeadlineExceeded"
    # The kubelet counts from the start time, which is stored in whole seconds.
    assert time.time() - datetime.fromisoformat(status["startTime"]).timestamp() >= 2
