"""Two schedulers and two controller managers with leases, and an API server with troubles: no pod is bound twice or lost, no
node over-committed, and the other takes over within the lease time."""

from __future__ import annotations

import itertools
import json
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest
from tests.kubernetes.cluster import Cluster, Process, free_port, reachable
from tests.kubernetes.manifests import condition, namespace, pod, reservation
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
CONTROLLERS = ("controllers", "--controllers", "resourcepolicy,reservation", "--leader-elect")
SLACK = 5.0  # seconds that a take-over may need beyond what the election itself allows: requests, a busy machine
_spaces = (f"ha-{number}" for number in itertools.count(1))


class Watched:
    """A Lease, as it was seen again and again."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self.path = f"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{name}"
        self._specs: list[dict[str, Any]] = []
        self._looked = 0.0
        self.slowest = 0.0  # seconds between two looks: as slow as this a candidate may have been, too

    def held_by(self, process: Process) -> bool:
        """Whether it is held by a process; looks."""
        before, self._looked = self._looked, time.monotonic()
        answer = self._cluster.api().ask("GET", self.path)
        if answer.status != 200:
            return False
        if before and self._specs:
            self.slowest = max(self.slowest, self._looked - before, time.monotonic() - self._looked)
        self._specs.append(answer.json["spec"])
        return self._is(process, self._specs[-1])

    def until_taken_over(self, old: Process, new: Process) -> None:
        """Until the new one leads, which must be in time after the old one's last renewal, as the Lease tells both."""
        self.slowest, self._looked = 0.0, 0.0
        self._cluster.until(lambda: self.held_by(new), "the other leads")
        last = [spec for spec in self._specs if self._is(old, spec)][-1]
        took = moment(self._specs[-1]["acquireTime"]) - moment(last["renewTime"])
        retry = 1.0 if last["leaseDurationSeconds"] == 10 else 2.0
        print(f"taken over {took:.1f} s after the last renewal of {last['leaseDurationSeconds']} s")
        assert took <= last["leaseDurationSeconds"] + retry + SLACK + self.slowest, self._specs[-2:]

    @staticmethod
    def _is(process: Process, spec: dict[str, Any]) -> bool:
        return str(process.pid) in (spec.get("holderIdentity") or "").split("_")


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


class Pair:
    """Schedulers by the processes that run them, and the pods of one test."""

    def __init__(self, cluster: Cluster, space: str) -> None:
        self.cluster = cluster
        self.space = space
        self._config = cluster.folder / "ha.json"
        self._config.write_text(json.dumps(CONFIG))
        self._made = 0
        self._ports: dict[int, int] = {}
        self.lease = Watched(cluster, "wharfinger-scheduler")
        self.running: list[Process] = []

    def start(self, proxy: Proxy | None = None) -> Process:
        way = self.cluster.account_of("scheduler", 0 if proxy is None else proxy.port)
        name, port = f"scheduler-{len(self.running)}", free_port()
        arguments = ("scheduler", "--config", str(self._config), "--metrics-port", str(port))
        process = self.cluster.wharf(*arguments, name=name, kubeconfig=way)
        self._ports[process.pid] = port
        self.running.append(process)
        return process

    def start_two(self, proxy: Proxy | None = None) -> tuple[Process, Process]:
        """The first leads, by that way, and the second has loaded the cluster and waits."""
        first = self.start(proxy)
        self.cluster.until(lambda: self.leads(first), "the first leads")
        second = self.start()
        self.cluster.until(lambda: reachable(f"http://127.0.0.1:{self._ports[second.pid]}/readyz"), "the second waits")
        return first, second

    def leads(self, process: Process) -> bool:
        return self.lease.held_by(process)

    def make(self, count: int) -> None:
        self.cluster.apply(*(pod(f"p{self._made + number}", self.space, cpu="500m") for number in range(count)))
        self._made += count

    def bound(self) -> int:
        """How many are bound; never more on a node than fit, whenever one looks."""
        per_node = Counter(item["spec"]["nodeName"] for item in self.items() if item["spec"].get("nodeName"))
        assert all(count <= FIT for count in per_node.values()), per_node
        return sum(per_node.values())

    def until_bound(self, count: int) -> None:
        self.cluster.until(lambda: self.bound() == count, f"{count} pods are bound")

    def bound_at_once_by(self, process: Process) -> None:
        """That the new leader had nothing left to load when it began: pods that waited were bound soon after."""
        taken = moment(self.cluster.get(self.lease.path)["spec"]["acquireTime"])
        conditions = (condition(item, "PodScheduled") for item in self.items())
        bound = max(moment(each["lastTransitionTime"]) for each in conditions if each["status"] == "True")
        assert self.leads(process) and bound <= taken + SLACK + self.lease.slowest

    def items(self) -> list[dict[str, Any]]:
        return self.cluster.items(f"/api/v1/namespaces/{self.space}/pods")

    def apply_policy(self, name: str) -> None:
        self.cluster.apply(
            {
                "apiVersion": "scheduling.sigs.x-k8s.io/v1alpha1",
                "kind": "ResourcePolicy",
                "metadata": {"name": name, "namespace": self.space},
                "spec": {"units": [{"name": "a", "priority": 1, "nodeSelector": {"matchLabels": {"pool": "a"}}}]},
            }
        )

    def until_seen_to(self, name: str) -> None:
        """Until a controller has given a policy, which is made unless it is there, a status."""
        self.apply_policy(name)
        found = f"/apis/scheduling.sigs.x-k8s.io/v1alpha1/namespaces/{self.space}/resourcepolicies/{name}"
        self.cluster.until(lambda: self.cluster.get(found).get("status"), f"policy {name} has a status")

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
    cluster.install_rights()
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
    first, second = pair.start_two()
    pair.make(4)
    pair.until_bound(4)
    first.kill()
    pair.make(NODES * FIT)  # more than fit
    pair.lease.until_taken_over(first, second)
    pair.until_bound(NODES * FIT)
    pair.bound_at_once_by(second)


