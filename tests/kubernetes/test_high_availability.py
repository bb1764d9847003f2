"""Two schedulers with a lease, and an API server with troubles: no pod is bound twice or lost, no node over-committed."""

from __future__ import annotations

import itertools
import json
import signal
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from tests.kubernetes.cluster import Cluster, Process
from tests.kubernetes.manifests import namespace, pod
from tests.kubernetes.proxy import Proxy

NODES, FIT = 4, 4  # nodes, and pods of half a core that each of them takes
CONFIG = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [{"schedulerName": "wharfinger"}],
    "leaderElection": {
        "leaderElect": True,
        "leaseDuration": "10s",
        "renewDeadline": "7s",
        "retryPeriod": "1s",
    },
}
_spaces = (f"ha-{number}" for number in itertools.count(1))


class Pair:
    """Schedulers by the processes that run them, and the pods of one test."""

    def __init__(self, cluster: Cluster, space: str) -> None:
        self.cluster = cluster
        self.space = space
        self._config = cluster.folder / "ha.json"
        self._config.write_text(json.dumps(CONFIG))
        self._made = 0
        self.running: list[Process] = []

    def start(self, proxy: Proxy | None = None) -> Process:
        way = None if proxy is None else self.cluster.kubeconfig_by(proxy.port)
        name = f"scheduler-{len(self.running)}"
        process = self.cluster.wharf("scheduler", "--config", str(self._config), name=name, kubeconfig=way)
        self.running.append(process)
        return process

    def leads(self, process: Process) -> bool:
        answer = self.cluster.api().ask(
            "GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/wharfinger-scheduler"
        )
        if answer.status != 200:
            return False
        return str(process.pid) in (answer.json["spec"].get("holderIdentity") or "").split("_")

    def make(self, count: int) -> None:
        self.cluster.apply(*(pod(f"p{self._made + number}", self.space, cpu="500m") for number in range(count)))
        self._made += count

    def bound(self) -> int:
        """How many are bound; never more on a node than fit, whenever one looks."""
        items = self.cluster.items(f"/api/v1/namespaces/{self.space}/pods")
        per_node = Counter(item["spec"]["nodeName"] for item in items if item["spec"].get("nodeName"))
        assert all(count <= FIT for count in per_node.values()), per_node
        return sum(per_node.values())

    def until_bound(self, count: int) -> None:
        self.cluster.until(lambda: self.bound() == count, f"{count} pods are bound")

    def until_told(self, count: int) -> None:
        """Until events tell of that many bindings; more would be bindings of pods that are bound."""

        def told() -> int:
            reasons = self.cluster.kubectl("get", "events", "-n", self.space, "-o", "jsonpath={.items[*].reason}")
            return reasons.split().count("Scheduled")

        self.cluster.until(lambda: told() >= count, "events tell of every binding")
        assert told() == count


@pytest.fixture(scope="module")
def nodes(fresh_cluster: Cluster) -> Iterator[Cluster]:
    cluster = fresh_cluster
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=cluster.run_wharf("crds"))
    process = cluster.wharf("nodes", "--count", str(NODES), "--cpu", "2")
    cluster.until(
        lambda: sum(not node["spec"].get("taints") for node in cluster.items("/api/v1/nodes")) == NODES,
        "nodes are ready",
    )
    yield cluster
    cluster.end(process)


@pytest.fixture
def proxy(nodes: Cluster) -> Iterator[Proxy]:
    made = Proxy(nodes.port)
    yield made
    made.close()


@pytest.fixture
def pair(nodes: Cluster) -> Iterator[Pair]:
    made = Pair(nodes, next(_spaces))
    nodes.apply(namespace(made.space))
    yield made
    for process in made.running:
        nodes.end(process)
    nodes.kubectl("delete", "namespace", made.space)


def test_the_other_takes_over_when_the_leader_is_killed(pair: Pair) -> None:
    first = pair.start()
    pair.cluster.until(lambda: pair.leads(first), "the first leads")
    second = pair.start()
    pair.make(4)
    pair.until_bound(4)
    first.kill()
    pair.make(NODES * FIT)  # more than fit
    pair.cluster.until(lambda: pair.leads(second), "the second leads")
    pair.until_bound(NODES * FIT)


def test_a_frozen_leader_that_wakes_binds_nothing(pair: Pair) -> None:
    first = pair.start()
    pair.cluster.until(lambda: pair.leads(first), "the first leads")
    second = pair.start()
    pair.make(2)
    pair.until_bound(2)
    pair.until_told(2)  # events that it has not sent yet it could send no more
    first.signal(signal.SIGSTOP)
    pair.make(NODES * FIT - 4)  # the sleeper has not seen them
    pair.cluster.until(lambda: pair.leads(second), "the second leads")
    pair.until_bound(NODES * FIT - 2)
    first.signal(signal.SIGCONT)
    pair.make(6)  # two fit; both would know of them
    pair.until_bound(NODES * FIT)
    assert pair.leads(second) and second.running
    pair.until_told(NODES * FIT)


