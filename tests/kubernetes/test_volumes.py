"""Volumes on a real cluster: the real volume controller binds, the tests play the provisioner, our scheduler decides,
writes and waits."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest
from tests.kubernetes.cluster import Cluster, Process
from tests.kubernetes.manifests import condition, namespace, pod

Document = dict[str, Any]
SPACE = "volumes"
NODES = ("--count", "2", "--prefix", "disk", "--label", "pool=disk")
HOST = "kubernetes.io/hostname"
SELECTED = "volume.kubernetes.io/selected-node"
DISK = {"nodeSelector": {"pool": "disk"}}


class Stage:
    """The cluster with our scheduler and two nodes, and few words for what the tests do."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.scheduler = self._start()

    def _start(self) -> Process:
        return self.cluster.wharf("scheduler", "--no-leader-elect", name="volume-scheduler")

    def restart(self) -> None:
        self.scheduler.signal(signal.SIGKILL)
        self.cluster.end(self.scheduler)
        self.scheduler = self._start()

    def pod(self, name: str) -> Document:
        found: Document = self.cluster.get(f"/api/v1/namespaces/{SPACE}/pods/{name}")
        return found

    def claim(self, name: str) -> Document:
        found: Document = self.cluster.get(f"/api/v1/namespaces/{SPACE}/persistentvolumeclaims/{name}")
        return found

    def selected(self, name: str) -> str:
        return str(self.claim(name)["metadata"].get("annotations", {}).get(SELECTED, ""))

    def bound(self, *names: str) -> None:
        for name in names:
            self.cluster.until(lambda name=name: self.pod(name)["spec"].get("nodeName"), f"pod {name} is bound")

    def wait_for_selection(self, name: str) -> str:
        self.cluster.until(lambda: self.selected(name), f"a node is selected for claim {name}")
        return self.selected(name)

    def provision(self, name: str) -> None:
        """Makes a volume for the node that the scheduler selected, as a CSI provisioner does."""
        claim = self.claim(name)
        made = volume(f"made-{name}", on=self.selected(name), storage_class="by-test")
        made["spec"]["claimRef"] = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": SPACE,
            "name": name,
            "uid": claim["metadata"]["uid"],
        }
        self.cluster.apply(made)


@pytest.fixture(scope="module")
def stage(cluster: Cluster) -> Iterator[Stage]:
    cluster.apply(
        namespace(SPACE),
        storage_class("by-hand", "kubernetes.io/no-provisioner"),
        storage_class("by-test", "test.example.com"),
    )
    nodes = cluster.wharf("nodes", *NODES, name="volume-nodes")
    cluster.until(
        lambda: (
            len(
                [
                    each
                    for each in cluster.items("/api/v1/nodes?labelSelector=pool%3Ddisk")
                    if condition(each, "Ready").get("status") == "True" and not each["spec"].get("taints")
                ]
            )
            == 2
        ),
        "two nodes are ready",
    )
    made = Stage(cluster)
    yield made
    cluster.end(made.scheduler)
    assert cluster.end(nodes) == 0
    cluster.kubectl("delete", "namespace", SPACE, "--wait=false")
    cluster.kubectl("delete", "nodes", "-l", "pool=disk")


def storage_class(name: str, provisioner: str) -> Document:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def volume(name: str, *, on: str, storage_class: str = "by-hand", size: str = "10Gi") -> Document:
    terms = [{"matchExpressions": [{"key": HOST, "operator": "In", "values": [on]}]}]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": "/mnt/disk"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        },
    }


def claim(name: str, storage_class: str = "by-hand", size: str = "5Gi") -> Document:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": SPACE},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": size}},
        },
    }


def using(name: str, *claims: str) -> Document:
    volumes = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]
    return pod(name, SPACE, volumes=volumes, **DISK)


def test_static_volumes_are_bound_where_they_are(stage: Stage) -> None:
    cluster = stage.cluster
    cluster.apply(volume("small", on="disk-2", size="6Gi"), volume("large", on="disk-2", size="50Gi"))
    cluster.until(
        lambda: cluster.get("/api/v1/persistentvolumes/small")["status"].get("phase") == "Available", "it is available"
    )
    cluster.apply(claim("data"), using("static", "data"))
    stage.bound("static")
    assert stage.pod("static")["spec"]["nodeName"] == "disk-2"
    assert (stage.claim("data")["spec"]["volumeName"], stage.claim("data")["status"]["phase"]) == ("small", "Bound")


def test_two_pods_race_for_the_last_volume(stage: Stage) -> None:
    cluster = stage.cluster
    cluster.apply(claim("one", size="40Gi"), claim("two", size="40Gi"))
    cluster.apply(using("first", "one"), using("second", "two"))
    names = ("first", "second")
    cluster.until(lambda: any(stage.pod(name)["spec"].get("nodeName") for name in names), "one of them is bound")
    waiting = next(name for name in names if not stage.pod(name)["spec"].get("nodeName"))
    cluster.until(lambda: condition(stage.pod(waiting), "PodScheduled").get("message"), "the other says why")
    told = condition(stage.pod(waiting), "PodScheduled")["message"]
    assert "2 node(s) didn't find available persistent volumes to bind" in told
    cluster.apply(volume("another", on="disk-1", size="45Gi"))
    stage.bound(waiting)
    assert stage.pod(waiting)["spec"]["nodeName"] == "disk-1"


def test_a_volume_is_provisioned_for_the_selected_node(stage: Stage) -> None:
    stage.cluster.apply(claim("made", "by-test"), using("dynamic", "made"))
    selected = stage.wait_for_selection("made")
    assert not stage.pod("dynamic")["spec"].get("nodeName")
    stage.provision("made")
    stage.bound("dynamic")
    assert stage.pod("dynamic")["spec"]["nodeName"] == selected
    assert stage.claim("made")["spec"]["volumeName"] == "made-made"


def test_a_binding_that_fails_returns_the_pod_to_the_queue(stage: Stage) -> None:
    cluster = stage.cluster
    cluster.apply(claim("failing", "by-test"), using("retried", "failing"))
    stage.wait_for_selection("failing")
    # What a provisioner does that cannot: the scheduler may choose another node.
    cluster.kubectl("annotate", "pvc", "failing", "-n", SPACE, f"{SELECTED}-")
    wanted = 'running PreBind plugin "VolumeBinding": binding volumes: provisioning failed for PVC "failing"'
    cluster.until(lambda: condition(stage.pod("retried"), "PodScheduled").get("message") == wanted, "the pod says so")
    # It is tried again, and nothing of the first attempt is in the way.
    stage.wait_for_selection("failing")
    stage.provision("failing")
    stage.bound("retried")


def test_a_scheduler_that_is_killed_in_the_middle_goes_on(stage: Stage) -> None:
    stage.cluster.apply(claim("interrupted", "by-test"), using("survivor", "interrupted"))
    selected = stage.wait_for_selection("interrupted")
    stage.restart()
    stage.cluster.apply(using("other"))
    stage.bound("other")  # the new one is at work
    assert not stage.pod("survivor")["spec"].get("nodeName")
    stage.provision("interrupted")
    stage.bound("survivor")
    assert stage.pod("survivor")["spec"]["nodeName"] == selected == stage.selected("interrupted")