def test_a_frozen_leader_that_wakes_binds_nothing(pair: Pair) -> None:
    first, second = pair.start_two()
    pair.make(2)
    pair.until_bound(2)
    pair.until_told(2)  # events that it has not sent yet it could send no more
    first.signal(signal.SIGSTOP)
    pair.make(NODES * FIT - 4)  # the sleeper has not seen them
    pair.lease.until_taken_over(first, second)
    pair.until_bound(NODES * FIT - 2)
    pair.bound_at_once_by(second)
    first.signal(signal.SIGCONT)
    pair.make(6)  # two fit; both would know of them
    pair.until_bound(NODES * FIT)
    assert pair.leads(second) and second.running
    pair.until_told(NODES * FIT)


@pytest.mark.parametrize("trouble", [Proxy.silence, Proxy.refuse])
def test_a_leader_that_is_cut_off_binds_nothing_and_the_other_takes_over(
    pair: Pair, proxy: Proxy, trouble: Callable[[Proxy], None]
) -> None:
    first, second = pair.start_two(proxy)
    pair.make(2)
    pair.until_bound(2)
    pair.until_told(2)
    trouble(proxy)
    pair.make(NODES * FIT - 4)  # nobody tells the first of them
    pair.lease.until_taken_over(first, second)
    pair.until_bound(NODES * FIT - 2)
    pair.bound_at_once_by(second)
    proxy.heal()
    pair.make(6)  # two fit; both would know of them
    pair.until_bound(NODES * FIT)
    assert pair.leads(second) and second.running
    pair.until_told(NODES * FIT)
    second.kill()
    pair.cluster.kubectl("delete", "pods", "-n", pair.space, "p0", "p1", "--grace-period=0")
    pair.lease.until_taken_over(second, first)  # who was cut off leads again
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
    cluster, lease, port = pair.cluster, Watched(pair.cluster, "wharfinger-controllers"), free_port()
    first = cluster.wharf(*CONTROLLERS, name="controllers-0", kubeconfig=cluster.account_of("controllers", proxy.port))
    pair.running.append(first)
    cluster.until(lambda: lease.held_by(first), "the first leads")
    way = cluster.account_of("controllers")
    second = cluster.wharf(*CONTROLLERS, "--metrics-port", str(port), name="controllers-1", kubeconfig=way)
    pair.running.append(second)
    cluster.until(lambda: reachable(f"http://127.0.0.1:{port}/readyz"), "the second has loaded the cluster and waits")
    pair.until_seen_to("before")
    if trouble == "killed":
        first.kill()
    elif trouble == "frozen":
        first.signal(signal.SIGSTOP)
    else:
        proxy.silence()
    pair.apply_policy("meanwhile")
    lease.until_taken_over(first, second)
    pair.until_seen_to("meanwhile")
    if trouble != "killed":
        proxy.heal()
        first.signal(signal.SIGCONT)
        pair.until_seen_to("afterwards")
        assert lease.held_by(second) and first.running


def test_controllers_survive_restarts_lost_watches_slow_answers_and_conflicts(pair: Pair) -> None:
    """One after the other on one process, which must see to what comes after each."""
    cluster, lease = pair.cluster, Watched(pair.cluster, "wharfinger-controllers")
    process = cluster.wharf(*CONTROLLERS, name="controllers-0", kubeconfig=cluster.account_of("controllers"))
    pair.running.append(process)
    cluster.until(lambda: lease.held_by(process), "it leads")
    pair.until_seen_to("at-first")

    cluster.stop_apiserver(hard=True)
    cluster.start_apiserver()
    pair.until_seen_to("after-a-restart")

    process.signal(signal.SIGSTOP)
    pair.apply_policy("unseen")
    pair.apply_policy("gone")
    cluster.kubectl("delete", "resourcepolicies", "-n", pair.space, "gone")  # it will never hear of this one
    cluster.compact()
    cluster.stop_apiserver()
    cluster.start_apiserver()
    process.signal(signal.SIGCONT)
    pair.until_seen_to("unseen")

    pair.apply_policy("slow")
    cluster.freeze_apiserver(2)
    pair.until_seen_to("slow")

    # Others write the same objects again and again while their time runs out: whoever comes second gets a conflict.
    contested = [f"{pair.space}-{number}" for number in range(3)]
    cluster.apply(*(reservation(name, ttl="3s") for name in contested))
    path, end = "/apis/scheduling.koordinator.sh/v1alpha1/reservations", time.monotonic() + 5
    while time.monotonic() < end:
        for name in contested:
            change = {"metadata": {"labels": {"changed": f"{time.monotonic()}"}}}
            cluster.api().ask("PATCH", f"{path}/{name}", change, media="application/merge-patch+json")
    for name in contested:
        cluster.until(
            lambda name=name: cluster.get(f"{path}/{name}").get("status", {}).get("phase") == "Failed",
            f"reservation {name} expired",
        )
    cluster.kubectl("delete", "reservations", *contested)
    assert process.running and "Traceback" not in process.log.read_text()
