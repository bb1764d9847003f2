"""The agent of a member cluster: reports health, capacity and free resources to the hub.

Each report renews the lease, updates the ManagedCluster status and publishes CPU and memory scores. Between reports, the
lease is renewed as often as the ManagedCluster asks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from wharfinger.api.conditions import find_condition, new_condition, transition_time
from wharfinger.api.errors import AlreadyExists, ApiError, Conflict, NotFound
from wharfinger.api.kinds.builtin import LEASES, NAMESPACES, NODES, PODS
from wharfinger.api.quantity import NANO, format_nano, parse_nano
from wharfinger.api.registry import Document
from wharfinger.api.resources import requests_nano
from wharfinger.api.times import format_micro_time
from wharfinger.api.views import Pod
from wharfinger.client.informer import Informer
from wharfinger.client.interface import Client
from wharfinger.client.timers import Clock, SystemClock, background, background_sleep
from wharfinger.systems.placement.kinds.names import MANAGED_CLUSTERS
from wharfinger.systems.placement.kinds.views import DEFAULT_LEASE_SECONDS, ManagedCluster, lease_seconds
from wharfinger.systems.placement.scores.normalise import Linear
from wharfinger.systems.placement.scores.publish import FAILURES, ScorePublisher

log = logging.getLogger(__name__)

LEASE = "managed-cluster-lease"
AVAILABLE, JOINED = "ManagedClusterConditionAvailable", "ManagedClusterJoined"
KUBE_VERSION_CLAIM, ID_CLAIM = "kubeversion.open-cluster-management.io", "id.k8s.io"
SHORTEST_INTERVAL = 1.0  # seconds between two reports, whatever the hub does
_ATTEMPTS = 5  # to update the status that the hub updates too


@dataclass(frozen=True, slots=True)
class ClusterUsage:
    """A cluster's capacity, allocatable and requested amounts, in nano-units by resource name."""

    capacity: dict[str, int] = field(default_factory=dict)
    allocatable: dict[str, int] = field(default_factory=dict)
    requested: dict[str, int] = field(default_factory=dict)
    version: str = ""

    def free(self, resource: str) -> int:
        return self.allocatable.get(resource, 0) - self.requested.get(resource, 0)

    def free_share(self, resource: str) -> float:
        """The free fraction, between 0 and 1."""
        total = self.allocatable.get(resource, 0)
        return max(0.0, self.free(resource) / total) if total else 0.0


def usage_of(nodes: Sequence[Document], pods: Sequence[Pod]) -> ClusterUsage:
    """Sums nodes and the requests of their pods. Nodes that are unschedulable or not ready count as capacity, but not as
    allocatable; a resource that only such nodes have is allocatable with the amount 0."""
    capacity: dict[str, int] = {}
    allocatable: dict[str, int] = {}
    requested: dict[str, int] = {}
    versions = set()
    open_nodes = set()
    for node in nodes:
        status = node.get("status") or {}
        _add(capacity, status.get("capacity"))
        allocatable.update(dict.fromkeys((status.get("allocatable") or {}).keys() - allocatable.keys(), 0))
        if not (node.get("spec") or {}).get("unschedulable") and _ready(status):
            _add(allocatable, status.get("allocatable"))
            open_nodes.add(node["metadata"]["name"])
        versions.add((status.get("nodeInfo") or {}).get("kubeletVersion") or "")
    for pod in pods:
        if pod.spec.node_name in open_nodes and not pod.terminal:
            for name, amount in requests_nano(pod).items():
                requested[name] = requested.get(name, 0) + amount
    versions.discard("")
    return ClusterUsage(capacity, allocatable, requested, min(versions, default=""))


def _ready(status: Document) -> bool:
    """Whether a node is ready; one that has never said so counts as ready."""
    ready = find_condition(status.get("conditions") or (), "Ready")
    return ready is None or ready.get("status") == "True"


def _add(total: dict[str, int], amounts: Mapping[str, Any] | None) -> None:
    for name, amount in (amounts or {}).items():
        total[name] = total.get(name, 0) + parse_nano(amount)


@dataclass(frozen=True, slots=True)
class Scales:
    """The free amounts at which a cluster scores 100."""

    cpu: float = 100.0  # cores
    memory: float = 1024.0  # GiB


