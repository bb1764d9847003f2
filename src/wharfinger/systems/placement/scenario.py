"""Placement in scenarios: the agents of managed clusters, and times of day in placements.

Simulated clusters have no agents. On a running hub, this module joins the clusters of a scenario, renews their leases
and stops renewing them, as the agents of real clusters would.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from wharfinger.api.errors import ApiError, NotFound
from wharfinger.api.kinds.builtin import LEASES
from wharfinger.api.registry import Document, Resource
from wharfinger.api.times import format_micro_time, format_time
from wharfinger.client.interface import Client
from wharfinger.client.tasks import cancel
from wharfinger.scenario.document import Scenario, ScenarioFault
from wharfinger.scenario.extension import ScenarioExtension
from wharfinger.systems.placement.controllers.clusters import AGENT_STOPPED, AVAILABLE, JOINED, LEASE
from wharfinger.systems.placement.controllers.sets import DEFAULT_SETS
from wharfinger.systems.placement.kinds.names import MANAGED_CLUSTER_SETS, MANAGED_CLUSTERS
from wharfinger.systems.placement.rules.extras import TIME_WINDOWS

if TYPE_CHECKING:
    from wharfinger.scenario.running.client import Footprint

RENEWAL = 0.5  # seconds between lease renewals
_MINUTE, _DAY = 60, 24 * 60  # seconds, minutes
_TIME_OF_DAY = re.compile(r"\d\d:\d\d")


class PlacementScenario(ScenarioExtension):
    def __init__(self) -> None:
        self._agents: ClusterAgents | None = None

    async def simulate_fault(self, fault: ScenarioFault, client: Client, now: float) -> None:
        """An agent that works again reports at once; a cluster in which nothing was stopped is what its condition says."""
        if not fault.agent:
            return
        since = format_time(now) if fault.stopped else None
        await client.patch(MANAGED_CLUSTERS, fault.agent, {"metadata": {"annotations": {AGENT_STOPPED: since}}})
        if not fault.stopped:
            cluster = await client.get(MANAGED_CLUSTERS, fault.agent)
            conditions = (cluster.get("status") or {}).get("conditions") or []
            kept = [each for each in conditions if (each.get("type"), each.get("status")) != (AVAILABLE, "Unknown")]
            if len(kept) < len(conditions):
                await client.patch(
                    MANAGED_CLUSTERS, fault.agent, {"status": {"conditions": kept or None}}, subresource="status"
                )

    def why_not(self, scenario: Scenario) -> str:
        for document in (each for step in scenario.steps for each in step.apply):
            for window in _windows(document):
                part = "timeZone" if window.get("timeZone", "UTC") != "UTC" else "days" if window.get("days") else ""
                if part:
                    return f"it speaks of times of day with {part}, which cannot be moved to now"
        return ""

    def has_times_of_day(self, document: Document) -> bool:
        return bool(_windows(document))

    def moved(self, document: Document, seconds: float) -> Document:
        if not _windows(document):
            return document
        metadata = document["metadata"]
        found = msgspec.json.decode(metadata["annotations"][TIME_WINDOWS])
        for window in found["windows"]:
            for key in ("start", "end"):
                hours, minutes = map(int, window[key].split(":"))
                later = (hours * 60 + minutes + round(seconds / _MINUTE)) % _DAY
                window[key] = f"{later // 60:02}:{later % 60:02}"
        annotations = {**metadata["annotations"], TIME_WINDOWS: msgspec.json.encode(found).decode()}
        return {**document, "metadata": {**metadata, "annotations": annotations}}

    def shipped(self) -> Iterable[tuple[str, str, str]]:
        return [(MANAGED_CLUSTER_SETS.kind, "", name) for name in DEFAULT_SETS]

    def open(self, client: Client, footprint: Footprint, documents: Sequence[Document]) -> None:
        self._agents = ClusterAgents(client)

    async def created(self, resource: Resource, document: Document) -> None:
        if self._agents is not None and resource.group_plural == MANAGED_CLUSTERS.group_plural:
            await self._agents.join(resource, document)

    async def fault(self, fault: ScenarioFault) -> None:
        if self._agents is not None and fault.agent:
            await (self._agents.stop(fault.agent) if fault.stopped else self._agents.start(fault.agent))

    async def close(self) -> None:
        if self._agents is not None:
            await self._agents.close()


class ClusterAgents:
    """The agents of a scenario's clusters. They use the administrator's client."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._joined: dict[str, Resource] = {}
        self._stopped: set[str] = set()
        self._renewing: asyncio.Task[None] | None = None

    async def join(self, resource: Resource, cluster: Document) -> None:
        """Joins a cluster to the hub, as its agent would."""
        name = str(cluster["metadata"]["name"])
        with contextlib.suppress(NotFound):
            await self._client.delete(LEASES, LEASE, name)  # left over from an earlier scenario
        if "hubAcceptsClient" not in (cluster.get("spec") or {}):
            await self._client.patch(resource, name, {"spec": {"hubAcceptsClient": True}})
        self._joined[name] = resource
        await self._report(name, (JOINED, "ManagedClusterJoined"), (AVAILABLE, "ManagedClusterAvailable"))
        if self._renewing is None:
            self._renewing = asyncio.create_task(self._renew(), name="agents of clusters")

    async def stop(self, name: str) -> None:
        self._stopped.add(name)

    async def start(self, name: str) -> None:
        """Restarts the agent of a cluster: it renews its lease and reports the cluster as available."""
        self._stopped.discard(name)
        await self._renew_one(name)
        await self._report(name, (AVAILABLE, "ManagedClusterAvailable"))

    async def close(self) -> None:
        if self._renewing is not None:
            await cancel([self._renewing])

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEWAL)
            for name in self._joined.keys() - self._stopped:
                with contextlib.suppress(ApiError):  # the hub may not have created the lease yet
                    await self._renew_one(name)

    async def _renew_one(self, name: str) -> None:
        if name not in self._stopped:
            await self._client.patch(LEASES, LEASE, {"spec": {"renewTime": format_micro_time(time.time())}}, name)

    async def _report(self, name: str, *true: tuple[str, str]) -> None:
        """Sets conditions to true and keeps other types."""
        resource, types = self._joined[name], {type for type, _ in true}
        now = format_time(time.time())
        found = await self._client.get(resource, name)
        conditions = [
            each for each in (found.get("status") or {}).get("conditions") or () if each.get("type") not in types
        ]
        for type, reason in true:
            made = {"type": type, "status": "True", "reason": reason, "message": "", "lastTransitionTime": now}
            conditions.append(made)
        await self._client.patch(resource, name, {"status": {"conditions": conditions}}, subresource="status")


def _windows(document: Document) -> list[Document]:
    """The well-formed time windows of a placement."""
    text = ((document.get("metadata") or {}).get("annotations") or {}).get(TIME_WINDOWS)
    if not isinstance(text, str):
        return []
    try:
        windows = msgspec.json.decode(text)["windows"]
    except (msgspec.DecodeError, KeyError, TypeError):
        return []
    return [
        window
        for window in (windows if isinstance(windows, list) else ())
        if isinstance(window, dict)
        and all(isinstance(window.get(key), str) and _TIME_OF_DAY.fullmatch(window[key]) for key in ("start", "end"))
    ]
