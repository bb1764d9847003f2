"""From an empty cluster to one that Wharfinger runs on, and back: image, installation, the stories of the five systems with
real containers, upgrade, restart, reboot, removal. The tests build on each other and run in this order."""

from __future__ import annotations

import json
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from scripts.image.__main__ import LIMIT
from tests.kubernetes.cluster import OURS
from tests.kubernetes.manifests import condition, namespace
from tests.real_node.builds import Builds
from tests.real_node.conftest import whole
from tests.real_node.from_nothing import NODE, NodeCluster, cluster_from_nothing, everything, marked
from tests.real_node.images import IMAGE

SPACE = "shop"
SIGS = "scheduling.sigs.x-k8s.io/v1alpha1"
SLOT = "example.com/slot"
PROGRAMS = ("controllers", "dashboard", "placement", "scheduler", "webhook")


@pytest.fixture(scope="module")
def cluster(builds: Builds, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeCluster]:
    with cluster_from_nothing(builds, tmp_path_factory.mktemp("nothing")) as made:
        yield made


def install(cluster: NodeCluster, builds: Builds, number: int) -> None:
    printed = cluster.run_wharf(
        "install", "--components", "all", "--enforce", "--image", builds.image(number), cluster=True
    )
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=printed)


def pod_spec(script: str = "sleep 1000000", resources: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", f"trap 'exit 0' TERM; {script} & wait $!"],
        "resources": resources or {},
    }
    return {"schedulerName": "wharfinger", "terminationGracePeriodSeconds": 1, "containers": [container], **spec}


def pod(name: str, script: str = "sleep 1000000", **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": SPACE, "labels": {"app": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec(script, **more)}


def status(cluster: NodeCluster, name: str) -> dict[str, Any]:
    found: dict[str, Any] = cluster.get(f"/api/v1/namespaces/{SPACE}/pods/{name}")
    return found


def wait_running(cluster: NodeCluster, name: str) -> None:
    said = cluster.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "-n", SPACE, "--timeout=120s", check=False)
    assert "condition met" in said, f"{said}\n{cluster.why(SPACE)}"
    assert status(cluster, name)["spec"]["nodeName"] == NODE


def wait_refused(cluster: NodeCluster, name: str, reason: str) -> None:
    cluster.until(lambda: reason in str(condition(status(cluster, name), "PodScheduled")), f"{name} waits: {reason}")


def remove(cluster: NodeCluster, *names: str) -> None:
    cluster.kubectl("delete", *names, "-n", SPACE, "--timeout=60s")


def test_the_image_is_small(builds: Builds) -> None:
    assert builds.compressed < LIMIT
    assert builds.digests[0] != builds.digests[1]


def test_every_component_becomes_ready_with_its_printed_rights(cluster: NodeCluster, builds: Builds) -> None:
    global before
    before = everything(cluster)
    install(cluster, builds, 0)
    assert cluster.deployments() == [f"wharfinger-{program}" for program in PROGRAMS]
    cluster.wait_for_rollout()
    webhooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/wharfinger"
    cluster.until(lambda: cluster.get(webhooks).get("webhooks"), "the webhook has registered itself")
    for each in cluster.items(f"/api/v1/namespaces/{OURS}/pods"):
        (container,) = each["status"]["containerStatuses"]
        assert container["restartCount"] == 0, f"{json.dumps(each['status'], indent=1)}\n{cluster.why(OURS)}"
        assert builds.digests[0] in each["spec"]["containers"][0]["image"]
    check_logs(cluster)


before: set[tuple[str, str, str]] = set()


def check_logs(cluster: NodeCluster) -> None:
    for each in cluster.items(f"/api/v1/namespaces/{OURS}/pods"):
        if each["metadata"].get("deletionTimestamp"):
            continue  # it may be gone before its log is read
        log = cluster.kubectl("logs", "-n", OURS, each["metadata"]["name"])
        assert "is forbidden: User" not in log and "Traceback" not in log, log


