"""The workloads of upstream's scheduler_perf, as documents: nodes, initial pods, and pods to schedule.

The shapes and sizes are upstream's, so that results can be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from wharfinger.bench import device_workloads

Document = dict[str, Any]

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
BOTH = ["sched-0", "sched-1"]
EVERY = 30
"""Upstream creates these at a rate per second; here there is one per so many measured pods."""


def node(index: int, zones: tuple[str, ...] = (), pods: int = 110, name: str = "") -> Document:
    name = name or f"node-{index}"
    labels = {HOSTNAME: name} | ({ZONE: zones[index % len(zones)]} if zones else {})
    room = {"cpu": "4", "memory": "32Gi", "pods": str(pods)}
    return {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": room, "capacity": room}}


def pod(
    name: str,
    namespace: str = "default",
    *,
    cpu: str = "100m",
    memory: str = "500Mi",
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> Document:
    room = {"cpu": cpu, "memory": memory} if cpu else {}
    container = {
        "name": "pause",
        "image": "pause:3.10",
        "resources": {"requests": room, "limits": room},
    }
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": name, "labels": labels or {}},
        "spec": {"containers": [container], **spec},
    }


PodMaker = Callable[[str, str], Document]


def plain(name: str, namespace: str) -> Document:
    return pod(name, namespace)


def _affinity(color: str, side: str, key: str, *, preferred: bool = False) -> PodMaker:
    term: Document = {"labelSelector": {"matchLabels": {"color": color}}, "topologyKey": key, "namespaces": BOTH}
    if preferred:
        rule: Document = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]}
    else:
        rule = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}

    def make(name: str, namespace: str) -> Document:
        return pod(name, namespace, labels={"color": color}, affinity={side: rule})

    return make


affinity = _affinity("blue", "podAffinity", ZONE)
anti_affinity = _affinity("green", "podAntiAffinity", HOSTNAME)
preferred_affinity = _affinity("red", "podAffinity", HOSTNAME, preferred=True)
preferred_anti_affinity = _affinity("yellow", "podAntiAffinity", HOSTNAME, preferred=True)


def node_affinity(name: str, namespace: str) -> Document:
    terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["zone1", "zone2"]}]}]
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return pod(name, namespace, affinity={"nodeAffinity": rule})


def _spreading(action: str) -> PodMaker:
    constraint = {
        "maxSkew": 5,
        "topologyKey": ZONE,
        "whenUnsatisfiable": action,
        "labelSelector": {"matchLabels": {"color": "blue"}},
    }

    def make(name: str, namespace: str) -> Document:
        return pod(name, namespace, labels={"color": "blue"}, topologySpreadConstraints=[constraint])

    return make


def impossible(name: str, namespace: str) -> Document:
    return pod(name, namespace, cpu="9", priority=10)


def low(name: str, namespace: str) -> Document:
    return pod(name, namespace, cpu="900m", terminationGracePeriodSeconds=0)


def high(name: str, namespace: str) -> Document:
    return pod(name, namespace, cpu="3", priority=10)


BIG_NODE = "scheduler-perf-node"


def daemon(name: str, namespace: str) -> Document:
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [BIG_NODE]}]}]
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return pod(name, namespace, cpu="", affinity={"nodeAffinity": rule})


SHAPES = 200


def many_shapes(name: str, namespace: str) -> Document:
    """One of 200 shapes, by the number at the end of the name: sizes, labels, selectors and tolerations differ."""
    kind = int(name.rsplit("-", 1)[-1]) % SHAPES
    extra: Document = {}
    if kind % 4 == 1:
        extra["nodeSelector"] = {ZONE: f"zone{kind % 3 + 1}"}
    if kind % 4 == 2:
        extra["tolerations"] = [{"key": f"team-{kind}", "operator": "Exists"}]
    labels = {"app": f"app-{kind}"}
    return pod(name, namespace, cpu=f"{20 + kind % 50}m", memory=f"{50 + kind}Mi", labels=labels, **extra)


POLICIES = 20
POOLS = ("reserved", "on-demand", "spot")


PODS_OF_POLICY = 500


def governed(name: str, namespace: str) -> Document:
    """A pod of one of 20 applications, whose pods come one application after the other, as Deployments create them."""
    number = int(name.rsplit("-", 1)[-1]) // PODS_OF_POLICY % POLICIES
    return pod(name, namespace, labels={"app": f"app-{number}"})


def governed_in_turn(name: str, namespace: str) -> Document:
    """The same, with a pod of every application in turn."""
    return pod(name, namespace, labels={"app": f"app-{int(name.rsplit('-', 1)[-1]) % POLICIES}"})


def resource_policies() -> Iterator[Document]:
    """One for each application: three units over the zones, the preferred two with a limit."""
    for number in range(POLICIES):
        limits: tuple[Document, ...] = ({"maxCount": 200}, {"maxCount": 200}, {})
        units = [
            {"name": pool, "priority": 3 - index, "nodeSelector": {"matchLabels": {ZONE: pool}}, **limits[index]}
            for index, pool in enumerate(POOLS)
        ]
        yield {
            "apiVersion": "scheduling.sigs.x-k8s.io/v1alpha1",
            "kind": "ResourcePolicy",
            "metadata": {"name": f"app-{number}", "namespace": "sched-1"},
            "spec": {"podSelector": {"matchLabels": {"app": f"app-{number}"}}, "units": units},
        }


RESERVED = 5000


def owner(name: str, namespace: str) -> Document:
    """Every other pod may use a reservation; the others may not."""
    number = int(name.rpartition("-")[2])
    return pod(name, namespace, labels={"app": "reserved"} if number % 2 else {})


APPLICATIONS = 10


def owner_in_turn(name: str, namespace: str) -> Document:
    """A pod of one of ten applications in turn, each with reservations of its own."""
    return pod(name, namespace, labels={"app": f"reserved-{int(name.rpartition('-')[2]) % APPLICATIONS}"})


def reservations_in_turn() -> Iterator[Document]:
    """One on each node, for one of ten applications."""
    return reservations(APPLICATIONS)


def reservations(applications: int = 1) -> Iterator[Document]:
    """One on each node, for one of the applications."""
    for number in range(RESERVED):
        app = {"app": f"reserved-{number % applications}" if applications > 1 else "reserved"}
        template = pod("", labels=app)
        requests = template["spec"]["containers"][0]["resources"]["requests"]
        yield {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "Reservation",
            "metadata": {"name": f"r-{number}", "uid": f"r-{number}", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {
                "template": {"metadata": {"labels": app}, "spec": template["spec"]},
                "owners": [{"labelSelector": {"matchLabels": app}}],
            },
            "status": {"phase": "Available", "nodeName": f"node-{number}", "allocatable": requests},
        }


CSI_DRIVER = "ebs.csi.aws.com"


def csi_node(node: Document) -> Iterator[Document]:
    """The CSI driver of the node supports 39 volumes."""
    drivers = [{"name": CSI_DRIVER, "nodeID": "n", "allocatable": {"count": 39}}]
    yield {"kind": "CSINode", "metadata": {"name": node["metadata"]["name"]}, "spec": {"drivers": drivers}}


def with_claim(name: str, namespace: str) -> Document:
    return pod(name, namespace, volumes=[{"name": "vol", "persistentVolumeClaim": {"claimName": f"pvc-{name}"}}])


def bound_claim(pod: Document) -> Iterator[Document]:
    """A pod's own claim, bound to its own CSI volume."""
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    common = {"accessModes": ["ReadOnlyMany"]}
    volume = {"driver": CSI_DRIVER, "volumeHandle": f"vol-{name}"}
    yield {
        "kind": "PersistentVolume",
        "metadata": {"name": f"pv-{name}"},
        "spec": {**common, "capacity": {"storage": "1Gi"}, "csi": volume},
        "status": {"phase": "Bound"},
    }
    annotations = {"pv.kubernetes.io/bind-completed": "true"}
    yield {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": f"pvc-{name}", "namespace": namespace, "annotations": annotations},
        "spec": {**common, "resources": {"requests": {"storage": "1Gi"}}, "volumeName": f"pv-{name}"},
        "status": {"phase": "Bound"},
    }


