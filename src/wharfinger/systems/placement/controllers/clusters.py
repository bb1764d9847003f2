"""Maintains ManagedClusters on the hub: namespace, lease, availability, and the taints derived from it.

A cluster becomes Unknown when its lease has not been renewed for five lease durations. In simulation, agents are
assumed to be running unless the annotation `AGENT_STOPPED` says when they stopped.
"""

from __future__ import annotations

from typing import Any

from wharfinger.api.errors import AlreadyExists, NotFound
from wharfinger.api.kinds.builtin import LEASES, NAMESPACES
from wharfinger.api.registry import Document
from wharfinger.api.times import BadTime, format_micro_time, parse_time
from wharfinger.api.views.base import view
from wharfinger.api.views.meta import Metadata
from wharfinger.controllers.context import ContextController, ControllerContext
from wharfinger.systems.placement.kinds.names import MANAGED_CLUSTERS
from wharfinger.systems.placement.kinds.views import PREFIX, ManagedCluster, lease_seconds
from wharfinger.systems.placement.rules.conditions import PlacementCondition, changed
from wharfinger.systems.placement.rules.taints import NO_SELECT

AVAILABLE, ACCEPTED, JOINED = "ManagedClusterConditionAvailable", "HubAcceptedManagedCluster", "ManagedClusterJoined"
UNAVAILABLE_TAINT, UNREACHABLE_TAINT = PREFIX + "unavailable", PREFIX + "unreachable"
LEASE = "managed-cluster-lease"
AGENT_STOPPED = "wharfinger.dev/agent-stopped"  # simulation: when the cluster's agent stopped
LEASES_MISSED = 5  # lease durations without renewal after which a cluster is Unknown
_EXACT = 1e-6  # seconds by which timers may fire early because of rounding
_LEASE_LAG = 1.0  # seconds until a lease is looked at again that the informer has not seen renewed yet
_STOPPED = "ManagedClusterLeaseUpdateStopped"
_DOCUMENT: type[dict[str, Any]] = dict


