"""A snapshot is the world as it is: what servers and kubelets reported decides, and loading it changes nothing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from wharfinger.api.kinds import registry
from wharfinger.simulate.inputs import read_inputs
from wharfinger.simulate.simulation import SimulationOptions, simulate

NOW = "2026-05-01T00:00:00Z"


def meta(name: str, uid: str = "", **more: Any) -> dict[str, Any]:
    return {"name": name, "uid": uid or f"u-{name}", "creationTimestamp": "2026-04-30T00:00:00Z", **more}


def condition(type: str, status: str, **more: Any) -> dict[str, Any]:
    return {"type": type, "status": status, "lastTransitionTime": NOW, **more}


def node(name: str = "n1", *, ready: str = "True", taints: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    status = {
        "capacity": amounts,
        "allocatable": amounts,
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        "conditions": [condition("Ready", ready)],
    }
    spec = {"taints": taints} if taints else {}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta(name), "spec": spec, "status": status}


def pod(name: str, node: str = "", cpu: str = "1", **more: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    found: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta(name, namespace="shop", **more.pop("metadata", {})),
        "spec": {"containers": [container], **({"nodeName": node} if node else {}), **more.pop("spec", {})},
        "status": {"phase": "Pending"},
    }
    if node:
        found["status"] = {
            "phase": "Running",
            "startTime": NOW,
            "conditions": [condition("Ready", "True"), condition("PodScheduled", "True")],
            "containerStatuses": [
                {
                    "name": "c",
                    "image": "i",
                    "imageID": "i",
                    "containerID": "containerd://1",
                    "ready": True,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": NOW}},
                    **more.pop("container", {}),
                }
            ],
            **more.pop("status", {}),
        }
    return found


def simulated(*objects: dict[str, Any], duration: float | None = None) -> dict[str, Any]:
    text = msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": list(objects)})
    return simulate(read_inputs([("snapshot.json", text)], registry()), SimulationOptions(duration=duration))


def found(report: dict[str, Any], kind: str, name: str) -> dict[str, Any] | None:
    matching = [each for each in report["objects"] if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return matching[0] if matching else None


def test_a_terminating_pod_gives_up_its_room() -> None:
    leaving = pod("leaving", "n1", "3", metadata={"deletionTimestamp": NOW, "deletionGracePeriodSeconds": 30})
    report = simulated(node(), leaving, pod("waiting", cpu="3"))
    assert found(report, "Pod", "leaving") is None
    waiting = found(report, "Pod", "waiting")
    assert waiting is not None and waiting["spec"]["nodeName"] == "n1"


def test_what_is_being_deleted_and_held_by_a_finalizer_stays_as_it_is() -> None:
    held = node("held")
    held["metadata"] |= {"deletionTimestamp": NOW, "finalizers": ["karpenter.sh/termination"]}
    gone = node("gone")
    gone["metadata"] |= {"deletionTimestamp": NOW}
    report = simulated(held, gone)
    kept = found(report, "Node", "held")
    assert kept is not None and kept["metadata"]["deletionTimestamp"] == NOW
    assert found(report, "Node", "gone") is None


def test_a_replica_set_does_not_count_a_terminating_pod() -> None:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    replica_set = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": meta("web", namespace="shop"),
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template},
        "status": {"replicas": 1},
    }
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u-web", "controller": True}
    owned = {"labels": {"app": "web"}, "ownerReferences": [owner]}
    old = pod("old", "n1", metadata={**owned, "deletionTimestamp": NOW, "deletionGracePeriodSeconds": 30})
    new = pod("new", "n1", metadata=owned)
    report = simulated(node(), replica_set, old, new)
    assert [each["metadata"]["name"] for each in report["objects"] if each["kind"] == "Pod"] == ["new"]


def test_merged_selectors_of_running_pods_are_accepted() -> None:
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {
            "matchLabels": {"app": "web"},
            "matchExpressions": [{"key": "version", "operator": "In", "values": ["1"]}],
        },
        "matchLabelKeys": ["version"],
    }
    running = pod(
        "running",
        "n1",
        metadata={"labels": {"app": "web", "version": "1"}},
        spec={"topologySpreadConstraints": [spread]},
    )
    report = simulated(node(), running)
    assert report["rejections"] == []
    kept = found(report, "Pod", "running")
    assert kept is not None and kept["spec"]["topologySpreadConstraints"] == [spread]


def test_the_time_of_a_taint_decides_when_its_toleration_ends() -> None:
    taint = {"key": "maintenance", "effect": "NoExecute", "timeAdded": "2026-04-30T23:58:00Z"}
    tolerant = {
        "tolerations": [{"key": "maintenance", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 180}]
    }
    objects = [node(taints=[taint]), pod("guest", "n1", spec=tolerant)]
    assert found(simulated(*objects, duration=50), "Pod", "guest") is not None
    assert found(simulated(*objects, duration=70), "Pod", "guest") is None


@pytest.mark.parametrize("ready", ["False", "Unknown"])
def test_a_node_is_what_its_condition_says(ready: str) -> None:
    report = simulated(node(ready=ready), pod("waiting"))
    kept = found(report, "Node", "n1")
    assert kept is not None
    assert [each["status"] for each in kept["status"]["conditions"] if each["type"] == "Ready"] == [ready]
    assert [each["name"] for each in report["unscheduled"]] == ["waiting"]


@pytest.mark.parametrize(
    ("container", "phase"),
    [
        ({"ready": False}, "Running"),
        ({"ready": False, "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 7}, "Running"),
        ({"ready": False, "containerID": "", "state": {"waiting": {"reason": "ImagePullBackOff"}}}, "Pending"),
    ],
    ids=["unready", "crashing", "without an image"],
)
def test_containers_stay_as_their_kubelet_reported_them(container: dict[str, Any], phase: str) -> None:
    reported = pod("p", "n1", container=container, status={"phase": phase, "conditions": [condition("Ready", "False")]})
    kept = found(simulated(node(), reported), "Pod", "p")
    assert kept is not None
    for name in ("phase", "conditions", "containerStatuses"):
        assert kept["status"][name] == reported["status"][name]


def test_a_pod_whose_containers_are_being_created_starts() -> None:
    creating = {"ready": False, "containerID": "", "state": {"waiting": {"reason": "ContainerCreating"}}}
    starting = pod("p", "n1", container=creating, status={"phase": "Pending", "conditions": []})
    kept = found(simulated(node(), starting), "Pod", "p")
    assert kept is not None and kept["status"]["phase"] == "Running"


@pytest.mark.needs_system("placement")
@pytest.mark.parametrize(("status", "taint"), [("Unknown", "unreachable"), ("False", "unavailable")])
def test_a_cluster_is_what_its_condition_says(status: str, taint: str) -> None:
    cluster = {
        "apiVersion": "cluster.open-cluster-management.io/v1",
        "kind": "ManagedCluster",
        "metadata": meta("lisbon"),
        "spec": {"hubAcceptsClient": True},
        "status": {
            "conditions": [
                condition(
                    "ManagedClusterConditionAvailable", status, reason="ManagedClusterLeaseUpdateStopped", message=""
                )
            ]
        },
    }
    kept = found(simulated(cluster), "ManagedCluster", "lisbon")
    assert kept is not None
    available = [
        each["status"] for each in kept["status"]["conditions"] if each["type"] == "ManagedClusterConditionAvailable"
    ]
    assert available == [status]
    assert [each["key"].rpartition("/")[2] for each in kept["spec"]["taints"]] == [taint]


# -- what a snapshot lacks


def workload(kind: str, **status: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": meta("web", namespace="shop"),
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template},
        "status": status,
    }


def owned(name: str, kind: str, owner: str, uid: str, hash_label: str, value: str) -> dict[str, Any]:
    reference = {"apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": uid, "controller": True}
    return pod(name, "n1", metadata={"labels": {"app": "web", hash_label: value}, "ownerReferences": [reference]})


def pod_names(report: dict[str, Any]) -> list[str]:
    return [each["metadata"]["name"] for each in report["objects"] if each["kind"] == "Pod"]


def lacking(*objects: dict[str, Any]) -> list[str]:
    text = msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": list(objects)})
    (note,) = read_inputs([("snapshot.json", text)], registry()).notes
    return [line.strip() for line in note.splitlines()[1:]]


@pytest.mark.parametrize(
    ("top", "pods", "line"),
    [
        (
            workload("Deployment", replicas=3),
            [owned(f"web-6d5-{n}", "ReplicaSet", "web-6d5", "u-rs", "pod-template-hash", "6d5") for n in "abc"],
            "the ReplicaSets of 1 Deployment: taken to be up to date, with the pods they have",
        ),
        (
            workload("StatefulSet", replicas=3, currentRevision="web-7f9", updateRevision="web-7f9"),
            [owned(f"web-{n}", "StatefulSet", "web", "u-web", "controller-revision-hash", "web-7f9") for n in range(3)],
            "the ControllerRevisions of 1 StatefulSet: taken to be up to date, with the pods they have",
        ),
        (
            {
                **workload("DaemonSet", desiredNumberScheduled=1),
                "spec": {k: v for k, v in workload("DaemonSet")["spec"].items() if k != "replicas"},
            },
            [owned("web-x", "DaemonSet", "web", "u-web", "controller-revision-hash", "7f9")],
            "the ControllerRevisions of 1 DaemonSet: taken to be up to date, with the pods they have",
        ),
    ],
    ids=["Deployment", "StatefulSet", "DaemonSet"],
)
def test_a_workload_whose_history_is_missing_is_up_to_date(
    top: dict[str, Any], pods: list[dict[str, Any]], line: str
) -> None:
    for each in pods:
        if top["kind"] == "DaemonSet":
            each["spec"]["affinity"] = {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
                        ]
                    }
                }
            }
    objects = [node(), top, *pods]
    assert pod_names(simulated(*objects)) == [each["metadata"]["name"] for each in pods]
    assert lacking(*objects)[0] == line


def test_pods_of_a_missing_owner_stay_and_are_named() -> None:
    orphan = owned("web-x", "Rollout", "web", "u-rollout", "version", "1")
    assert pod_names(simulated(node(), orphan)) == ["web-x"]
    assert lacking(node(), orphan)[0] == "the Rollout of 1 object: they stay as they are, and are not made again"
    assert "PodDisruptionBudget: drains and preemption may take pods that a budget protects" in lacking(node(), orphan)


@pytest.mark.needs_system("resource_policy")
def test_deletion_costs_stay_if_their_policy_is_missing() -> None:
    prefix = "scheduling.sigs.x-k8s.io"
    costs = {
        "controller.kubernetes.io/pod-deletion-cost": "7",
        f"{prefix}/managed-deletion-cost": "7",
        f"{prefix}/resource-policy": "cheap-first",
    }
    report = simulated(node(), pod("p", "n1", metadata={"annotations": costs}))
    kept = found(report, "Pod", "p")
    assert kept is not None and kept["metadata"]["annotations"] == costs
    assert any(
        line.startswith("ResourcePolicy: ") for line in lacking(node(), pod("p", metadata={"annotations": costs}))
    )


def test_namespaces_and_priority_classes_keep_their_identity_wherever_they_stand_in_the_snapshot() -> None:
    space = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": meta("shop", labels={"kubernetes.io/metadata.name": "shop"}),
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }
    high = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": meta("high"),
        "value": 7,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    first = pod("first", "n1", spec={"priorityClassName": "high", "priority": 7})
    report = simulated(node(), first, high, space)
    for kind, name in (("Namespace", "shop"), ("PriorityClass", "high")):
        restored = found(report, kind, name)
        assert restored is not None and restored["metadata"]["uid"] == f"u-{name}", kind