def with_device(name: str, namespace: str) -> Document:
    return pod(name, namespace, resourceClaims=device_workloads.references(name, 1))


def with_many_claims(name: str, namespace: str) -> Document:
    return pod(name, namespace, resourceClaims=device_workloads.references(name, 3))


def _nothing(document: Document) -> Iterator[Document]:
    return iter(())


@dataclass(frozen=True, slots=True)
class Workload:
    """`init` pods are placed before the clock starts; `meanwhile` arrives once for every 30 measured pods."""

    name: str
    measured: PodMaker
    nodes: int = 5000
    pods: int = 10000
    init: tuple[tuple[PodMaker, int], ...] = ()
    zones: tuple[str, ...] = ()
    meanwhile: PodMaker | None = None
    preempts: bool = False
    big_node: bool = False
    objects: Callable[[], Iterator[Document]] = lambda: iter(())  # objects of other kinds
    with_node: Callable[[Document], Iterator[Document]] = _nothing  # created with every node
    with_pod: Callable[[Document], Iterator[Document]] = _nothing  # created with every pod

    @property
    def has_devices(self) -> bool:
        return self.with_node is device_workloads.device_slice

    def node_documents(self, count: int | None = None) -> Iterator[Document]:
        for index in range(self.nodes if count is None else count):
            yield node(index, self.zones)
        if self.big_node:
            yield node(0, self.zones, pods=90000, name=BIG_NODE)

    def init_documents(self, scale: float = 1.0) -> Iterator[Document]:
        for number, (make, count) in enumerate(self.init):
            for index in range(round(count * scale)):
                yield make(f"init-{number}-{index}", "sched-0")

    def measured_documents(self, count: int | None = None) -> Iterator[Document]:
        for index in range(self.pods if count is None else count):
            yield self.measured(f"pod-{index}", "sched-1")

    def meanwhile_documents(self, count: int | None = None) -> Iterator[Document]:
        if self.meanwhile is not None:
            for index in range((self.pods if count is None else count) // EVERY):
                yield self.meanwhile(f"meanwhile-{index}", "sched-1")


def with_devices(workload: Workload, count: int) -> Workload:
    """The workload with so many devices on each node."""
    return replace(workload, with_node=partial(device_workloads.device_slice, count=count))


_ONE, _THREE = ("zone1",), ("zone1", "zone2", "zone3")
_MIXED = (plain, affinity, anti_affinity, preferred_affinity, preferred_anti_affinity)

WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("SchedulingBasic", plain, init=((plain, 1000),)),
        Workload("SchedulingNodeAffinity", node_affinity, init=((node_affinity, 5000),), zones=_ONE),
        Workload("SchedulingPodAntiAffinity", anti_affinity, pods=2000, init=((anti_affinity, 1000),)),
        Workload("SchedulingPodAffinity", affinity, pods=5000, init=((affinity, 5000),), zones=_ONE),
        Workload("SchedulingPreferredPodAffinity", preferred_affinity, pods=5000, init=((preferred_affinity, 5000),)),
        Workload(
            "SchedulingPreferredPodAntiAffinity",
            preferred_anti_affinity,
            pods=5000,
            init=((preferred_anti_affinity, 5000),),
        ),
        Workload("MixedSchedulingBasePod", plain, pods=5000, init=tuple((make, 2000) for make in _MIXED), zones=_ONE),
        Workload("TopologySpreading", _spreading("DoNotSchedule"), pods=5000, init=((plain, 5000),), zones=_THREE),
        Workload(
            "PreferredTopologySpreading", _spreading("ScheduleAnyway"), pods=5000, init=((plain, 5000),), zones=_THREE
        ),
        Workload("Unschedulable", plain, init=((plain, 100),), meanwhile=impossible),
        Workload("PreemptionBasic", high, nodes=1000, pods=1000, init=((low, 4000),), preempts=True),
        Workload("PreemptionAsync", plain, pods=5000, init=((low, 20000),), meanwhile=high, preempts=True),
        Workload("SchedulingDaemonset", daemon, nodes=15000, pods=30000, big_node=True),
        Workload("ManyShapes", many_shapes, init=((plain, 1000),), zones=_THREE),
        Workload(
            "SchedulingCSIPVs",
            with_claim,
            pods=5000,
            init=((with_claim, 5000),),
            with_node=csi_node,
            with_pod=bound_claim,
        ),
        Workload(
            "DRA",
            with_device,
            objects=device_workloads.device_class,
            with_node=device_workloads.device_slice,
            with_pod=device_workloads.claims_of,
        ),
        Workload(
            "DRAManyClaims",
            with_many_claims,
            pods=5000,
            objects=device_workloads.device_class,
            with_node=device_workloads.device_slice,
            with_pod=device_workloads.varied_claims_of,
        ),
        Workload("ResourcePolicy", governed, init=((plain, 1000),), zones=POOLS, objects=resource_policies),
        Workload("Reservation", owner, init=((plain, 1000),), objects=reservations),
        Workload("ReservationInTurn", owner_in_turn, pods=5000, init=((plain, 1000),), objects=reservations_in_turn),
        Workload(
            "ResourcePolicyInTurn", governed_in_turn, init=((plain, 1000),), zones=POOLS, objects=resource_policies
        ),
    )
}
