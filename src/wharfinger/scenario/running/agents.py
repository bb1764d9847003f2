"""The agents of managed clusters on a real hub: simulated clusters have none, so a scenario's clusters join, renew their
leases and fall silent here, as the agents of real ones would."""

from __future__ import annotations

import asyncio
import contextlib
import time

from wharfinger.api.errors import ApiError, NotFound
from wharfinger.api.kinds.builtin import LEASES
from wharfinger.api.registry import Document, Resource
from wharfinger.api.times import format_micro_time, format_time
from wharfinger.client.http import HttpClient
from wharfinger.systems.placement.controllers.clusters import AVAILABLE, JOINED, LEASE

RENEWAL = 0.5  # seconds between renewals


class Agents:
    """One for each scenario. They report through the administrator's client."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client
        self._joined: dict[str, Resource] = {}
        self._stopped: set[str] = set()
        self._renewing: asyncio.Task[None] | None = None

    async def join(self, resource: Resource, cluster: Document) -> None:
        """What an agent does when its cluster joins."""
        name = str(cluster["metadata"]["name"])
        with contextlib.suppress(NotFound):
            await self._client.delete(LEASES, LEASE, name)  # of a cluster of that name in an earlier scenario
        if "hubAcceptsClient" not in (cluster.get("spec") or {}):
            await self._client.patch(resource, name, {"spec": {"hubAcceptsClient": True}})
        self._joined[name] = resource
        await self._report(name, (JOINED, "ManagedClusterJoined"), (AVAILABLE, "ManagedClusterAvailable"))
        if self._renewing is None:
            self._renewing = asyncio.create_task(self._renew(), name="agents of clusters")

    async def stop(self, name: str) -> None:
        self._stopped.add(name)

    async def start(self, name: str) -> None:
        """Like an agent that is started again: it renews its lease, and reports that the cluster is well."""
        self._stopped.discard(name)
        await self._renew_one(name)
        await self._report(name, (AVAILABLE, "ManagedClusterAvailable"))

    async def close(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEWAL)
            for name in self._joined.keys() - self._stopped:
                with contextlib.suppress(ApiError):  # the hub may not have made the lease yet
                    await self._renew_one(name)

    async def _renew_one(self, name: str) -> None:
        if name not in self._stopped:
            await self._client.patch(LEASES, LEASE, {"spec": {"renewTime": format_micro_time(time.time())}}, name)

    async def _report(self, name: str, *true: tuple[str, str]) -> None:
        """Sets conditions; others that the hub or the scenario gave the cluster stay."""
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