def test_metrics_are_served_by_tls_to_those_who_may_read_them(cluster: NodeCluster) -> None:
    cluster.kubectl("create", "serviceaccount", "prometheus", "-n", "default")
    cluster.kubectl("create", "serviceaccount", "nobody", "-n", "default")
    cluster.kubectl(
        "create",
        "clusterrolebinding",
        "prometheus",
        "--clusterrole=system:monitoring",
        "--serviceaccount=default:prometheus",
    )
    reader = cluster.kubectl("create", "token", "prometheus", "-n", "default").strip()
    nobody = cluster.kubectl("create", "token", "nobody", "-n", "default").strip()
    for program, port in (("scheduler", 10290), ("controllers", 10290), ("placement", 10290), ("webhook", 9443)):
        selected = f"labelSelector=app.kubernetes.io%2Fcomponent%3D{program}"
        address = cluster.items(f"/api/v1/namespaces/{OURS}/pods?{selected}")[0]["status"]["podIP"]
        base = f"https://{address}:{port}"
        assert fetch(f"{base}/healthz") == (200, "ok")
        assert fetch(f"{base}/metrics")[0] == 401
        cluster.until(lambda base=base: fetch(f"{base}/metrics", nobody)[0] == 403, "it is asked who that is")  # type: ignore[misc]
        cluster.until(lambda base=base: fetch(f"{base}/metrics", reader)[0] == 200, "the role is in effect")  # type: ignore[misc]
        assert "# TYPE " in fetch(f"{base}/metrics", reader)[1]
    cluster.kubectl("delete", "clusterrolebinding", "prometheus")
    cluster.kubectl("delete", "serviceaccount", "prometheus", "nobody", "-n", "default")


def fetch(url: str, token: str = "") -> tuple[int, str]:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=20, context=ssl._create_unverified_context()) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_nobody_else_reads_the_webhook_s_certificates(cluster: NodeCluster) -> None:
    asked = ("auth", "can-i", "get", "secrets/wharfinger-webhook", "-n", OURS, "--as")
    for program in PROGRAMS:
        said = cluster.kubectl(*asked, f"system:serviceaccount:{OURS}:wharfinger-{program}", check=False)
        assert said.startswith("yes" if program == "webhook" else "no"), program


def test_the_story_of_scheduling_policies(cluster: NodeCluster) -> None:
    cluster.apply(namespace(SPACE))
    cluster.kubectl("create", "serviceaccount", "developer", "-n", SPACE)
    cluster.kubectl(
        "create", "rolebinding", "developer", "--clusterrole=edit", f"--serviceaccount={SPACE}:developer", "-n", SPACE
    )
    mine = ("create", "--as", f"system:serviceaccount:{SPACE}:developer", "-f", "-")
    refused = cluster.kubectl(*mine, stdin=json.dumps(pod("greedy", tolerations=[{"operator": "Exists"}])), check=False)
    assert "denied the request" in refused and "tolerations" in refused, refused
    cluster.kubectl(*mine, stdin=json.dumps(pod("modest")))
    wait_running(cluster, "modest")
    remove(cluster, "pod/modest")


def test_the_story_of_reservations(cluster: NodeCluster) -> None:
    patch = [{"op": "add", "path": f"/status/capacity/{SLOT.replace('/', '~1')}", "value": "2"}]
    cluster.kubectl("patch", "node", NODE, "--subresource=status", "--type=json", "-p", json.dumps(patch))
    cluster.until(
        lambda: cluster.get(f"/api/v1/nodes/{NODE}")["status"]["allocatable"].get(SLOT) == "2", "the slots are there"
    )
    one, two = ({"requests": {SLOT: count}, "limits": {SLOT: count}} for count in ("1", "2"))
    cluster.apply(
        {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "Reservation",
            "metadata": {"name": "checkout"},
            "spec": {
                "template": {"metadata": {"namespace": SPACE}, "spec": pod_spec(resources=one)},
                "owners": [{"labelSelector": {"matchLabels": {"app": "owner"}}}],
            },
        }
    )
    path = "/apis/scheduling.koordinator.sh/v1alpha1/reservations/checkout"
    cluster.until(lambda: (cluster.get(path).get("status") or {}).get("phase") == "Available", "it is available")
    cluster.apply(pod("outsider", resources=two))
    wait_refused(cluster, "outsider", f"Insufficient {SLOT}")
    cluster.apply(pod("owner", resources=one))
    wait_running(cluster, "owner")
    assert "reservation-allocated" in str(status(cluster, "owner")["metadata"]["annotations"])
    remove(cluster, "pod/owner")
    cluster.kubectl("delete", "reservation", "checkout")
    wait_running(cluster, "outsider")
    remove(cluster, "pod/outsider")


def test_the_story_of_resource_policies(cluster: NodeCluster) -> None:
    unit = {
        "name": "here",
        "priority": 1,
        "maxCount": 2,
        "nodeSelector": {"matchLabels": {"kubernetes.io/hostname": NODE}},
    }
    policy = {
        "apiVersion": SIGS,
        "kind": "ResourcePolicy",
        "metadata": {"name": "web", "namespace": SPACE},
        "spec": {"podSelector": {"matchLabels": {"app": "web"}}, "strategy": "required", "units": [unit]},
    }
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod_spec()}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": SPACE},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }
    cluster.apply(policy, deployment)

    def ready() -> int:
        found: int = cluster.get(f"/apis/apps/v1/namespaces/{SPACE}/deployments/web")["status"].get("readyReplicas", 0)
        return found

    cluster.until(lambda: ready() == 2, "two pods run")
    waiting = f"/api/v1/namespaces/{SPACE}/pods?labelSelector=app%3Dweb&fieldSelector=spec.nodeName%3D"
    cluster.until(lambda: len(cluster.items(waiting)) == 1, "one waits")
    unit["maxCount"] = 3
    cluster.apply(policy)
    cluster.until(lambda: ready() == 3, "all run")
    assert "here 3/3" in cluster.kubectl("get", "rsp", "web", "-n", SPACE)
    remove(cluster, "deployment/web", "resourcepolicy/web")