@pytest.mark.parametrize("trouble", [Proxy.silence, Proxy.refuse])
def test_a_leader_that_is_cut_off_binds_nothing_and_the_other_takes_over(
    pair: Pair, proxy: Proxy, trouble: Callable[[Proxy], None]
) -> None:
    first = pair.start(proxy)
    pair.cluster.until(lambda: pair.leads(first), "the first leads")
    second = pair.start()
    pair.make(2)
    pair.until_bound(2)
    pair.until_told(2)
    trouble(proxy)
    pair.make(NODES * FIT - 4)  # nobody tells the first of them
    pair.cluster.until(lambda: pair.leads(second), "the second leads")
    pair.until_bound(NODES * FIT - 2)
    proxy.heal()
    pair.make(6)  # two fit; both would know of them
    pair.until_bound(NODES * FIT)
    assert pair.leads(second) and second.running
    pair.until_told(NODES * FIT)
    second.kill()
    pair.cluster.kubectl("delete", "pods", "-n", pair.space, "p0", "p1", "--grace-period=0")
    pair.cluster.until(lambda: pair.leads(first), "who was cut off leads again")
    pair.until_bound(NODES * FIT)


def test_a_restart_of_the_api_server_loses_no_pod(pair: Pair) -> None:
    scheduler = pair.start()
    pair.cluster.until(lambda: pair.leads(scheduler), "it leads")
    pair.make(5)
    pair.cluster.stop_apiserver(hard=True)
    pair.cluster.start_apiserver()
    pair.make(5)
    pair.until_bound(10)
    assert scheduler.running


def test_watches_that_expired_are_begun_anew(pair: Pair) -> None:
    scheduler = pair.start()
    pair.cluster.until(lambda: pair.leads(scheduler), "it leads")
    pair.make(NODES * FIT)
    pair.until_bound(NODES * FIT)
    scheduler.signal(signal.SIGSTOP)
    pair.cluster.kubectl("delete", "pods", "-n", pair.space, "p0", "p1", "p2")  # it will never hear of these three
    pair.cluster.compact()
    pair.cluster.stop_apiserver()
    pair.cluster.start_apiserver()
    scheduler.signal(signal.SIGCONT)
    pair.make(5)
    pair.until_bound(NODES * FIT)
    assert scheduler.running


def test_a_server_that_is_slow_and_pods_that_others_bind(pair: Pair) -> None:
    scheduler = pair.start()
    pair.cluster.until(lambda: pair.leads(scheduler), "it leads")
    pair.make(4)
    pair.cluster.freeze_apiserver(2)
    target = {"apiVersion": "v1", "kind": "Node", "name": pair.cluster.items("/api/v1/nodes")[0]["metadata"]["name"]}
    api, path = pair.cluster.api(), f"/api/v1/namespaces/{pair.space}/pods"
    for number in range(3):  # a race for each of them: the loser gets a conflict
        name = f"contested-{number}"
        api.ask("POST", path, pod(name, pair.space, cpu="100m"))
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        assert api.ask("POST", f"{path}/{name}/binding", binding).status in (201, 409)
    pair.make(2)
    pair.until_bound(9)
    assert scheduler.running


@pytest.mark.parametrize("trouble", ["killed", "frozen", "cut off"])
def test_controllers_take_over_from_each_other(pair: Pair, proxy: Proxy, trouble: str) -> None:
    """With the lease of client-go's default length, which `wharf controllers` uses."""
    cluster, lease = pair.cluster, "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/wharfinger-controllers"
    arguments = ("controllers", "--controllers", "resourcepolicy", "--leader-elect")

    def leads(process: Process) -> bool:
        answer = cluster.api().ask("GET", lease)
        return answer.status == 200 and str(process.pid) in answer.json["spec"]["holderIdentity"].split("_")

    def is_seen_to(name: str) -> None:
        policy = {
            "apiVersion": "scheduling.sigs.x-k8s.io/v1alpha1",
            "kind": "ResourcePolicy",
            "metadata": {"name": name, "namespace": pair.space},
            "spec": {"units": [{"name": "a", "priority": 1, "nodeSelector": {"matchLabels": {"pool": "a"}}}]},
        }
        cluster.apply(policy)
        found = f"/apis/scheduling.sigs.x-k8s.io/v1alpha1/namespaces/{pair.space}/resourcepolicies/{name}"
        cluster.until(lambda: cluster.get(found).get("status"), f"policy {name} has a status")

    first = cluster.wharf(*arguments, name="controllers-0", kubeconfig=cluster.kubeconfig_by(proxy.port))
    cluster.until(lambda: leads(first), "the first leads")
    second = cluster.wharf(*arguments, name="controllers-1")
    pair.running += [first, second]
    is_seen_to("before")
    if trouble == "killed":
        first.kill()
    elif trouble == "frozen":
        first.signal(signal.SIGSTOP)
    else:
        proxy.silence()
    is_seen_to("meanwhile")
    assert leads(second)
    if trouble != "killed":
        proxy.heal()
        first.signal(signal.SIGCONT)
        is_seen_to("afterwards")
        assert leads(second) and first.running
