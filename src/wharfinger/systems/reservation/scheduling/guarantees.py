"""Preemption guarantees: the room that victims free is reserved for the preemptor before they are evicted.

A guarantee ends soon after its victims should have stopped; while they are still stopping, the controller of reservations
renews it. One whose victims nobody evicts is given up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from copy import deepcopy

from wharfinger.api.errors import ApiError, NotFound
from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.registry import Document
from wharfinger.api.resources import requests
from wharfinger.api.views import Pod
from wharfinger.client.interface import Client
from wharfinger.framework.tables import Tables
from wharfinger.scheduler.instructions import Instruction, PatchStatus
from wharfinger.scheduler.schedulable import KeptRoom, ObjectCache
from wharfinger.systems.reservation.kinds.names import RESERVATIONS
from wharfinger.systems.reservation.kinds.views import Reservation
from wharfinger.systems.reservation.plugin.ledger import ReservationLedger
from wharfinger.systems.reservation.rules.conditions import EXPIRED, probed_condition, with_condition
from wharfinger.systems.reservation.rules.reservations import GUARANTEE_SLACK, PREEMPTOR, guarantee_name, is_guarantee

log = logging.getLogger(__name__)

DEFAULT_GRACE_PERIOD = 30  # seconds
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
        self._victims: dict[str, Sequence[Pod]] = {}  # by name of the guarantee
        self._awaited: dict[str, asyncio.Future[bool]] = {}  # by reservation name; the result is whether it was bound

    def given_to(self, pod: Pod) -> bool:
        """Whether room is being made for this preemptor and reserved for it, so that it evicts nobody else."""
        found = self._existing(guarantee_name(pod.metadata.uid))
        if found is None or found.ended or found.terminating:
            return False
        # If it is available and all victims are gone but the pod still does not fit, it may preempt with it.
        return found.phase != "Available" or self._is_being_made(found)

    def _is_being_made(self, guarantee: Reservation) -> bool:
        """Whether victims are still there. After a restart they are not known; then every pod that stops counts."""
        row = self._tables.row_of.get(guarantee.status.node_name)
        if row is None:
            return False
        victims = {each.metadata.uid for each in self._victims.get(guarantee.metadata.name, ())}
        there = self._tables.pods_on[row].values()
        return any(each.terminating or each.pod.metadata.uid in victims for each in there)

    def forget(self, name: str) -> None:
        """The reservation of this name has ended."""
        self._victims.pop(name, None)

    def synced(self) -> Iterable[Instruction]:
        """Give up the guarantees whose victims another scheduler was about to evict, so that the preemptors try anew."""
        for each in self._reservations or ():
            if not is_guarantee(each) or each.ended or each.terminating or each.phase == "Available":
                continue
            holding = self._ledger.holdings.get(each.metadata.uid)
            if holding is None or not self._ledger.fits_without_terminating(holding):
                yield PatchStatus(RESERVATIONS, Reservation, each.metadata.name, _given_up(each.metadata.uid))

    def _existing(self, name: str) -> Reservation | None:
        return self._reservations.get(name) if self._reservations is not None else None

    async def give(self, pod: Pod, node: str, victims: Sequence[Pod]) -> KeptRoom:
        """Reserve room on the node for a preemptor before its victims are evicted."""
        if self._reservations is None:
            return KeptRoom.OPEN
        name = guarantee_name(pod.metadata.uid)
        existing = self._existing(name)
        if existing is not None and existing.phase == "Available" and not existing.terminating:
            if existing.status.node_name == node:
                self._victims[name] = victims
                return KeptRoom.RESERVED
            await self.take_back(pod)
        if not self._fits(pod, node):
            # The pod fits only inside a reservation it owns there, and what is freed inside goes back to that
            # reservation.
            return KeptRoom.OPEN
        aligned = any(self._ledger.policies_on(self._tables.row_of[node]))
        result = self._awaited[name] = asyncio.get_running_loop().create_future()
        try:
            document = await self._client.get(PODS, pod.metadata.name, pod.metadata.namespace)
            await self._delete_ended(name)
            await self._client.create(RESERVATIONS, guarantee(document, node, victims, aligned=aligned))
            if await asyncio.wait_for(result, GUARANTEE_SECONDS):
                self._victims[name] = victims
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
        await self.take_back(pod)
        return KeptRoom.OPEN if self._fits(pod, node) else KeptRoom.TAKEN

    async def take_back(self, pod: Pod) -> None:
        """Delete the guarantee of a preemptor, because its victims are not evicted."""
        with suppress(ApiError):
            await self._client.delete(RESERVATIONS, guarantee_name(pod.metadata.uid))

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


def _given_up(uid: str) -> Callable[[Reservation, float], Document | None]:
    def change(found: Reservation, now: float) -> Document | None:
        if found.metadata.uid != uid or found.phase not in ("Pending", "Waiting"):
            return None
        message = "given up: the scheduler was restarted before the pods were preempted"
        ended = probed_condition("Ready", False, EXPIRED, message, now)
        return {"phase": "Failed", "conditions": with_condition(found.status.conditions, ended)}

    return change


def guarantee(pod: Document, node: str, victims: Sequence[Pod], *, aligned: bool) -> Document:
    """A pre-allocation on the node for one pod. It lasts as long as the victims may take to stop, and a little longer.

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
        "ttl": f"{int(max(map(_grace_period, victims), default=0) + GUARANTEE_SLACK)}s",
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


def _grace_period(victim: Pod) -> int:
    """How long a victim may take to stop. One that is terminating already needs no more."""
    given = victim.metadata.deletion_grace_period_seconds
    if given is None:
        given = victim.spec.termination_grace_period_seconds
    return DEFAULT_GRACE_PERIOD if given is None else given
