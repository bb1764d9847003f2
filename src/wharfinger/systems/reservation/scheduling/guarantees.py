"""Preemption guarantees: the room that victims free is reserved for the preemptor before they are evicted."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from copy import deepcopy

from wharfinger.api.errors import ApiError, NotFound
from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.registry import Document
from wharfinger.api.resources import requests
from wharfinger.api.views import Pod
from wharfinger.client.interface import Client
from wharfinger.framework.tables import Tables
from wharfinger.scheduler.schedulable import KeptRoom, ObjectCache
from wharfinger.systems.reservation.kinds.names import RESERVATIONS
from wharfinger.systems.reservation.kinds.views import Reservation
from wharfinger.systems.reservation.plugin.ledger import ReservationLedger
from wharfinger.systems.reservation.rules.reservations import PREEMPTOR, guarantee_name

log = logging.getLogger(__name__)

TTL = "10m"
GUARANTEE_SECONDS = 30.0  # how long evictions wait for the reservation to be bound


_OMITTED_FIELDS = (
    "priority",
    "priorityClassName",
    "preemptionPolicy",
    "topologySpreadConstraints",
    "schedulingGates",
    "volumes",
)


class Guarantees:
    """Creates and tracks the reservations for preemptors."""

    def __init__(
        self,
        client: Client,
        tables: Tables,
        ledger: ReservationLedger,
        reservations: ObjectCache[Reservation] | None,
    ) -> None:
        self._client = client
        self._tables = tables
        self._ledger = ledger
        self._reservations = reservations
        self._awaited: dict[str, asyncio.Future[bool]] = {}  # by reservation name; the result is whether it was bound

    def given_to(self, pod: Pod) -> bool:
        """Whether room is reserved, or about to be, for this preemptor."""
        found = self._existing(guarantee_name(pod.metadata.uid))
        return found is not None and not found.ended and not found.terminating

    def _existing(self, name: str) -> Reservation | None:
        return self._reservations.get(name) if self._reservations is not None else None

    async def give(self, pod: Pod, node: str) -> KeptRoom:
        """Reserve room on the node for a preemptor before its victims are evicted."""
        if self._reservations is None:
            return KeptRoom.OPEN
        if not self._fits(pod, node):
            # The pod fits only inside a reservation it owns there, and what is freed inside goes back to that
            # reservation.
            return KeptRoom.OPEN
        name, aligned = guarantee_name(pod.metadata.uid), any(self._ledger.policies_on(self._tables.row_of[node]))
        result = self._awaited[name] = asyncio.get_running_loop().create_future()
        try:
            document = await self._client.get(PODS, pod.metadata.name, pod.metadata.namespace)
            await self._delete_ended(name)
            await self._client.create(RESERVATIONS, guarantee(document, node, aligned=aligned))
            if await asyncio.wait_for(result, GUARANTEE_SECONDS):
                return KeptRoom.RESERVED
        except TimeoutError:
            pass
        except ApiError as error:
            log.warning("cannot reserve room for preemptor %s/%s on node %s: %s", *pod.metadata.key, node, error)
            return KeptRoom.OPEN
        finally:
            self._awaited.pop(name, None)
        log.info(
            "no room reserved for preemptor %s/%s: its reservation was not bound to node %s", *pod.metadata.key, node
        )
        with suppress(ApiError):
            await self._client.delete(RESERVATIONS, name)
        return KeptRoom.OPEN if self._fits(pod, node) else KeptRoom.TAKEN

    def _fits(self, pod: Pod, node: str) -> bool:
        row = self._tables.row_of.get(node)
        return row is not None and self._ledger.fits_beside(row, requests(pod))

    async def _delete_ended(self, name: str) -> None:
        """Delete an ended guarantee of the same pod, so that a new one can be created."""
        found = self._existing(name)
        if found is not None and found.ended:
            with suppress(NotFound):
                await self._client.delete(RESERVATIONS, name, uid=found.metadata.uid)

    def settle(self, name: str, *, holds: bool) -> None:
        """Report whether the reservation of this name was bound."""
        awaited = self._awaited.get(name)
        if awaited is not None and not awaited.done():
            awaited.set_result(holds)


def guarantee(pod: Document, node: str, *, aligned: bool) -> Document:
    """A pre-allocation on the node for one pod.

    Inter-pod affinity, topology spread, host ports and volumes are left out: they may exclude the pod while the victims
    are running, and are checked when the pod itself is scheduled.
    """
    metadata = pod["metadata"]
    spec = {name: deepcopy(value) for name, value in pod["spec"].items() if name not in _OMITTED_FIELDS}
    spec["nodeName"] = node
    affinity = spec.get("affinity") or {}
    for side in ("podAffinity", "podAntiAffinity"):
        affinity.pop(side, None)
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        container.pop("ports", None)
    made: Document = {
        "template": {
            "metadata": {"namespace": metadata["namespace"], "labels": dict(metadata.get("labels") or {})},
            "spec": spec,
        },
        "owners": [{"object": {"namespace": metadata["namespace"], "name": metadata["name"], "uid": metadata["uid"]}}],
        "ttl": TTL,
        "preAllocation": True,
        "allocateOnce": True,
    }
    if aligned:
        made["allocatePolicy"] = "Aligned"
    return {
        "apiVersion": RESERVATIONS.api_version,
        "kind": RESERVATIONS.kind,
        "metadata": {"name": guarantee_name(metadata["uid"]), "labels": {PREEMPTOR: metadata["uid"]}},
        "spec": made,
    }