def test_the_story_of_resource_classes(cluster: NodeCluster) -> None:
    devices = [
        {"name": "small", "resourceName": "example.com/gpu", "properties": {"memory": "8G"}, "devices": ["gpu-0"]},
        {"name": "large", "resourceName": "example.com/gpu", "properties": {"memory": "40G"}, "devices": ["gpu-1"]},
    ]
    selector = [{"matchExpressions": [{"key": "memory", "operator": "Gt", "values": ["15G"]}]}]
    cluster.apply(
        {
            "apiVersion": SIGS,
            "kind": "NodeComputeResources",
            "metadata": {"name": NODE},
            "spec": {"computeResources": devices},
        },
        {
            "apiVersion": SIGS,
            "kind": "ResourceClass",
            "metadata": {"name": "gpu-large"},
            "spec": {"resourceName": "example.com/gpu", "resourceSelector": selector},
        },
    )
    alias = "resourceclass.scheduling.sigs.x-k8s.io/gpu-large"
    wanted = {"requests": {alias: "1"}, "limits": {alias: "1"}}
    cluster.apply(pod("first", resources=wanted))
    wait_running(cluster, "first")
    cluster.apply(pod("second", resources=wanted))
    wait_refused(cluster, "second", f"Insufficient {alias} (devices in the cluster: 1 matching, 1 healthy, 0 free)")
    remove(cluster, "pod/first")
    wait_running(cluster, "second")
    remove(cluster, "pod/second")
    cluster.kubectl("delete", "resourceclass", "gpu-large")
    cluster.kubectl("delete", "nodecomputeresources", NODE)


def test_the_story_of_placements(cluster: NodeCluster) -> None:
    group = "cluster.open-cluster-management.io"
    tolerations = [{"key": f"{group}/unreachable", "operator": "Exists"}]
    predicate = {"requiredClusterSelector": {"labelSelector": {"matchLabels": {"region": "north"}}}}
    names = {"berlin": "middle", "oslo": "north"}
    cluster.apply(*(namespace(name) for name in names))
    cluster.apply(
        *(
            {
                "apiVersion": f"{group}/v1",
                "kind": "ManagedCluster",
                "metadata": {"name": name, "labels": {"fleet": "test", "region": region}},
                "spec": {"hubAcceptsClient": True},
            }
            for name, region in names.items()
        ),
        {
            "apiVersion": f"{group}/v1beta2",
            "kind": "ManagedClusterSet",
            "metadata": {"name": "test"},
            "spec": {
                "clusterSelector": {
                    "selectorType": "LabelSelector",
                    "labelSelector": {"matchLabels": {"fleet": "test"}},
                }
            },
        },
        {
            "apiVersion": f"{group}/v1beta2",
            "kind": "ManagedClusterSetBinding",
            "metadata": {"name": "test", "namespace": SPACE},
            "spec": {"clusterSet": "test"},
        },
        {
            "apiVersion": f"{group}/v1beta1",
            "kind": "Placement",
            "metadata": {"name": "north", "namespace": SPACE},
            "spec": {"predicates": [predicate], "tolerations": tolerations},
        },
    )
    path = f"/apis/{group}/v1beta1/namespaces/{SPACE}/placementdecisions"

    def decided() -> list[str]:
        pages = cluster.items(path)
        return [each["clusterName"] for page in pages for each in (page.get("status") or {}).get("decisions") or ()]

    cluster.until(lambda: decided() == ["oslo"], "the cluster in the north is chosen")
    cluster.kubectl("delete", "placement", "north", "-n", SPACE)
    cluster.kubectl("delete", "managedclusters", *names)
    cluster.kubectl("delete", "managedclusterset", "test")