def scores_of(usage: ClusterUsage, scales: Scales) -> dict[str, int]:
    """Scores from free amounts, on the given scales, and from free fractions."""
    share = Linear(0.0, 1.0)
    return {
        "cpuAvailable": Linear(0.0, scales.cpu).score(usage.free("cpu") / NANO),
        "memAvailable": Linear(0.0, scales.memory).score(usage.free("memory") / NANO / 2**30),
        "cpuRatio": share.score(usage.free_share("cpu")),
        "memRatio": share.score(usage.free_share("memory")),
    }


class Agent:
    """Reports one member to its hub. `member` and `hub` are clients of the two API servers."""

    def __init__(
        self,
        cluster: str,
        member: Client,
        hub: Client,
        *,
        resource_name: str = "resource-usage",
        valid_for: float = 300.0,
        scales: Scales | None = None,
        claims: Mapping[str, str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._cluster = cluster
        self._member = member
        self._hub = hub
        self._scales = scales or Scales()
        self._claims = dict(claims or {})
        self._clock = clock or SystemClock()
        self._publisher = ScorePublisher(hub, resource_name, valid_for=valid_for, clock=self._clock)
        self._said = ""  # the availability in the last report
        self._report_due, self._lease_due = asyncio.Event(), asyncio.Event()

    async def run(self, interval: float) -> None:
        """Reports every `interval` seconds until cancelled, and at once when the hub accepts the cluster or says
        something else about its availability than the last report."""
        known = Informer(self._hub, MANAGED_CLUSTERS, ManagedCluster, field_selector=f"metadata.name={self._cluster}")
        known.add_handler(lambda new: self._seen(None, new), self._seen)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(known.run(), name="ManagedCluster")
            tasks.create_task(self._keep_lease(known), name="lease")
            tasks.create_task(self._keep_reporting(interval), name="reports")
            tasks.create_task(self._publisher.guard(self._cluster), name="scores")

    def _seen(self, old: ManagedCluster | None, new: ManagedCluster) -> None:
        available = new.status.condition(AVAILABLE)
        if new.spec.hub_accepts_client and (
            old is None or not old.spec.hub_accepts_client or (available is not None and available.status != self._said)
        ):
            self._report_due.set()
        if old is None or old.spec != new.spec:
            self._lease_due.set()

    async def _keep_reporting(self, interval: float) -> None:
        while True:
            self._report_due.clear()
            try:
                await self.report(again_in=interval)
            except FAILURES as error:
                log.warning("cannot report to the hub: %s", error)
            shortest = min(SHORTEST_INTERVAL, interval)
            await background_sleep(shortest)
            await _wait(self._report_due, interval - shortest)

    async def _keep_lease(self, known: Informer[ManagedCluster]) -> None:
        while True:
            self._lease_due.clear()
            found = known.get(self._cluster)
            seconds = DEFAULT_LEASE_SECONDS
            if found is not None and found.spec.hub_accepts_client:
                seconds = lease_seconds(found.spec.lease_duration_seconds)
                try:
                    await self._renew(seconds)
                except FAILURES as error:
                    log.warning("cannot renew the lease: %s", error)
            await _wait(self._lease_due, seconds)

    async def report(self, *, again_in: float = 0.0) -> bool:
        """Sends one report. False if the hub has not accepted the cluster yet."""
        found = await self._registered()
        spec = found.get("spec") or {}
        if not spec.get("hubAcceptsClient"):
            log.info("the hub has not accepted the cluster %s yet", self._cluster)
            return False
        usage, fault = await self._measure()
        # Before the status: with an old lease, the hub would take the status of a returning agent for an old one.
        await self._renew(lease_seconds(spec.get("leaseDurationSeconds") or 0))
        await self._tell_status(found, usage, fault)
        if usage is not None:
            await self._publisher.publish(self._cluster, scores_of(usage, self._scales), again_in=again_in)
        return True

    async def _registered(self) -> Document:
        """The ManagedCluster. Creates it to request registration if it does not exist; a hub administrator must accept
        it."""
        try:
            return await self._hub.get(MANAGED_CLUSTERS, self._cluster)
        except NotFound:
            document = {
                "apiVersion": MANAGED_CLUSTERS.api_version,
                "kind": MANAGED_CLUSTERS.kind,
                "metadata": {"name": self._cluster},
                "spec": {"hubAcceptsClient": False},
            }
            with suppress(AlreadyExists):
                return await self._hub.create(MANAGED_CLUSTERS, document)
            return await self._hub.get(MANAGED_CLUSTERS, self._cluster)

    async def _measure(self) -> tuple[ClusterUsage | None, str]:
        try:
            nodes = await self._member.list(NODES)
            pods = await self._member.list(PODS, view=Pod)
        except ApiError as error:
            return None, error.message
        return usage_of(nodes.items, pods.items), ""

    async def _tell_status(self, found: Document, usage: ClusterUsage | None, fault: str) -> None:
        claims = [] if usage is None else await self._all_claims(usage)
        self._said = "False" if usage is None else "True"
        for left in reversed(range(_ATTEMPTS)):
            change = self._status_change(found.get("status") or {}, usage, fault, claims)
            if not change:
                return
            # The hub writes conditions into the same list: use the resource version to keep its changes.
            version = {"resourceVersion": found["metadata"]["resourceVersion"]}
            try:
                await self._hub.patch(
                    MANAGED_CLUSTERS, self._cluster, {"metadata": version, "status": change}, subresource="status"
                )
            except Conflict:
                if not left:
                    raise
                found = await self._hub.get(MANAGED_CLUSTERS, self._cluster)
            else:
                return

    def _status_change(
        self, status: Document, usage: ClusterUsage | None, fault: str, claims: list[Document]
    ) -> Document:
        """The merge patch that brings the status up to date; empty if it is."""
        conditions = [
            self._condition(status, JOINED, "True", "ManagedClusterJoined", "Managed cluster joined"),
            self._condition(status, AVAILABLE, "True", "ManagedClusterAvailable", "Managed cluster is available")
            if usage is not None
            else self._condition(status, AVAILABLE, "False", "ManagedClusterKubeAPIServerUnavailable", fault),
        ]
        mine = {condition["type"] for condition in conditions}
        others = [condition for condition in status.get("conditions") or [] if condition.get("type") not in mine]
        change: Document = {"conditions": [*others, *conditions]}
        if usage is not None:
            change |= {
                "capacity": _quantities(usage.capacity),
                "allocatable": _quantities(usage.allocatable),
                "version": {"kubernetes": usage.version},
                "clusterClaims": claims,
            }
        if all(status.get(key) == value for key, value in change.items()):
            return {}
        for key in ("capacity", "allocatable"):
            if key in change:  # a merge patch keeps keys that are not mentioned
                change[key] = {**dict.fromkeys(status.get(key) or {}), **change[key]}
        return change

    def _condition(self, status: Document, kind: str, value: str, reason: str, message: str) -> Document:
        condition = new_condition(kind, value, reason, message, self._clock.now())
        known = find_condition(status.get("conditions") or (), kind)
        return {**condition, "lastTransitionTime": transition_time(known, value, condition["lastTransitionTime"])}

    async def _all_claims(self, usage: ClusterUsage) -> list[Document]:
        claims = dict(self._claims)
        if usage.version:
            claims.setdefault(KUBE_VERSION_CLAIM, usage.version)
        if ID_CLAIM not in claims:
            with suppress(ApiError):
                # The UID of kube-system identifies a cluster, because the namespace lives as long as the cluster.
                system = await self._member.get(NAMESPACES, "kube-system")
                claims[ID_CLAIM] = system["metadata"]["uid"]
        return [{"name": name, "value": value} for name, value in sorted(claims.items())]

    async def _renew(self, seconds: int) -> None:
        """Renews the lease, which the hub creates once the cluster has joined."""
        change = {
            "spec": {
                "renewTime": format_micro_time(self._clock.now()),
                "holderIdentity": self._cluster,
                "leaseDurationSeconds": seconds,
            }
        }
        with suppress(NotFound):
            await self._hub.patch(LEASES, LEASE, change, self._cluster)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Waits until the event is set, at most so many seconds."""
    with background(), suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def _quantities(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: format_nano(nano, "binary" if name == "memory" else "decimal") for name, nano in amounts.items()}
