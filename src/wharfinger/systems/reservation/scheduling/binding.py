"""Binding a reservation: the status patch that gives it its node, and what must be written before."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from wharfinger.api.errors import ApiError, Conflict, NotFound
from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.views import ObjectMeta
from wharfinger.client.interface import Client
from wharfinger.client.timers import Clock
from wharfinger.framework.stand_ins import StandIn
from wharfinger.scheduler.object_statuses import TRIES, patch_object_status
from wharfinger.systems.reservation.kinds.names import RESERVATIONS
from wharfinger.systems.reservation.kinds.views import Reservation
from wharfinger.systems.reservation.plugin.ledger import ReservationPlacement
from wharfinger.systems.reservation.rules.reservations import ALLOCATED, allocation_text
from wharfinger.systems.reservation.scheduling.status import available

log = logging.getLogger(__name__)


async def bind_reservation(
    client: Client,
    clock: Clock,
    item: StandIn,
    node: str,
    placement: ReservationPlacement,
    annotations: Mapping[str, str],
) -> None:
    """Raises ApiError; Conflict when the reservation must be scheduled again. `annotations` are what other plugins put on
    a Binding, such as devices: they go onto the reservation, for the pods that will use it."""
    record = allocation_text(item.object_name, item.metadata.uid)
    try:
        for pod in placement.adopted:
            await _annotate(client, pod, record)
        if annotations:
            patch = {"metadata": {"uid": item.metadata.uid, "annotations": dict(annotations)}}
            await client.patch(RESERVATIONS, item.object_name, patch)
        await _write_node(client, clock, item, node, placement.phase)
    except ApiError:
        for pod in placement.adopted:
            await _release(client, pod)
        raise


async def _annotate(client: Client, pod: ObjectMeta, record: str | None) -> None:
    patch = {"metadata": {"uid": pod.uid, "annotations": {ALLOCATED: record}}}
    await client.patch(PODS, pod.name, patch, pod.namespace)


async def _release(client: Client, pod: ObjectMeta) -> None:
    try:
        await _annotate(client, pod, None)
    except ApiError as error:
        log.info("pod %s/%s keeps the record of a reservation that was not bound: %s", pod.namespace, pod.name, error)


async def _write_node(client: Client, clock: Clock, item: StandIn, node: str, phase: str) -> None:
    name = item.object_name
    for attempt in range(TRIES):
        found = await client.get(RESERVATIONS, name, view=Reservation)
        if found.metadata.uid != item.metadata.uid or found.terminating:
            raise NotFound(f'reservations.scheduling.koordinator.sh "{name}" is not the one that was scheduled')
        if found.phase != "Pending":
            raise Conflict(f"reservation {name} is {found.phase} by now")
        if found.metadata.generation != item.metadata.generation:
            raise Conflict(f"reservation {name} was changed while it was scheduled")
        try:
            await patch_object_status(client, RESERVATIONS, found, available(found, node, phase, clock.now()))
            return
        except Conflict:
            # Somebody else, or our own report on why it had to wait, was faster.
            if attempt == TRIES - 1:
                raise
