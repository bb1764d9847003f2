"""Random objects: nodes, pods and workloads, and those of the systems."""

from __future__ import annotations

import random
from typing import Any

from wharfinger.api.registry import Document
from wharfinger.node.annotations import EXIT_CODE, READY_AFTER, RUN_FOR, SHUTDOWN_AFTER, START_AFTER

NAMESPACES = ("default", "red", "blue")
APPS = ("web", "db", "job")
PRIORITIES = {"low": -10, "mid": 100, "high": 1000}
USERS = ("ann", "bob")
SIGS = "scheduling.sigs.x-k8s.io/v1alpha1"
OCM = "cluster.open-cluster-management.io"
CLASSES = ("gold", "silver")
RAW_DEVICE = "nvidia.com/gpu"
CSI_DRIVER = "example.com/made"
CLAIMED_DRIVER = "devices.example.com"


class RandomObjects:
    """Everything is drawn from one source, and names are counted, so that a seed gives the same objects."""

    def __init__(
        self, rng: random.Random, *, cpus: tuple[int, int], devices: bool, volumes: bool, claims: bool, affinities: bool
    ) -> None:
        self.rng = rng
        self._cpus = cpus  # of a node, from and to
        self.devices = devices
        self.volumes = volumes
        self.claims = claims
        self.affinities = affinities
        self._made = 0

    def _chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def name(self, prefix: str) -> str:
        self._made += 1
        return f"{prefix}{self._made}"

    # -- nodes

    def node(self, name: str) -> Document:
        rng = self.rng
        room: Document = {
            "cpu": str(rng.randint(*self._cpus)),
            "memory": rng.choice(("8Gi", "32Gi")),
            "pods": rng.choice(("4", "8", "110")),
        }
        if self._chance(0.3):
            room["example.com/tokens"] = str(rng.randint(1, 4))
        labels = {"zone": rng.choice("ab"), "pool": rng.choice(("static", "spot")), "kubernetes.io/hostname": name}
        status: Document = {"allocatable": room, "capacity": dict(room)}
        if self.devices and self._chance(0.7):
            status["computeResources"] = [
                self.compute_resource(f"cr-{kind}", kind, rng.randint(1, 3))
                for kind in rng.sample(("precious", "common"), rng.randint(1, 2))
            ]
        node: Document = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "status": status,
        }
        if self._chance(0.15):
            node["spec"] = {"taints": [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]}
        return node

    def compute_resource(self, name: str, kind: str, count: int) -> Document:
        return {
            "name": name,
            "resourceName": RAW_DEVICE,
            "properties": {"kind": kind},
            "devices": [f"{name}-{number}" for number in range(count)],
        }

    # -- pods

    def pod_spec(self, app: str) -> tuple[Document, dict[str, str]]:
        """A pod spec, and the annotations that tell a simulated kubelet how the pod behaves."""
        rng = self.rng
        requests: Document = {"cpu": rng.choice(("250m", "500m", "1", "2", "3"))}
        if self._chance(0.4):
            requests["memory"] = rng.choice(("512Mi", "1Gi", "4Gi"))
        container: Document = {"name": "c", "image": "i", "resources": {"requests": requests}}
        limits: Document = {}
        if self._chance(0.08):
            limits["example.com/tokens"] = requests["example.com/tokens"] = str(rng.randint(1, 2))
        if self.devices and self._chance(0.35):
            limits[rng.choice((*CLASSES, RAW_DEVICE))] = str(rng.randint(1, 2))
        if limits:
            container["resources"]["limits"] = limits
        spec: Document = {"containers": [container], "terminationGracePeriodSeconds": rng.choice((0, 5, 30))}
        if self._chance(0.45):
            spec["priorityClassName"] = rng.choice(tuple(PRIORITIES))
            if self._chance(0.2):
                spec["preemptionPolicy"] = "Never"
        if self._chance(0.12):
            container["ports"] = [{"containerPort": 80, "hostPort": rng.choice((80, 81))}]
        if self._chance(0.15):
            spec["nodeSelector"] = rng.choice(({"zone": "a"}, {"zone": "b"}, {"pool": "spot"}))
        if self._chance(0.2):
            spec["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
        if self._chance(0.06):
            spec["initContainers"] = [
                {"name": "init", "image": "i", "resources": {"requests": {"cpu": rng.choice(("1", "4"))}}}
            ]
        if self.affinities and self._chance(0.25):
            spec["affinity"] = self._affinity()
        if self.affinities and self._chance(0.15):
            spec["topologySpreadConstraints"] = [
                {
                    "maxSkew": rng.choice((1, 2)),
                    "topologyKey": rng.choice(("zone", "kubernetes.io/hostname")),
                    "whenUnsatisfiable": rng.choice(("DoNotSchedule", "ScheduleAnyway")),
                    "labelSelector": {"matchLabels": {"app": app}},
                }
            ]
        return spec, self._behaviour()

    def _behaviour(self) -> dict[str, str]:
        rng, annotations = self.rng, {}
        if self._chance(0.5):
            annotations[SHUTDOWN_AFTER] = rng.choice(("1s", "20s"))
        if self._chance(0.2):
            annotations[START_AFTER] = rng.choice(("5s", "60s"))
        if self._chance(0.2):
            annotations[READY_AFTER] = rng.choice(("5s", "never"))
        return annotations

    def _affinity(self) -> Document:
        rng = self.rng
        term = {
            "labelSelector": {"matchLabels": {"app": rng.choice(APPS)}},
            "topologyKey": rng.choice(("zone", "kubernetes.io/hostname")),
        }
        kind = rng.choice(("podAffinity", "podAntiAffinity", "podAntiAffinity"))
        if self._chance(0.3):
            return {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "podAffinityTerm": term}]}}
        return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}

    def pod(self, namespace: str) -> Document:
        rng = self.rng
        app = rng.choice(APPS)
        spec, annotations = self.pod_spec(app)
        if self._chance(0.2):
            annotations[RUN_FOR] = rng.choice(("2s", "30s", "300s"))
            spec["restartPolicy"] = "Never"
            if self._chance(0.3):
                annotations[EXIT_CODE] = "1"
        if self._chance(0.05):
            spec["schedulingGates"] = [{"name": "hold"}]
        if self.volumes and self._chance(0.25):
            claim = f"claim{rng.randint(0, 4)}"
            spec["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]
        if self.claims and self._chance(0.3):
            spec["resourceClaims"] = [{"name": "d", "resourceClaimName": f"devices{rng.randint(0, 3)}"}]
            spec["containers"][0]["resources"]["claims"] = [{"name": "d"}]
        labels = {"app": app}
        if self._chance(0.4):
            labels["team"] = rng.choice("xy")
        metadata: Document = {"name": self.name("p"), "namespace": namespace, "labels": labels}
        if annotations:
            metadata["annotations"] = annotations
        if self._chance(0.04):
            metadata["finalizers"] = ["example.org/hold"]
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def residents(self, namespace: str, count: int) -> list[Document]:
        """So many pods alike that fit on most nodes and ask for nothing special: what a large cluster is full of."""
        rng, app = self.rng, self.rng.choice(APPS)
        requests = {"cpu": rng.choice(("250m", "500m", "1", "1")), "memory": rng.choice(("128Mi", "512Mi", "1Gi"))}
        container: Document = {"name": "c", "image": "i", "resources": {"requests": requests}}
        spec: Document = {"containers": [container], "terminationGracePeriodSeconds": rng.choice((0, 5, 30))}
        if self._chance(0.4):
            spec["priorityClassName"] = rng.choice(tuple(PRIORITIES))
        labels, annotations = {"app": app, "team": rng.choice("xy")}, self._behaviour()
        return [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": self.name("p"),
                    "namespace": namespace,
                    "labels": labels,
                    "annotations": annotations,
                },
                "spec": spec,
            }
            for _ in range(count)
        ]

    def burst(self, namespace: str) -> list[Document]:
        """Several pods alike, created together."""
        first = self.pod(namespace)
        others = [
            {**first, "metadata": {**first["metadata"], "name": self.name("p")}} for _ in range(self.rng.randint(1, 4))
        ]
        return [first, *others]

    def workload(self, namespace: str) -> Document:
        rng = self.rng
        kind = rng.choice(("Deployment", "Deployment", "StatefulSet", "Job", "DaemonSet"))
        app = rng.choice(APPS)
        name = self.name(kind.lower()[:3])
        pod, annotations = self.pod_spec(app)
        labels = {"app": app, "of": name}
        template: Document = {"metadata": {"labels": labels, "annotations": annotations}, "spec": pod}
        spec: Document = {"template": template}
        if kind == "Job":
            pod["restartPolicy"] = "Never"
            annotations[RUN_FOR] = rng.choice(("5s", "60s"))
            spec |= {"completions": rng.randint(1, 5), "parallelism": rng.randint(1, 3), "backoffLimit": 2}
            version = "batch/v1"
        else:
            spec["selector"] = {"matchLabels": labels}
            version = "apps/v1"
            if kind != "DaemonSet":
                spec["replicas"] = rng.randint(1, 5)
            if kind == "StatefulSet":
                spec["serviceName"] = name
                if self._chance(0.5):
                    spec["podManagementPolicy"] = "Parallel"
        return {
            "apiVersion": version,
            "kind": kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": spec,
        }

    def budget(self, namespace: str) -> Document:
        rng = self.rng
        limit: Any = rng.choice(({"minAvailable": 1}, {"minAvailable": "50%"}, {"maxUnavailable": 1}))
        return {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": self.name("pdb"), "namespace": namespace},
            "spec": {**limit, "selector": {"matchLabels": {"app": rng.choice(APPS)}}},
        }

    def quota(self, namespace: str, name: str) -> Document:
        rng = self.rng
        hard: Document = {"pods": str(rng.randint(3, 12))}
        if self._chance(0.7):
            hard["requests.cpu"] = str(rng.randint(4, 16))
        if self.devices and self._chance(0.5):
            hard[rng.choice(CLASSES)] = str(rng.randint(1, 4))
        return {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"hard": hard},
        }

    # -- volumes

    def claim(self, namespace: str, name: str) -> Document:
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "accessModes": [self.rng.choice(("ReadWriteOnce", "ReadWriteOncePod"))],
                "storageClassName": self.rng.choice(("late", "made")),
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }

    def volume(self, node: str) -> Document:
        terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": self.name("pv")},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce", "ReadWriteOncePod"],
                "storageClassName": "late",
                "local": {"path": "/x"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
            },
        }

    def csi_node(self, node: str) -> Document:
        driver = {"name": CSI_DRIVER, "nodeID": node, "allocatable": {"count": self.rng.randint(1, 2)}}
        metadata = {"name": node}
        return {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSINode",
            "metadata": metadata,
            "spec": {"drivers": [driver]},
        }

    # -- dynamic resource allocation

    def device_class(self) -> Document:
        expression = f"device.driver == '{CLAIMED_DRIVER}'"
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": "claimed"},
            "spec": {"selectors": [{"cel": {"expression": expression}}]},
        }

    def resource_slice(self, node: str) -> Document:
        devices = [{"name": f"d{number}"} for number in range(self.rng.randint(1, 3))]
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"slice-{node}"},
            "spec": {
                "driver": CLAIMED_DRIVER,
                "nodeName": node,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                "devices": devices,
            },
        }

    def resource_claim(self, namespace: str, name: str) -> Document:
        request = {"name": "r", "exactly": {"deviceClassName": "claimed", "count": self.rng.choice((1, 1, 2))}}
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"devices": {"requests": [request]}},
        }

    # -- systems

    def reservation(self) -> Document:
        rng = self.rng
        app = rng.choice(APPS)
        spec, _ = self.pod_spec(app)
        for each in ("priorityClassName", "preemptionPolicy", "topologySpreadConstraints"):
            spec.pop(each, None)
        template = {"metadata": {"namespace": rng.choice(NAMESPACES), "labels": {"app": app}}, "spec": spec}
        made: Document = {
            "template": template,
            "owners": [{"labelSelector": {"matchLabels": {"app": rng.choice(APPS)}}}],
            "ttl": rng.choice(("30s", "10m", "24h", "0")),
            "allocateOnce": self._chance(0.5),
        }
        if self._chance(0.3):
            made["allocatePolicy"] = rng.choice(("Aligned", "Restricted"))
        if self._chance(0.15):
            made["preAllocation"] = True
        return {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "Reservation",
            "metadata": {"name": self.name("r")},
            "spec": made,
        }

    def resource_policy(self, namespace: str, name: str) -> Document:
        rng = self.rng
        units: list[Document] = []
        for pool in rng.sample(("static", "spot"), rng.randint(1, 2)):
            unit: Document = {
                "name": pool,
                "priority": rng.randint(0, 5),
                "nodeSelector": {"matchLabels": {"pool": pool}},
            }
            if self._chance(0.7):
                unit["maxCount"] = rng.randint(0, 4)
            if self._chance(0.3):
                unit["maxResources"] = {"cpu": str(rng.randint(1, 6))}
            units.append(unit)
        spec: Document = {
            "podSelector": {"matchLabels": {"app": rng.choice(APPS)}},
            "strategy": rng.choice(("required", "prefer")),
            "units": units,
        }
        if self._chance(0.3):
            spec["matchLabelKeys"] = ["team"]
        if self._chance(0.3):
            spec["matchPolicy"] = {"ignoreTerminatingPod": True}
        metadata = {"name": name, "namespace": namespace}
        return {"apiVersion": SIGS, "kind": "ResourcePolicy", "metadata": metadata, "spec": spec}

    def resource_class(self, name: str) -> Document:
        spec: Document = {"resourceName": RAW_DEVICE}
        if name == "gold":
            values = self.rng.choice((["precious"], ["precious"], ["common"]))
            spec["resourceSelector"] = [{"matchExpressions": [{"key": "kind", "operator": "In", "values": values}]}]
        return {"apiVersion": SIGS, "kind": "ResourceClass", "metadata": {"name": name}, "spec": spec}

    def scheduling_policy(self, name: str) -> Document:
        rng = self.rng
        allowed: Document = {"schedulerNames": [], "priorityClasseNames": rng.choice(([], ["low", "mid"], ["low"]))}
        allowed["nodeSelectors"] = rng.choice(({}, {"zone": ["a"]}, {"zone": [], "pool": ["spot"]}))
        allowed["affinities"] = {}
        if self._chance(0.6):
            allowed["tolerations"] = rng.choice(([], [{"keys": ["dedicated"], "operators": ["Exists"]}]))
        spec: Document = {"allowed": allowed}
        return {"apiVersion": SIGS, "kind": "SchedulingPolicy", "metadata": {"name": name}, "spec": spec}

    # -- placement

    def cluster(self, name: str) -> Document:
        return {
            "apiVersion": f"{OCM}/v1",
            "kind": "ManagedCluster",
            "metadata": {"name": name, "labels": {"region": self.rng.choice(("eu", "us"))}},
            "spec": {"hubAcceptsClient": True},
        }

    def score(self, cluster: str, valid_until: str | None) -> Document:
        status: Document = {"scores": [{"name": "s", "value": self.rng.randint(-100, 100)}]}
        if valid_until:
            status["validUntil"] = valid_until
        return {
            "apiVersion": f"{OCM}/v1alpha1",
            "kind": "AddOnPlacementScore",
            "metadata": {"name": "load", "namespace": cluster},
            "status": status,
        }

    def placement(self, namespace: str, name: str) -> Document:
        rng = self.rng
        spec: Document = {
            "prioritizerPolicy": {
                "mode": "Exact",
                "configurations": [
                    {
                        "scoreCoordinate": {"type": "AddOn", "addOn": {"resourceName": "load", "scoreName": "s"}},
                        "weight": rng.choice((1, -1)),
                    }
                ],
            }
        }
        if self._chance(0.8):
            spec["numberOfClusters"] = rng.randint(1, 3)
        if self._chance(0.5):
            selector = {"labelSelector": {"matchLabels": {"region": rng.choice(("eu", "us"))}}}
            spec["predicates"] = [{"requiredClusterSelector": selector}]
        if self._chance(0.4):
            spec["tolerations"] = [{"key": "maintenance", "operator": "Exists"}]
            if self._chance(0.6):
                spec["tolerations"][0]["tolerationSeconds"] = rng.choice((10, 120))
        metadata = {"name": name, "namespace": namespace}
        return {"apiVersion": f"{OCM}/v1beta1", "kind": "Placement", "metadata": metadata, "spec": spec}
