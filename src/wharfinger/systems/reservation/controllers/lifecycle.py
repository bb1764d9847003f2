"""The lifecycle of reservations after scheduling: consumers, expiry, lost nodes and garbage collection.

The scheduler sets the phases Pending, Waiting and Available; this controller sets Succeeded and Failed. All state is
read from the API server, so the controller can be restarted at any time.
"""

from __future__ import annotations

import logging

from wharfinger.api.errors import NotFound
from wharfinger.api.kinds.builtin import NODES, PODS
from wharfinger.api.registry import Document
from wharfinger.api.times import BadTime, parse_time
from wharfinger.api.views import Node, Pod
from wharfinger.client.controller import Controller
from wharfinger.controllers.context import ControllerContext
from wharfinger.systems.reservation.controllers.status import ReservationUse, deletable_at, stops_at, use_of, used
from wharfinger.systems.reservation.kinds.names import RESERVATIONS
from wharfinger.systems.reservation.kinds.views import Reservation
from wharfinger.systems.reservation.rules.conditions import EXPIRED, SUCCEEDED, probed_condition, with_condition
from wharfinger.systems.reservation.rules.reservations import (
    GUARANTEE_SLACK,
    PREEMPTOR,
    BadReservation,
    allocation_of,
    expires_at,
    is_guarantee,
    uses,
)
from wharfinger.systems.reservation.settings import ReservationSettings

log = logging.getLogger(__name__)

_SWEEP = ""  # queue key of garbage collection; no reservation has an empty name


