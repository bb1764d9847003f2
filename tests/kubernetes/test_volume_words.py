"""Pods whose volumes cannot be had: our scheduler and the stock one, side by side, give the same reasons in the same words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.manifests import condition, namespace, pod

Document = dict[str, Any]
SPACE = "volume-words"
ZONE = "topology.kubernetes.io/zone"
STOCK = "default-scheduler"


@pytest.fixture(scope="module", autouse=True)
def running(cluster: Cluster) -> Iterator[None]:
    cluster.apply(namespace(SPACE))
    nodes = cluster.wharf("nodes", "--count", "2", "--prefix", "word", "--zones", "east,west", name="word-nodes")
    cluster.until(
        lambda: (
            len(
                [
                    each
                    for each in cluster.items("/api/v1/nodes")
                    if each["metadata"]["name"].startswith("word")
                    and condition(each, "Ready").get("status") == "True"
                    and not each["spec"].get("taints")
                ]
            )
            == 2
        ),
        "two nodes are ready",
    )
    stock = cluster.start_kube_scheduler({"profiles": [{"schedulerName": STOCK}]})
    ours = cluster.wharf("scheduler", "--no-leader-elect", name="word-scheduler")
    cluster.apply(*OBJECTS)
    cluster.until(
        lambda: all(claim_phase(cluster, name) == "Bound" for name in ("far", "zoned", "mine", "heavy")),
        "the static claims are bound",
    )
    cluster.apply(using("holder", "mine"))
    cluster.until(lambda: told(cluster, "holder").get("status") == "True", "the holder is bound")
    yield
    for process in (ours, stock, nodes):
        cluster.end(process)
    cluster.kubectl("delete", "namespace", SPACE, "--wait=false")
    cluster.kubectl("delete", "nodes", "word-1", "word-2")


def claim_phase(cluster: Cluster, name: str) -> str:
    found = cluster.get(f"/api/v1/namespaces/{SPACE}/persistentvolumeclaims/{name}")
    return str(found["status"].get("phase", ""))


def told(cluster: Cluster, name: str) -> Document:
    return condition(cluster.get(f"/api/v1/namespaces/{SPACE}/pods/{name}"), "PodScheduled")


def using(name: str, *claims: str, **spec: Any) -> Document:
    volumes = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]
    return pod(name, SPACE, **{"volumes": volumes, **spec})


def storage_class(name: str, provisioner: str, *, waits: bool = True, zones: list[str] | None = None) -> Document:
    found: Document = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer" if waits else "Immediate",
    }
    if zones is not None:
        found["allowedTopologies"] = [{"matchLabelExpressions": [{"key": ZONE, "values": zones}]}]
    return found


def claim(name: str, storage_class: str, *, volume: str = "", mode: str = "ReadWriteOnce") -> Document:
    spec: Document = {
        "accessModes": [mode],
        "storageClassName": storage_class,
        "resources": {"requests": {"storage": "5Gi"}},
    }
    if volume:
        spec["volumeName"] = volume
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": SPACE},
        "spec": spec,
    }


def volume(
    name: str, *, zone: str = "", mode: str = "ReadWriteOnce", driver: str = "words.example.com", **labels: str
) -> Document:
    body: Document = {
        "capacity": {"storage": "5Gi"},
        "accessModes": [mode],
        "storageClassName": "",
        "persistentVolumeReclaimPolicy": "Retain",
        "csi": {"driver": driver, "volumeHandle": name},
    }
    if zone:
        terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}]
        body["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    metadata = {"name": name, "labels": {f"topology.kubernetes.io/{key}": text for key, text in labels.items()}}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": body}


def pool(zone: str, size: str) -> Document:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIStorageCapacity",
        "metadata": {"name": f"pool-{zone}", "namespace": SPACE},
        "storageClassName": "measured",
        "nodeTopology": {"matchLabels": {ZONE: zone}},
        "capacity": size,
    }


def csi_node(name: str) -> Document:
    """Not owned by its node, as a kubelet would have it; that matters to nobody here."""
    drivers = [{"name": "full.example.com", "nodeID": name, "topologyKeys": [], "allocatable": {"count": 0}}]
    metadata = {"name": name}
    return {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": metadata, "spec": {"drivers": drivers}}


OBJECTS = (
    storage_class("static", "kubernetes.io/no-provisioner"),
    storage_class("at-once", "kubernetes.io/no-provisioner", waits=False),
    storage_class("elsewhere", "words.example.com", zones=["north"]),
    storage_class("half", "measured.example.com", zones=["east"]),
    storage_class("measured", "measured.example.com"),
    {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": "measured.example.com"},
        "spec": {"storageCapacity": True},
    },
    pool("east", "1Gi"),
    pool("west", "4Gi"),
    csi_node("word-1"),
    csi_node("word-2"),
    volume("far", zone="north"),
    claim("far", "", volume="far"),
    volume("labelled", region="north"),
    claim("zoned", "", volume="labelled"),
    volume("mine", mode="ReadWriteOncePod"),
    claim("mine", "", volume="mine", mode="ReadWriteOncePod"),
    volume("heavy", driver="full.example.com"),
    claim("heavy", "", volume="heavy"),
    claim("unmatched", "static"),
    claim("waiting", "at-once"),
    claim("unknown", "no-such-class"),
    claim("misplaced", "elsewhere"),
    claim("mixed", "half"),
    claim("too-large", "measured"),
    claim("early", "", volume="not-there"),
)


@pytest.mark.parametrize(
    "claims",
    [
        ("absent",),
        ("unmatched",),
        ("waiting",),
        ("unknown",),
        ("misplaced",),
        ("mixed",),
        ("too-large",),
        ("early",),
        ("far",),
        ("zoned",),
        ("mine",),
        ("heavy",),
        ("far", "unmatched"),
        ("far", "too-large"),
        ("unmatched", "too-large"),
        ("heavy", "misplaced"),
        ("waiting", "absent"),
    ],
    ids="+".join,
)
def test_refusals_in_the_words_of_the_stock_scheduler(cluster: Cluster, claims: tuple[str, ...]) -> None:
    names = {scheduler: f"{scheduler.partition('-')[0]}-{'-'.join(claims)}" for scheduler in (STOCK, "wharfinger")}
    cluster.apply(*(using(name, *claims, scheduler=scheduler) for scheduler, name in names.items()))
    for scheduler, name in names.items():
        cluster.until(lambda name=name: told(cluster, name).get("message"), f"{scheduler} says why")
    stock, ours = (told(cluster, names[scheduler]) for scheduler in (STOCK, "wharfinger"))
    assert (ours["status"], ours["reason"], ours["message"]) == (stock["status"], stock["reason"], stock["message"])
