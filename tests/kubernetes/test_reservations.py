"""Reservations on a real cluster: kept for their owners, used by them, migrated through, and made for a scale-up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.manifests import condition, deployment, namespace, pod

SPACE = "reserved"
GROUP = "/apis/scheduling.koordinator.sh/v1alpha1"
ALLOCATED = "scheduling.koordinator.sh/reservation-allocated"


def reservation(name: str, cpu: str, **spec: Any) -> dict[str, Any]:
    selector = {"pool": "reserved"}
    template = {**pod("", SPACE, cpu=cpu, nodeSelector=selector), "metadata": {"namespace": SPACE}}
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": name},
        "spec": {
            "template": {"metadata": template["metadata"], "spec": template["spec"], "fromTheFuture": {"kept": True}},
            "owners": [{"labelSelector": {"matchLabels": {"app": "owner"}}}],
            **spec,
        },
    }


@pytest.fixture(scope="module", autouse=True)
def running(cluster: Cluster) -> Iterator[None]:
    cluster.apply(namespace(SPACE))
    started = [
        cluster.wharf(
            "nodes", "--count", "2", "--prefix", "reserved", "--label", "pool=reserved", name="nodes-reserved"
        ),
        cluster.wharf("controllers", "--controllers", "reservation,reservationset,podmigration"),
    ]
    cluster.until(lambda: len(ready_nodes(cluster)) == 2, "two nodes are ready and without taints")
    started.append(cluster.wharf("scheduler", "--no-leader-elect"))
    yield
    for process in started:
        assert cluster.end(process) == 0
    cluster.kubectl("delete", "nodes", "-l", "pool=reserved")


def ready_nodes(cluster: Cluster) -> list[dict[str, Any]]:
    return [
        node
        for node in cluster.items("/api/v1/nodes?labelSelector=pool%3Dreserved")
        if condition(node, "Ready").get("status") == "True" and not node["spec"].get("taints")
    ]


def phase(cluster: Cluster, name: str, plural: str = "reservations") -> str:
    return str((cluster.get(f"{GROUP}/{plural}/{name}").get("status") or {}).get("phase"))


def here(name: str, app: str, cpu: str) -> dict[str, Any]:
    made = pod(name, SPACE, cpu=cpu, nodeSelector={"pool": "reserved"})
    made["metadata"]["labels"] = {"app": app}
    return made


def found(cluster: Cluster, name: str) -> dict[str, Any]:
    return cluster.get(f"/api/v1/namespaces/{SPACE}/pods/{name}")


def test_only_owners_use_what_is_reserved(cluster: Cluster) -> None:
    room = ready_nodes(cluster)[0]["status"]["allocatable"]["cpu"]
    cluster.apply(reservation("a", room), reservation("b", room))
    for name in ("a", "b"):
        cluster.until(lambda name=name: phase(cluster, name) == "Available", f"{name} is available")  # type: ignore[misc]
    kept = cluster.get(f"{GROUP}/reservations/a")
    assert kept["spec"]["template"]["fromTheFuture"] == {"kept": True}
    cluster.apply(here("outsider", "other", "1"))
    cluster.until(lambda: "Insufficient cpu" in str(condition(found(cluster, "outsider"), "PodScheduled")), "no room")
    cluster.apply(here("owner", "owner", "1"))
    cluster.until(lambda: bool(found(cluster, "owner")["spec"].get("nodeName")), "the owner is bound")
    assert '"uid"' in found(cluster, "owner")["metadata"]["annotations"][ALLOCATED]
    cluster.until(lambda: sorted(phase(cluster, name) for name in "ab") == ["Available", "Succeeded"], "one is used up")
    cluster.until(lambda: bool(found(cluster, "outsider")["spec"].get("nodeName")), "what it left is free")
    cluster.kubectl("delete", "reservations", "a", "b")
    cluster.kubectl("delete", "pods", "--all", "-n", SPACE)


def test_a_pod_of_a_real_deployment_is_migrated(cluster: Cluster) -> None:
    cluster.apply(deployment("web", SPACE, 1, nodeSelector={"pool": "reserved"}))
    cluster.kubectl("rollout", "status", "deployment/web", "-n", SPACE, "--timeout=90s")
    (before,) = cluster.items(f"/api/v1/namespaces/{SPACE}/pods?labelSelector=app%3Dweb")
    reference = {"namespace": SPACE, "name": before["metadata"]["name"]}
    job = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "PodMigrationJob",
        "metadata": {"name": "move"},
        "spec": {"podRef": reference},
    }
    cluster.apply(job)
    cluster.until(lambda: phase(cluster, "move", "podmigrationjobs") == "Succeeded", "the migration is done")
    (after,) = [
        each
        for each in cluster.items(f"/api/v1/namespaces/{SPACE}/pods?labelSelector=app%3Dweb")
        if not each["metadata"].get("deletionTimestamp")
    ]
    assert after["spec"]["nodeName"] != before["spec"]["nodeName"]


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"owners": []}, "spec.owners"),
        ({"owners": [{}]}, "spec.owners[0]"),
        ({"allocatePolicy": ""}, "spec.allocatePolicy"),
        ({"taints": [{"key": "k"}]}, "spec.taints[0].effect"),
    ],
)
def test_invalid_fields_are_refused_by_the_definition(cluster: Cluster, spec: dict[str, Any], path: str) -> None:
    answer = cluster.api().ask("POST", f"{GROUP}/reservations", reservation("faulty", "1", **spec))
    assert answer.status == 422
    assert path in answer.message


def test_a_set_is_scaled_like_any_workload(cluster: Cluster) -> None:
    made = reservation("peak", "100m")
    cluster.apply(
        {
            "apiVersion": "wharfinger.dev/v1alpha1",
            "kind": "ReservationSet",
            "metadata": {"name": "peak"},
            "spec": {**made["spec"], "replicas": 2},
        }
    )
    path = "/apis/wharfinger.dev/v1alpha1/reservationsets/peak"
    cluster.until(lambda: (cluster.get(path).get("status") or {}).get("available") == 2, "two are available")
    cluster.kubectl("scale", "reservationset/peak", "--replicas=3")
    cluster.until(lambda: (cluster.get(path).get("status") or {}).get("available") == 3, "three are available")
    cluster.kubectl("delete", "reservationset", "peak")
