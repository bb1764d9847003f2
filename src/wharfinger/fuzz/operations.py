"""Random operations of users and operators."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from wharfinger.api.kinds.builtin import NODES, PODS
from wharfinger.api.registry import Document, Registry, Resource
from wharfinger.api.times import format_time
from wharfinger.fuzz.history import PlainHistory, node_of
from wharfinger.fuzz.objects import CLASSES, NAMESPACES, OCM, USERS, RandomObjects
from wharfinger.fuzz.steps import FuzzStep, applied, deleted, patched

Operation = Callable[[], FuzzStep | None]


class RandomOperations:
    def __init__(
        self,
        rng: random.Random,
        objects: RandomObjects,
        history: PlainHistory,
        registry: Registry,
        most_pods: int,
        tenants: bool,
    ) -> None:
        self._rng = rng
        self._objects = objects
        self._history = history
        self._registry = registry
        self._most_pods = most_pods
        self._tenants = tenants
        self._node_names = [f"n{number}" for number in range(6)]
        self._gone = ""  # the node that was deleted last

    def table(self) -> Iterable[tuple[str, float, Operation]]:
        """Every operation with its group and weight; those of systems that are left out are missing."""
        yield "pods", 30, self.create_pod
        yield "pods", 6, self._create_burst
        yield "pods", 14, self._delete_pod
        yield "pods", 3, self._relabel_pod
        yield "pods", 2, self._resize_pod
        yield "pods", 1, self._open_gate
        yield "pods", 1, self._finish_deletion
        yield "pods", 2, self._evict_by_taint
        yield "pods", 3, self._evict_pod
        yield "workloads", 5, self._create_workload
        yield "workloads", 3, self._scale_workload
        yield "workloads", 2, self._roll_out
        yield "workloads", 3, self._delete_workload
        yield "workloads", 1, self._create_budget
        yield "workloads", 1, self._delete_one("poddisruptionbudgets", "PodDisruptionBudget")
        yield "nodes", 4, self._create_node
        yield "nodes", 2, self._delete_node
        yield "nodes", 8, self._recreate_node
        yield "nodes", 2, self._relabel_node
        yield "nodes", 2, self._taint_node
        yield "nodes", 1, self._cordon_node
        yield "nodes", 2, self._resize_node
        yield "volumes", 3, self._create_claim
        yield "volumes", 2, self._create_volume
        yield "volumes", 1, self._delete_one("persistentvolumeclaims", "PersistentVolumeClaim")
        yield "volumes", 2, self._set_csi_node
        yield "claims", 4, self._set_slice
        yield "claims", 4, self._create_resource_claim
        yield "claims", 1, self._delete_one("resourceclaims", "ResourceClaim")
        yield "claims", 1, self._delete_one("resourceslices", "ResourceSlice")
        yield "quota", 2, self._set_quota
        yield "quota", 1, self._delete_one("resourcequotas", "ResourceQuota")
        for kind, operations in self._of_systems().items():
            if self._registry.find(kind) is not None:
                yield from operations

    def _of_systems(self) -> dict[str, list[tuple[str, float, Operation]]]:
        return {
            "Reservation": [
                ("reservations", 6, self._create_reservation),
                ("reservations", 2, self._delete_one("reservations", "Reservation")),
                ("reservations", 1, self._resize_reservation),
                ("reservations", 1, self._close_reservation),
            ],
            "ResourcePolicy": [
                ("policies", 3, self._set_resource_policy),
                ("policies", 1, self._delete_one("resourcepolicies", "ResourcePolicy")),
            ],
            "ResourceClass": [
                ("devices", 3, self._set_class),
                ("devices", 1, self._delete_one("resourceclasses", "ResourceClass")),
            ],
            "SchedulingPolicy": [("admission", 3, self._set_policy)],
            "Placement": [
                ("placement", 3, self._set_placement),
                ("placement", 1, self._delete_one("placements", "Placement")),
                ("placement", 3, self._create_cluster),
                ("placement", 1, self._delete_one("managedclusters", "ManagedCluster")),
                ("placement", 4, self._set_score),
                ("placement", 2, self._taint_cluster),
                ("placement", 2, self._relabel_cluster),
                ("placement", 2, self._bind_set),
            ],
        }

    # -- choosing

    def _one(self, plural: str, filter: Callable[[Document], bool] = lambda document: True) -> Document | None:
        found = [each for each in self._history.objects[plural].values() if filter(each)]
        return self._rng.choice(found) if found else None

    def _resource(self, kind: str) -> Resource:
        found = self._registry.find(kind)
        assert found is not None
        return found.storage

    def _delete_one(self, plural: str, kind: str) -> Operation:
        def delete() -> FuzzStep | None:
            found = self._one(plural)
            return None if found is None else deleted(f"delete {kind}", self._resource(kind), found)

        return delete

    def _namespace(self) -> str:
        return self._rng.choice(NAMESPACES)

    def _user(self) -> str:
        return self._rng.choice(("", *USERS)) if self._tenants else ""

    # -- pods

    def create_pod(self) -> FuzzStep | None:
        if len(self._history.objects["pods"]) >= self._most_pods:
            return self._delete_pod()
        return applied("create pod", self._objects.pod(self._namespace()), user=self._user())

    def _create_burst(self) -> FuzzStep | None:
        if len(self._history.objects["pods"]) >= self._most_pods:
            return self._delete_pod()
        return applied("create burst", *self._objects.burst(self._namespace()), user=self._user())

    def _delete_pod(self) -> FuzzStep | None:
        pod = self._one("pods")
        grace = self._rng.choice((0, None, None))
        return None if pod is None else deleted("delete pod", PODS, pod, grace)

    def _relabel_pod(self) -> FuzzStep | None:
        pod = self._one("pods")
        labels = {"app": self._rng.choice(("web", "db", "job")), "team": self._rng.choice(("x", "y", None))}
        return None if pod is None else patched("relabel pod", PODS, pod, {"metadata": {"labels": labels}})

    def _resize_pod(self) -> FuzzStep | None:
        pod = self._one("pods", lambda each: bool(node_of(each)))
        if pod is None:
            return None
        container = {**pod["spec"]["containers"][0]}
        resources = {**(container.get("resources") or {})}
        resources["requests"] = {**(resources.get("requests") or {}), "cpu": self._rng.choice(("250m", "1", "4"))}
        container["resources"] = resources
        merge = {"spec": {"containers": [container, *pod["spec"]["containers"][1:]]}}
        return patched("resize pod", PODS, pod, merge, "resize")

    def _open_gate(self) -> FuzzStep | None:
        pod = self._one("pods", lambda each: bool(each["spec"].get("schedulingGates")))
        return None if pod is None else patched("open gate", PODS, pod, {"spec": {"schedulingGates": None}})

    def _finish_deletion(self) -> FuzzStep | None:
        pod = self._one("pods", lambda each: "example.org/hold" in (each["metadata"].get("finalizers") or ()))
        if pod is None:
            return None
        finalizers = [each for each in pod["metadata"]["finalizers"] if each != "example.org/hold"]
        return patched("finish deletion", PODS, pod, {"metadata": {"finalizers": finalizers or None}})

    def _evict_by_taint(self) -> FuzzStep | None:
        pod = self._one("pods", lambda each: bool(node_of(each)))
        if pod is None:
            return None
        taint = {"key": "leave", "effect": "NoExecute"}
        node = self._history.objects["nodes"].get(("", node_of(pod)))
        if node is None:
            return None
        return patched("evict by taint", NODES, node, {"spec": {"taints": [taint]}})

    def _evict_pod(self) -> FuzzStep | None:
        """Budgets may refuse it."""
        pod = self._one("pods", lambda each: bool(node_of(each)))
        if pod is None:
            return None
        metadata = {name: pod["metadata"][name] for name in ("name", "namespace")}
        return applied("evict pod", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata})

    # -- workloads

    def _workload(self) -> tuple[Resource, Document] | None:
        kinds = {
            "deployments": "Deployment",
            "statefulsets": "StatefulSet",
            "jobs": "Job",
            "daemonsets": "DaemonSet",
        }
        found = [(plural, each) for plural in kinds for each in self._history.objects[plural].values()]
        if not found:
            return None
        plural, document = self._rng.choice(found)
        return self._resource(kinds[plural]), document

    def _create_workload(self) -> FuzzStep | None:
        if len(self._history.objects["pods"]) >= self._most_pods:
            return self._delete_workload()
        return applied("create workload", self._objects.workload(self._namespace()), user=self._user())

    def _scale_workload(self) -> FuzzStep | None:
        found = self._workload()
        if found is None or "replicas" not in found[1]["spec"]:
            return None
        return patched("scale", found[0], found[1], {"spec": {"replicas": self._rng.randint(0, 6)}})

    def _roll_out(self) -> FuzzStep | None:
        found = self._workload()
        if found is None or found[0].kind == "Job":
            return None
        merge = {"spec": {"template": {"metadata": {"annotations": {"revision": str(self._rng.randint(0, 99))}}}}}
        return patched("roll out", found[0], found[1], merge)

    def _delete_workload(self) -> FuzzStep | None:
        found = self._workload()
        return None if found is None else deleted("delete workload", found[0], found[1])

    def _create_budget(self) -> FuzzStep:
        return applied("create budget", self._objects.budget(self._namespace()))

    # -- nodes

    def _create_node(self) -> FuzzStep | None:
        missing = [each for each in self._node_names if ("", each) not in self._history.objects["nodes"]]
        return applied("create node", self._objects.node(self._rng.choice(missing))) if missing else None

    def _delete_node(self) -> FuzzStep | None:
        node = self._one("nodes")
        self._gone = "" if node is None else node["metadata"]["name"]
        return None if node is None else deleted("delete node", NODES, node)

    def _recreate_node(self) -> FuzzStep | None:
        """The node that was deleted last comes back under its name, while its pods may still be there."""
        name, self._gone = self._gone, ""
        if not name or ("", name) in self._history.objects["nodes"]:
            return None
        return applied("create node again", self._objects.node(name))

    def _relabel_node(self) -> FuzzStep | None:
        node = self._one("nodes")
        key = self._rng.choice(("zone", "pool"))
        value = self._rng.choice(("a", "b") if key == "zone" else ("static", "spot"))
        return None if node is None else patched("relabel node", NODES, node, {"metadata": {"labels": {key: value}}})

    def _taint_node(self) -> FuzzStep | None:
        node = self._one("nodes")
        taint = {"key": "dedicated", "value": "x", "effect": self._rng.choice(("NoSchedule", "NoExecute"))}
        taints = [taint] if self._rng.random() < 0.4 else None
        return None if node is None else patched("taint node", NODES, node, {"spec": {"taints": taints}})

    def _cordon_node(self) -> FuzzStep | None:
        node = self._one("nodes")
        cordoned = True if self._rng.random() < 0.4 else None
        return None if node is None else patched("cordon node", NODES, node, {"spec": {"unschedulable": cordoned}})

    def _resize_node(self) -> FuzzStep | None:
        node = self._one("nodes")
        room = {"cpu": str(self._rng.randint(1, 12)), "pods": self._rng.choice(("2", "8", "110"))}
        return None if node is None else patched("resize node", NODES, node, {"status": {"allocatable": room}})

    # -- volumes and quota

    def _create_claim(self) -> FuzzStep:
        name = f"claim{self._rng.randint(0, 4)}"
        return applied("create claim", self._objects.claim(self._namespace(), name))

    def _create_volume(self) -> FuzzStep | None:
        node = self._one("nodes")
        return None if node is None else applied("create volume", self._objects.volume(node["metadata"]["name"]))

    def _set_csi_node(self) -> FuzzStep | None:
        node = self._one("nodes")
        return None if node is None else applied("set csi node", self._objects.csi_node(node["metadata"]["name"]))

    def _set_slice(self) -> FuzzStep | None:
        node = self._one("nodes")
        return None if node is None else applied("set slice", self._objects.resource_slice(node["metadata"]["name"]))

    def _create_resource_claim(self) -> FuzzStep:
        name = f"devices{self._rng.randint(0, 3)}"
        return applied("create resource claim", self._objects.resource_claim(self._namespace(), name))

    def _set_quota(self) -> FuzzStep:
        return applied("set quota", self._objects.quota(self._namespace(), f"quota{self._rng.randint(0, 1)}"))

    # -- systems

    def _create_reservation(self) -> FuzzStep:
        return applied("create reservation", self._objects.reservation())

    def _resize_reservation(self) -> FuzzStep | None:
        found = self._one("reservations")
        if found is None:
            return None
        template = found["spec"]["template"]
        container = {**template["spec"]["containers"][0]}
        container["resources"] = {"requests": {"cpu": self._rng.choice(("500m", "1", "3"))}}
        spec = {**template["spec"], "containers": [container]}
        merge = {"spec": {"template": {**template, "spec": spec}}}
        return patched("resize reservation", self._resource("Reservation"), found, merge)

    def _close_reservation(self) -> FuzzStep | None:
        found = self._one("reservations")
        merge = {"spec": {"unschedulable": self._rng.random() < 0.5}}
        return None if found is None else patched("close reservation", self._resource("Reservation"), found, merge)

    def _set_resource_policy(self) -> FuzzStep:
        name = f"units{self._rng.randint(0, 1)}"
        return applied("set resource policy", self._objects.resource_policy(self._namespace(), name))

    def _set_class(self) -> FuzzStep:
        return applied("set class", self._objects.resource_class(self._rng.choice(CLASSES)))

    def _set_policy(self) -> FuzzStep:
        return applied("set policy", self._objects.scheduling_policy(f"policy{self._rng.randint(0, 1)}"))

    # -- placement

    def _set_placement(self) -> FuzzStep:
        return applied("set placement", self._objects.placement(self._namespace(), f"pl{self._rng.randint(0, 2)}"))

    def _create_cluster(self) -> FuzzStep:
        return applied("create cluster", self._objects.cluster(f"c{self._rng.randint(0, 5)}"))

    def _set_score(self) -> FuzzStep | None:
        cluster = self._one("managedclusters")
        if cluster is None or ("", cluster["metadata"]["name"]) not in self._history.objects["namespaces"]:
            return None
        until = format_time(self._history.now + self._rng.choice((5, 60, 900))) if self._rng.random() < 0.5 else None
        return applied("set score", self._objects.score(cluster["metadata"]["name"], until))

    def _taint_cluster(self) -> FuzzStep | None:
        cluster = self._one("managedclusters")
        taint = {"key": "maintenance", "effect": "NoSelect"}
        taints = [taint] if self._rng.random() < 0.6 else None
        merge = {"spec": {"taints": taints}}
        return None if cluster is None else patched("taint cluster", self._resource("ManagedCluster"), cluster, merge)

    def _relabel_cluster(self) -> FuzzStep | None:
        cluster = self._one("managedclusters")
        merge = {"metadata": {"labels": {"region": self._rng.choice(("eu", "us"))}}}
        return None if cluster is None else patched("move cluster", self._resource("ManagedCluster"), cluster, merge)

    def _bind_set(self) -> FuzzStep:
        binding = {
            "apiVersion": f"{OCM}/v1beta2",
            "kind": "ManagedClusterSetBinding",
            "metadata": {"name": "global", "namespace": self._namespace()},
            "spec": {"clusterSet": "global"},
        }
        return applied("bind set", binding)