class Load(threading.Thread):
    """Asks for admission all the time, and now and then for a real pod."""

    def __init__(self, cluster: NodeCluster, prefix: str) -> None:
        super().__init__()
        self._cluster = cluster
        self._prefix = prefix
        self._over = threading.Event()
        self.asked = 0
        self.refused: list[str] = []
        self.made: list[str] = []

    def run(self) -> None:
        api, path = self._cluster.api(), f"/api/v1/namespaces/{SPACE}/pods"
        for number in range(1_000_000):
            real = number % 50 == 0
            name = f"{self._prefix}-{number}"
            document = pod(name, "true", restartPolicy="Never")
            answer = api.ask("POST", path if real else f"{path}?dryRun=All", document)
            self.asked += 1
            if answer.status != 201:
                self.refused.append(answer.message)
            elif real:
                self.made.append(name)
            if self._over.wait(0.1):
                return

    def __enter__(self) -> Load:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self.join()

    def check(self) -> None:
        assert self.asked and not self.refused, f"{len(self.refused)} of {self.asked} were refused: {self.refused[:3]}"

        def done() -> bool:
            found = self._cluster.items(f"/api/v1/namespaces/{SPACE}/pods?fieldSelector=status.phase%3DSucceeded")
            return {each["metadata"]["name"] for each in found} >= set(self.made)

        self._cluster.until(done, "every pod has run")
        self._cluster.kubectl("delete", "pods", *self.made, "-n", SPACE, "--wait=false")


@whole
def test_an_upgrade_under_load_refuses_nothing_and_misses_no_pod(cluster: NodeCluster, builds: Builds) -> None:
    with Load(cluster, "upgrade") as load:
        install(cluster, builds, 1)
        cluster.wait_for_rollout()
    load.check()
    for each in cluster.items(f"/api/v1/namespaces/{OURS}/pods"):
        if not each["metadata"].get("deletionTimestamp"):
            assert builds.digests[1] in each["spec"]["containers"][0]["image"]
    check_logs(cluster)


@whole
def test_every_component_is_restarted_under_load(cluster: NodeCluster) -> None:
    with Load(cluster, "restart") as load:
        cluster.kubectl("rollout", "restart", "deployment", "-n", OURS)
        cluster.wait_for_rollout()
    load.check()


@whole
def test_everything_comes_back_after_a_reboot_of_the_node(cluster: NodeCluster) -> None:
    cluster.apply(pod("before"))
    wait_running(cluster, "before")
    cluster.reboot()

    def restarted() -> bool:
        found = [*cluster.items(f"/api/v1/namespaces/{OURS}/pods"), status(cluster, "before")]
        ready = [condition(each, "Ready").get("status") == "True" for each in found]
        counts = [each["status"]["containerStatuses"][0]["restartCount"] for each in found]
        return all(ready) and all(counts)

    cluster.until(restarted, "every container runs again", 240)
    cluster.until(lambda: all_admitted(cluster), "the API server has only new connections to the webhook", 120)
    with Load(cluster, "reboot") as load:
        cluster.apply(pod("after"))
        wait_running(cluster, "after")
    load.check()
    remove(cluster, "pod/before", "pod/after")


def all_admitted(cluster: NodeCluster) -> bool:
    """Asks more often at once than the API server has kept connections to the webhook. Those from before a reboot ended
    without a word, and the API server refuses the request with which it finds that out."""
    number = 20
    path = f"/api/v1/namespaces/{SPACE}/pods?dryRun=All"
    with ThreadPoolExecutor(number) as pool:
        asked = [pool.submit(cluster.api().ask, "POST", path, pod(f"probe-{each}")) for each in range(number)]
    return all(each.result().status == 201 for each in asked)


@whole
def test_uninstalling_leaves_nothing(cluster: NodeCluster) -> None:
    """Except for the pods of users, which go on without any mark of ours."""
    cluster.kubectl("delete", "namespace", "berlin", "oslo", "--timeout=120s")
    units = [
        {"name": name, "priority": priority, "nodeSelector": {"matchLabels": {"kubernetes.io/hostname": NODE}}}
        for name, priority in (("first", 2), ("second", 1))
    ]
    policy = {
        "apiVersion": SIGS,
        "kind": "ResourcePolicy",
        "metadata": {"name": "lasting", "namespace": SPACE},
        "spec": {"podSelector": {"matchLabels": {"app": "lasting"}}, "strategy": "required", "units": units},
    }
    cluster.apply(policy, pod("lasting"))
    wait_running(cluster, "lasting")
    cluster.until(
        lambda: "pod-deletion-cost" in str(status(cluster, "lasting")["metadata"].get("annotations")), "it has a cost"
    )
    refused = cluster.run_wharf("uninstall", cluster=True, check=False)
    assert "1 object would be lost: shop/lasting" in refused and "Nothing was done." in refused
    cluster.run_wharf("uninstall", "--yes", cluster=True)
    end = time.monotonic() + 120
    while left := [*(each for each in everything(cluster) - before if SPACE not in each), *marked(cluster)]:
        assert time.monotonic() < end, f"this is left: {left}"
        time.sleep(1)
    assert condition(status(cluster, "lasting"), "Ready")["status"] == "True"
