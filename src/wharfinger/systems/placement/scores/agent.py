"""The agent of a member cluster: tells the hub that the cluster lives, what it has, and how much of it is free.

Each report renews the lease, brings the ManagedCluster's status up to date and publishes CPU and memory scores.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from wharfinger.api.conditions import find_condition, new_condition, transition_time
from wharfinger.api.errors import AlreadyExists, ApiError, NotFound
from wharfinger.api.kinds.builtin import LEASES, NAMESPACES, NODES, PODS
from wharfinger.api.quantity import NANO, format_nano, parse_nano
from wharfinger.api.registry import Document
from wharfinger.api.resources import requests_nano
from wharfinger.api.times import format_micro_time
from wharfinger.api.views import Pod
from wharfinger.client.interface import Client
from wharfinger.client.timers import Clock, SystemClock, background_sleep
from wharfinger.systems.placement.kinds.names import MANAGED_CLUSTERS
from wharfinger.systems.placement.scores.normalise import Linear
from wharfinger.systems.placement.scores.publish import FAILURES, ScorePublisher

log = logging.getLogger(__name__)

LEASE = "managed-cluster-lease"
AVAILABLE, JOINED = "ManagedClusterConditionAvailable", "ManagedClusterJoined"
KUBE_VERSION_CLAIM, ID_CLAIM = "kubeversion.open-cluster-management.io", "id.k8s.io"


@dataclass(frozen=True, slots=True)
class ClusterUsage:
    """What a cluster has and how much of it pods asked for, in nano-units by resource name."""

    capacity: dict[str, int] = field(default_factory=dict)
    allocatable: dict[str, int] = field(default_factory=dict)
    requested: dict[str, int] = field(default_factory=dict)
    version: str = ""

    def free(self, resource: str) -> int:
        return self.allocatable.get(resource, 0) - self.requested.get(resource, 0)

    def free_share(self, resource: str) -> float:
        """Between 0 and 1."""
        total = self.allocatable.get(resource, 0)
        return max(0.0, self.free(resource) / total) if total else 0.0


def usage_of(nodes: Sequence[Document], pods: Sequence[Pod]) -> ClusterUsage:
    """Sums nodes and the requests of their pods; nodes closed to new pods have capacity, but nothing allocatable."""
    capacity: dict[str, int] = {}
    allocatable: dict[str, int] = {}
    requested: dict[str, int] = {}
    versions = set()
    open_nodes = set()
    for node in nodes:
        status = node.get("status") or {}
        _add(capacity, status.get("capacity"))
        if not (node.get("spec") or {}).get("unschedulable"):
            _add(allocatable, status.get("allocatable"))
            open_nodes.add(node["metadata"]["name"])
        versions.add((status.get("nodeInfo") or {}).get("kubeletVersion") or "")
    for pod in pods:
        if pod.spec.node_name in open_nodes and not pod.terminal:
            for name, amount in requests_nano(pod).items():
                requested[name] = requested.get(name, 0) + amount
    versions.discard("")
    return ClusterUsage(capacity, allocatable, requested, min(versions, default=""))


def _add(total: dict[str, int], amounts: Mapping[str, Any] | None) -> None:
    for name, amount in (amounts or {}).items():
        total[name] = total.get(name, 0) + parse_nano(amount)


@dataclass(frozen=True, slots=True)
class Scales:
    """What counts as much: a cluster with this much free, or more, scores 100."""

    cpu: float = 100.0  # cores
    memory: float = 1024.0  # GiB


def scores_of(usage: ClusterUsage, scales: Scales) -> dict[str, int]:
    """Free amounts on the declared scales, and free shares of what there is."""
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

    async def run(self, interval: float) -> None:
        """Reports every `interval` seconds until cancelled."""
        while True:
            try:
                await self.report(again_in=interval)
            except FAILURES as error:
                log.warning("cannot report to the hub: %s", error)
            await background_sleep(interval)

    async def report(self, *, again_in: float = 0.0) -> bool:
        """One report; False while the hub has not accepted the cluster yet."""
        found = await self._registered()
        if not (found.get("spec") or {}).get("hubAcceptsClient"):
            log.info("the hub has not accepted the cluster %s yet", self._cluster)
            return False
        usage, fault = await self._measure()
        await self._tell_status(found, usage, fault)
        await self._renew()
        if usage is not None:
            await self._publisher.publish(self._cluster, scores_of(usage, self._scales), again_in=again_in)
        return True

    async def _registered(self) -> Document:
        """The ManagedCluster; asks to join where there is none. An administrator of the hub accepts."""
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
        status = found.get("status") or {}
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
                "clusterClaims": await self._all_claims(usage),
            }
        if any(status.get(key) != value for key, value in change.items()):
            for key in ("capacity", "allocatable"):
                if key in change:  # a merge patch keeps what it does not name
                    change[key] = {**dict.fromkeys(status.get(key) or {}), **change[key]}
            await self._hub.patch(MANAGED_CLUSTERS, self._cluster, {"status": change}, subresource="status")

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
                # The namespace kube-system lives as long as its cluster, so its uid names the cluster.
                system = await self._member.get(NAMESPACES, "kube-system")
                claims[ID_CLAIM] = system["metadata"]["uid"]
        return [{"name": name, "value": value} for name, value in sorted(claims.items())]

    async def _renew(self) -> None:
        """Renews the lease; the hub makes it once the cluster has joined."""
        change = {"spec": {"renewTime": format_micro_time(self._clock.now()), "holderIdentity": self._cluster}}
        with suppress(NotFound):
            await self._hub.patch(LEASES, LEASE, change, self._cluster)


def _quantities(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: format_nano(nano, "binary" if name == "memory" else "decimal") for name, nano in amounts.items()}
