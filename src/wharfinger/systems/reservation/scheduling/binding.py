"""Binds a reservation: the status patch that sets its node, and the writes that must precede it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial

from wharfinger.api.errors import ApiError, Conflict, NotFound
from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.views import ObjectMeta
from wharfinger.client.interface import Client
from wharfinger.client.timers import Clock
from wharfinger.framework.stand_ins import StandIn
from wharfinger.scheduler.confirmation import took_effect
from wharfinger.scheduler.object_statuses import TRIES, patch_object_status
from wharfinger.systems.reservation.kinds.names import RESERVATIONS
from wharfinger.systems.reservation.kinds.views import Reservation
from wharfinger.systems.reservation.plugin.ledger import ReservationPlacement
from wharfinger.systems.reservation.rules.reservations import ALLOCATED, allocation_text, is_mover
from wharfinger.systems.reservation.scheduling.status import available

log = logging.getLogger(__name__)


async def bind_reservation(
    client: Client,
    clock: Clock,
    item: StandIn,
    node: str,
    placement: ReservationPlacement,
    annotations: Mapping[str, str],
) -> int:
    """Bind a reservation to a node, and return its version on the node. Raises ApiError; Conflict means the reservation must
    be scheduled again.

    `annotations` are those that plugins put on a Binding, such as device allocations. They are written to the
    reservation, for the pods that will use it.
    """
    record = allocation_text(item.object_name, item.metadata.uid)
    try:
        for pod in placement.adopted:
            await _annotate(client, pod, record)
        if annotations:
            patch = {"metadata": {"uid": item.metadata.uid, "annotations": dict(annotations)}}
            await client.patch(RESERVATIONS, item.object_name, patch)
        return await _write_node(client, clock, item, node, placement.phase)
    except ApiError as error:
        version = await took_effect(error, partial(version_on, client, item, node))
        if version is not None:
            return version
        for pod in placement.adopted:
            await _release(client, pod)
        raise


async def version_on(client: Client, item: StandIn, node: str) -> int | None:
    """The version that the API server has of the reservation if that is on the node; None if it is not. Raises ApiError."""
    found = await client.get(RESERVATIONS, item.object_name, view=Reservation)
    is_on = found.metadata.uid == item.metadata.uid and found.holds and found.status.node_name == node
    return int(found.metadata.resource_version) if is_on else None


async def _annotate(client: Client, pod: ObjectMeta, record: str | None) -> None:
    patch = {"metadata": {"uid": pod.uid, "annotations": {ALLOCATED: record}}}
    await client.patch(PODS, pod.name, patch, pod.namespace)


async def _release(client: Client, pod: ObjectMeta) -> None:
    try:
        await _annotate(client, pod, None)
    except ApiError as error:
        log.info(
            "pod %s/%s keeps the allocation annotation of a reservation that failed to bind: %s",
            pod.namespace,
            pod.name,
            error,
        )


async def _write_node(client: Client, clock: Clock, item: StandIn, node: str, phase: str) -> int:
    name = item.object_name
    for attempt in range(TRIES):
        found = await client.get(RESERVATIONS, name, view=Reservation)
        if found.metadata.uid != item.metadata.uid or found.terminating:
            raise NotFound(
                f'reservations.scheduling.koordinator.sh "{name}" was deleted or replaced while it was being scheduled'
            )
        if found.phase != ("Waiting" if is_mover(item) else "Pending"):
            raise Conflict(f"reservation {name} is already {found.phase}")
        if found.metadata.generation != item.metadata.generation:
            raise Conflict(f"reservation {name} was changed while it was being scheduled")
        try:
            return await patch_object_status(client, RESERVATIONS, found, available(found, node, phase, clock.now()))
        except Conflict:
            # A concurrent update, possibly our own Scheduled condition; retry with the new version.
            if attempt == TRIES - 1:
                raise
    raise AssertionError("unreachable")