class ClusterController(ContextController[str]):
    name = "managedcluster"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self.clusters = context.documents(MANAGED_CLUSTERS)
        self.namespaces = context.informers.of(NAMESPACES, Metadata)
        self.leases = context.informers.of(LEASES, _DOCUMENT, field_selector=f"metadata.name={LEASE}")
        self.clusters.add_handler(self._changed, lambda old, new: self._changed(new))
        # Lease renewals need no reconcile: the pending timer reads the new deadline.
        self.leases.add_handler(self._lease_changed, None, self._lease_changed)
        self.namespaces.add_handler(None, None, lambda namespace: self.queue.add(namespace.metadata.name))

    def _changed(self, document: Document) -> None:
        self.queue.add(document["metadata"]["name"])

    def _lease_changed(self, lease: Document) -> None:
        self.queue.add(lease["metadata"]["namespace"])

    async def reconcile(self, key: str) -> None:
        document = self.clusters.get(key)
        if document is None or document["metadata"].get("deletionTimestamp"):
            return
        cluster = view(document, ManagedCluster)
        if cluster.spec.hub_accepts_client or self.context.implicit_heartbeats:
            await self._ensure_namespace(key)
        await self._ensure_lease(cluster)
        verdicts = [*self._acceptance(cluster), *await self._availability(cluster)]
        status = next((verdict.status for verdict in verdicts if verdict.type == AVAILABLE), None)
        if status is None:
            known = cluster.status.condition(AVAILABLE)
            status = known.status if known is not None else "Unknown"
        version = await self._taint(document, cluster, status)
        conditions = changed(cluster.status.conditions, verdicts, cluster.metadata.generation, self.context.now())
        if verdicts and conditions is not None:
            try:
                # The patch replaces the whole list, which the agent also writes: use the resource version to keep its
                # changes.
                patch = {"metadata": {"resourceVersion": version}, "status": {"conditions": conditions}}
                await self.context.client.patch(MANAGED_CLUSTERS, key, patch, subresource="status")
            except NotFound:
                return

    async def _ensure_namespace(self, name: str) -> None:
        if self.namespaces.get(name) is not None:
            return
        document = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": {"open-cluster-management.io/cluster-name": name}},
        }
        try:
            await self.context.client.create(NAMESPACES, document)
        except AlreadyExists:
            return

    async def _ensure_lease(self, cluster: ManagedCluster) -> None:
        """Creates the lease once an agent has joined; from then on the agent renews it."""
        name = cluster.metadata.name
        joined = cluster.status.condition(JOINED)
        if joined is None or joined.status != "True" or self.leases.get(LEASE, name) is not None:
            return
        document = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": LEASE, "namespace": name},
            "spec": {
                "holderIdentity": name,
                "leaseDurationSeconds": _lease_seconds(cluster),
                "renewTime": format_micro_time(self.context.now()),
            },
        }
        try:
            await self.context.client.create(LEASES, document, name)
        except (AlreadyExists, NotFound):
            return

    def _acceptance(self, cluster: ManagedCluster) -> list[PlacementCondition]:
        known = cluster.status.condition(ACCEPTED)
        if cluster.spec.hub_accepts_client:
            return [PlacementCondition(ACCEPTED, "True", "HubClusterAdminAccepted", "Accepted by hub cluster admin")]
        if known is not None and known.status == "True":
            return [PlacementCondition(ACCEPTED, "False", "HubClusterAdminDenied", "Denied by hub cluster admin")]
        return []

    async def _availability(self, cluster: ManagedCluster) -> list[PlacementCondition]:
        """The availability condition derived from the lease; empty while the lease is fresh, because the agent reports
        health."""
        name, known = cluster.metadata.name, cluster.status.condition(AVAILABLE)
        renewed = self._renewed(cluster)
        if self.context.implicit_heartbeats and AGENT_STOPPED not in cluster.metadata.annotations:
            if known is None:
                return [
                    PlacementCondition(AVAILABLE, "True", "ManagedClusterAvailable", "Managed cluster is available")
                ]
            return []
        if renewed is None:
            return []
        left = renewed + LEASES_MISSED * _lease_seconds(cluster) - self.context.now()
        if left > _EXACT:
            self.queue.add_after(name, left, background=True)
            return []
        if known is not None and known.status == "Unknown":
            return []
        if not self.context.implicit_heartbeats and await self._renewed_meanwhile(name, renewed):
            self.queue.add_after(name, _LEASE_LAG, background=True)
            return []
        return [PlacementCondition(AVAILABLE, "Unknown", _STOPPED, "Registration agent stopped updating its lease.")]

    async def _renewed_meanwhile(self, name: str, renewed: float) -> bool:
        """Whether the lease was renewed later than the informer, which can be behind that of clusters, has seen."""
        try:
            lease = await self.context.client.get(LEASES, LEASE, name)
            return parse_time(str((lease.get("spec") or {}).get("renewTime") or "")) > renewed
        except (NotFound, BadTime):
            return False

    def _renewed(self, cluster: ManagedCluster) -> float | None:
        """When the agent last renewed its lease; None if there is no lease."""
        if self.context.implicit_heartbeats:
            text = cluster.metadata.annotations.get(AGENT_STOPPED, "")
        else:
            lease = self.leases.get(LEASE, cluster.metadata.name)
            text = "" if lease is None else str((lease.get("spec") or {}).get("renewTime") or "")
        try:
            return parse_time(text)
        except BadTime:
            return None

    async def _taint(self, document: Document, cluster: ManagedCluster, status: str) -> str:
        """Sets the system taint for this availability and removes the other. Returns the new resource version."""
        wanted = {"True": "", "False": UNAVAILABLE_TAINT}.get(status, UNREACHABLE_TAINT)
        system = {UNAVAILABLE_TAINT, UNREACHABLE_TAINT}
        there = {taint.key for taint in cluster.spec.taints if taint.key in system}
        version = str(document["metadata"]["resourceVersion"])
        if there == ({wanted} if wanted else set()):
            return version
        kept = [
            taint
            for taint in (document.get("spec") or {}).get("taints") or []
            if taint.get("key") not in system - {wanted}
        ]
        if wanted and wanted not in there:
            kept.append({"key": wanted, "effect": NO_SELECT})
        patch = {"metadata": {"resourceVersion": version}, "spec": {"taints": kept}}
        try:
            written = await self.context.client.patch(MANAGED_CLUSTERS, cluster.metadata.name, patch)
        except NotFound:
            return version
        return str(written["metadata"]["resourceVersion"])


def _lease_seconds(cluster: ManagedCluster) -> int:
    return lease_seconds(cluster.spec.lease_duration_seconds)