class ReservationController(Controller[str]):
    name = "reservation"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(observer=context.observer)
        self._context = context
        self._client = context.client
        self._settings = context.configuration.of(ReservationSettings)
        self._reservations = context.informers.of(RESERVATIONS, Reservation)
        self._pods = context.pods
        self._nodes = context.nodes
        self._by_use = self._pods.index("reservation used", lambda pod: [uid] if (uid := uses(pod)) else [])
        self._by_record = self._pods.index("reservation recorded", _recorded)
        self._terminating_on = self._pods.index(
            "terminating on node", lambda pod: [pod.spec.node_name] if pod.terminating else []
        )
        self._by_node = self._reservations.index(
            "node", lambda each: [each.status.node_name] if each.status.node_name else []
        )
        self._by_preemptor = self._reservations.index(
            "preemptor", lambda each: [uid] if (uid := each.metadata.labels.get(PREEMPTOR)) else []
        )
        self._by_uid = self._reservations.index("uid", lambda each: [each.metadata.uid])
        self._reservations.add_handler(self._enqueue, lambda old, new: self._enqueue(new))
        self._pods.add_handler(self._pod_changed, self._pod_updated, self._pod_changed, while_any=self._reservations)
        self._nodes.add_handler(on_delete=self._node_gone)

    async def prepare(self) -> None:
        if self._settings.gc_seconds > 0:
            self.queue.add_after(_SWEEP, self._settings.gc_interval_seconds, background=True)

    # -- event handlers

    def _enqueue(self, reservation: Reservation) -> None:
        self.queue.add(reservation.metadata.name)

    def _pod_updated(self, old: Pod, new: Pod) -> None:
        if uses(old) != uses(new) or old.spec != new.spec or old.terminal != new.terminal:
            self._pod_changed(old)
            self._pod_changed(new)

    def _pod_changed(self, pod: Pod) -> None:
        uid = uses(pod)
        for reservation in (*(self._by_uid.get(uid) if uid else ()), *self._by_preemptor.get(pod.metadata.uid)):
            self.queue.add(reservation.metadata.name)

    def _node_gone(self, node: Node) -> None:
        for reservation in self._by_node.get(node.metadata.name):
            self.queue.add(reservation.metadata.name)

    # -- reconciling a reservation

    async def reconcile(self, key: str) -> None:
        if key == _SWEEP:
            await self._sweep()
            self.queue.add_after(_SWEEP, self._settings.gc_interval_seconds, background=True)
            return
        reservation = self._reservations.get(key)
        if reservation is None or reservation.ended:
            return
        if await self._expire(reservation) or await self._fail_without_node(reservation):
            return
        if reservation.metadata.labels.get(PREEMPTOR) and await self._is_obsolete(reservation):
            await self._client.delete(RESERVATIONS, reservation.metadata.name, uid=reservation.metadata.uid)
            return
        if reservation.phase == "Available":
            await self._record_use(reservation)

    async def _expire(self, reservation: Reservation) -> bool:
        try:
            moment = expires_at(reservation)
        except (BadTime, BadReservation) as fault:
            log.warning("reservation %s: %s", reservation.metadata.name, fault)
            return False
        if moment is None:
            return False
        now = self._context.now()
        # A guarantee is renewed before its deadline, so that some of the slack is left when the victims have stopped.
        renewal = moment - GUARANTEE_SLACK / 2 if is_guarantee(reservation) else moment
        if now > renewal and await self._renew(reservation, now):
            return False
        if now <= moment:
            # A reservation expires only after the deadline, not exactly at it.
            next_step = renewal if now <= renewal else moment
            self.queue.add_after(reservation.metadata.name, next_step - now + 0.001, background=True)
            return False
        await self._fail(reservation, "reservation expired")
        return True

    async def _renew(self, reservation: Reservation, now: float) -> bool:
        """Extend a preemption guarantee whose victims are still stopping; returns whether it was extended. Other
        reservations are never extended."""
        if not is_guarantee(reservation) or reservation.phase != "Waiting":
            return False
        ends = [stops_at(pod, now) for pod in self._terminating_on.get(reservation.status.node_name)]
        if not ends:
            return False
        age = max(ends) - parse_time(reservation.metadata.creation_timestamp)
        metadata = {"resourceVersion": reservation.metadata.resource_version, "uid": reservation.metadata.uid}
        patch = {"metadata": metadata, "spec": {"ttl": f"{int(age + GUARANTEE_SLACK)}s"}}
        await self._client.patch(RESERVATIONS, reservation.metadata.name, patch)
        return True

    async def _fail_without_node(self, reservation: Reservation) -> bool:
        node = reservation.status.node_name
        if not reservation.holds or self._nodes.get(node) is not None:
            return False
        if not await self._is_missing(node):
            return False
        await self._fail(reservation, f"node {node} is gone")
        return True

    async def _is_missing(self, node: str) -> bool:
        """Whether the node does not exist. Asks the API server, because the informer may lag behind a new node."""
        try:
            await self._client.get(NODES, node, view=Node)
        except NotFound:
            return True
        return False

    async def _is_obsolete(self, reservation: Reservation) -> bool:
        """Whether the preemptor of a guarantee is gone or was bound without using it."""
        uid = reservation.metadata.labels[PREEMPTOR]
        owner = next((each.object for each in reservation.spec.owners if each.object is not None), None)
        if owner is None:
            return False
        try:
            pod = await self._client.get(PODS, owner.name, owner.namespace, view=Pod)
        except NotFound:
            return True
        if pod.metadata.uid != uid or pod.terminal or pod.terminating:
            return True
        return bool(pod.spec.node_name) and uses(pod) != reservation.metadata.uid

    async def _fail(self, reservation: Reservation, message: str) -> None:
        ended = probed_condition("Ready", False, EXPIRED, message, self._context.now())
        await self._write(
            reservation, {"phase": "Failed", "conditions": with_condition(reservation.status.conditions, ended)}
        )
        self._context.recorder.event(RESERVATIONS, reservation, "Warning", EXPIRED, message)

    async def _record_use(self, reservation: Reservation) -> None:
        consumers = self._by_use.get(reservation.metadata.uid)
        if reservation.once and not consumers:
            consumers = self._by_record.get(reservation.metadata.uid)  # one that has finished already used it up, too
        use = use_of(reservation, consumers)
        if use.is_stated(reservation):
            return
        if reservation.once and not use.owners:
            # allocateOnce was set while the reservation was in use, and its consumers have left since: keep them on
            # record.
            use = ReservationUse.stated(reservation)
        names = ", ".join(f"{owner['namespace']}/{owner['name']}" for owner in use.owners)
        ended = probed_condition("Ready", False, SUCCEEDED, f"used by {names}", self._context.now())
        await self._write(reservation, used(reservation, use, with_condition(reservation.status.conditions, ended)))
        if reservation.once:
            self._context.recorder.event(RESERVATIONS, reservation, "Normal", SUCCEEDED, f"used by {names}")

    async def _write(self, reservation: Reservation, status: Document) -> None:
        """Patch the status. Fails with a conflict if the reservation was modified; it is then reconciled again."""
        metadata = {
            "resourceVersion": reservation.metadata.resource_version,
            "uid": reservation.metadata.uid,
        }
        patch = {"metadata": metadata, "status": status}
        await self._client.patch(RESERVATIONS, reservation.metadata.name, patch, subresource="status")

    # -- garbage collection

    async def _sweep(self) -> None:
        now = self._context.now()
        for reservation in self._reservations:
            node = reservation.status.node_name
            missing = bool(node) and reservation.ended and self._nodes.get(node) is None
            moment = deletable_at(reservation, self._settings.gc_seconds, node_missing=missing)
            if moment is None or moment > now or reservation.terminating:
                continue
            if missing and not await self._is_missing(node):
                continue
            try:
                await self._client.delete(RESERVATIONS, reservation.metadata.name, uid=reservation.metadata.uid)
            except NotFound:
                continue


def _recorded(pod: Pod) -> list[str]:
    """The uid of the reservation that a pod used, whether or not it has finished."""
    found = allocation_of(pod.metadata) if pod.spec.node_name else None
    return [] if found is None else [found.uid]
