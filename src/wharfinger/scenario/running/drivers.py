"""Simulated storage drivers on a running cluster: volumes of classes whose driver exists only in the scenario are
created and deleted here, as the driver's provisioner would; the cluster's own controllers bind them to claims."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection
from typing import Any, TypeVar

from wharfinger.api.errors import AlreadyExists, ApiError, Conflict
from wharfinger.api.kinds.builtin import (
    CSI_DRIVERS,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
)
from wharfinger.api.quantity import family, format_nano, parse_nano
from wharfinger.api.registry import Document, Resource
from wharfinger.api.times import parse_duration
from wharfinger.api.views import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from wharfinger.client.events import EventRecorder
from wharfinger.client.http import HttpClient
from wharfinger.client.tasks import cancel
from wharfinger.client.timers import SystemClock
from wharfinger.controllers.provision_faults import PROVISIONING, PROVISIONING_TIME, ProvisionFaults
from wharfinger.controllers.volumes.provisioner import (
    POOL,
    PROVISIONED_BY,
    CannotProvision,
    Provisioned,
    Storage,
    provision,
)
from wharfinger.plugins.volumes.rules import SELECTED_NODE, capacity_of, class_of_claim, size_of, waits_for_consumer
from wharfinger.scenario.running.client import Footprint

log = logging.getLogger(__name__)

T = TypeVar("T")
_POLL = 0.3


class Drivers:
    """One for each scenario; simulates the drivers with these names."""

    def __init__(self, client: HttpClient, names: Collection[str], footprint: Footprint) -> None:
        self.faults = ProvisionFaults()
        self._client = client
        self._names = names
        self._footprint = footprint
        self._recorder = EventRecorder(client, "wharf-test", SystemClock())
        self._since: dict[str, float] = {}  # by uid of a claim: when its volume was first requested
        self._working: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._names:
            self._recorder.start()
            self._working = asyncio.create_task(self._run(), name="storage drivers")

    async def close(self) -> None:
        if self._working is not None:
            await cancel([self._working])
            await self._recorder.stop()

    async def _run(self) -> None:
        while True:
            try:
                await self._look()
            except ApiError as error:
                log.info(
                    "the played storage drivers: %s", error
                )  # usually a conflict: the next pass sees the current state
            await asyncio.sleep(_POLL)

    async def _look(self) -> None:
        classes = await self._all(STORAGE_CLASSES, StorageClass)
        for claim in (await self._all(PERSISTENT_VOLUME_CLAIMS, PersistentVolumeClaim)).values():
            storage_class = classes.get(("", class_of_claim(claim)))
            if storage_class is not None and storage_class.provisioner in self._names and _is_asked_for(claim):
                selected = claim.metadata.annotations.get(SELECTED_NODE)
                if selected is not None or not waits_for_consumer(storage_class):
                    await self._serve(claim, storage_class, selected)
        for volume in (await self._all(PERSISTENT_VOLUMES, PersistentVolume)).values():
            if volume.metadata.annotations.get(PROVISIONED_BY) in self._names and _is_left(volume):
                await self._remove(volume)

    async def _serve(self, claim: PersistentVolumeClaim, storage_class: StorageClass, selected: str | None) -> None:
        told = {**storage_class.metadata.annotations, **claim.metadata.annotations}
        needed = told.get(PROVISIONING_TIME) or "0s"
        since = self._since.setdefault(claim.metadata.uid, time.monotonic())
        if needed == "never" or time.monotonic() < since + parse_duration(needed):
            return
        try:
            if told.get(PROVISIONING) == "fail" or self.faults.fails():
                raise CannotProvision("the provisioner was told to fail")
            made = provision(claim, storage_class, selected, await self._storage())
        except CannotProvision as why:
            message = f'failed to provision volume with StorageClass "{storage_class.metadata.name}": {why}'
            self._recorder.event(PERSISTENT_VOLUME_CLAIMS, claim, "Warning", "ProvisioningFailed", message)
            if selected is not None:
                await self._give_back(claim, selected)
            return
        await self._make(claim, made)

    async def _give_back(self, claim: PersistentVolumeClaim, selected: str) -> None:
        """Lets the scheduler choose another node. The controllers of the cluster may write the claim at the same time."""
        own = claim.metadata
        while claim.metadata.uid == own.uid and claim.metadata.annotations.get(SELECTED_NODE) == selected:
            version = claim.metadata.resource_version
            change = {"metadata": {"resourceVersion": version, "annotations": {SELECTED_NODE: None}}}
            try:
                await self._client.patch(PERSISTENT_VOLUME_CLAIMS, own.name, change, own.namespace)
                return
            except Conflict:
                claim = await self._client.get(
                    PERSISTENT_VOLUME_CLAIMS, own.name, own.namespace, view=PersistentVolumeClaim
                )

    async def _make(self, claim: PersistentVolumeClaim, made: Provisioned) -> None:
        try:
            written = await self._client.create(PERSISTENT_VOLUMES, made.volume)
        except AlreadyExists:
            return  # created in an earlier pass; the claim is about to be bound
        self._footprint.create(PERSISTENT_VOLUMES, written)
        # A claim of a StatefulSet outlives it and keeps its volume.
        own = claim.metadata
        self._footprint.made.setdefault((PERSISTENT_VOLUME_CLAIMS, own.namespace, own.name), own.uid)
        if made.pool is not None:
            await self._change(made.pool, -size_of(claim))
        message = f"Successfully provisioned volume {written['metadata']['name']}"
        self._recorder.event(PERSISTENT_VOLUME_CLAIMS, claim, "Normal", "ProvisioningSucceeded", message)

    async def _remove(self, volume: PersistentVolume) -> None:
        own = volume.metadata
        namespace, _, name = own.annotations.get(POOL, "").partition("/")
        await self._client.delete(PERSISTENT_VOLUMES, own.name, uid=own.uid)
        if name:
            pools = await self._all(CSI_STORAGE_CAPACITIES, CSIStorageCapacity)
            if pool := pools.get((namespace, name)):
                await self._change(pool, capacity_of(volume))

    async def _change(self, pool: CSIStorageCapacity, by: int) -> None:
        """Changes the free capacity of a pool by so many nano-bytes. Nobody else changes pools of simulated drivers."""
        if pool.capacity is None:
            return
        left: Document = {"capacity": format_nano(max(parse_nano(pool.capacity) + by, 0), family(pool.capacity))}
        await self._client.patch(CSI_STORAGE_CAPACITIES, pool.metadata.name, left, pool.metadata.namespace)

    async def _storage(self) -> Storage:
        return Storage(
            await self._all(NODES, Node),
            await self._all(CSI_NODES, CSINode),
            await self._all(CSI_DRIVERS, CSIDriver),
            await self._all(CSI_STORAGE_CAPACITIES, CSIStorageCapacity),
        )

    async def _all(self, resource: Resource, view: type[T]) -> dict[tuple[str, str], T]:
        found: list[Any] = list((await self._client.list(resource, view=view)).items)
        return {each.metadata.key: each for each in found}


def _is_asked_for(claim: PersistentVolumeClaim) -> bool:
    return not claim.spec.volume_name and not claim.metadata.deletion_timestamp


def _is_left(volume: PersistentVolume) -> bool:
    """Whether its claim is deleted, and the volume must be deleted with it."""
    reclaimed = volume.spec.persistent_volume_reclaim_policy == "Delete"
    return reclaimed and volume.status.phase == "Released" and not volume.metadata.deletion_timestamp
