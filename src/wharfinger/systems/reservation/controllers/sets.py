"""Maintains the reservations of a ReservationSet. They are numbered, so that none is created twice.

The numbers of used ones are kept in the status, because garbage collection deletes used reservations. A set that is used
up or has expired is deleted in the same way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from copy import deepcopy

import msgspec

from wharfinger.admission.requesters import REQUESTER
from wharfinger.api.conditions import find_condition, new_condition, set_condition
from wharfinger.api.errors import AlreadyExists, ApiError, NotFound
from wharfinger.api.object_meta import controller_reference
from wharfinger.api.registry import Document
from wharfinger.api.times import format_time, parse_time
from wharfinger.api.views import ObjectMeta, view
from wharfinger.controllers.context import ContextController, ControllerContext
from wharfinger.controllers.status_patches import patch_status
from wharfinger.systems.reservation.kinds.names import RESERVATION_SETS, RESERVATIONS
from wharfinger.systems.reservation.kinds.views import Reservation, ReservationSpec
from wharfinger.systems.reservation.rules.number_ranges import numbers_in, ranges_text
from wharfinger.systems.reservation.rules.reservations import DEFAULT_TTL, INNER, RESTRICTED_OPTIONS, ttl_seconds
from wharfinger.systems.reservation.settings import ReservationSettings

SET_LABEL = "wharfinger.dev/reservation-set"
_SET_FIELDS = ("replicas", "replaceUsed", "ttl", "expires")  # fields of the set that are not copied to its reservations
_COPIED_ANNOTATIONS = (INNER, REQUESTER, RESTRICTED_OPTIONS)  # annotations copied from the set to its reservations
FINISHED = "Finished"  # condition: nothing more will happen
CREATE_BATCH = 50  # reservations created before the status is updated
REJECTION_RETRY = 30.0  # seconds before a rejected creation is retried
CONFLICT_RETRY = 1.0  # seconds before a name conflict is checked again


class ReservationSetPlan(msgspec.Struct):
    """The reservations to create and delete, by number, and the number of reservations in each phase."""

    create: list[int] = msgspec.field(default_factory=list)
    delete: list[int] = msgspec.field(default_factory=list)
    counts: dict[str, int] = msgspec.field(default_factory=dict)
    used: set[int] = msgspec.field(default_factory=set)  # numbers of used reservations, whether or not they still exist


def plan(
    wanted: int,
    there: Mapping[int, Reservation],
    *,
    replace_used: bool,
    over: bool,
    used: Collection[int] = (),
    taken: Callable[[int], bool] = lambda number: False,
) -> ReservationSetPlan:
    """Plan the next changes to a set. Nothing is created once the set has expired (`over`). `used` has the numbers of
    reservations that were used before; `taken` tells whether the name for a number belongs to an unrelated reservation."""
    planned = ReservationSetPlan(counts=dict.fromkeys(("Available", "Waiting", "Pending", "Succeeded"), 0))
    planned.used = {*used, *(number for number, each in there.items() if each.phase == "Succeeded")}
    counted = 0 if replace_used else len(planned.used)
    for number in sorted(there):
        reservation = there[number]
        if reservation.terminating:
            continue
        if reservation.phase == "Failed":
            if not over:
                planned.delete.append(number)
            continue
        if reservation.phase != "Succeeded":
            counted += 1
            planned.counts[reservation.phase] += 1
    planned.counts["Succeeded"] = len(planned.used)
    if counted > wanted:
        planned.delete += _surplus(there, counted - wanted)
    number = 0
    while counted < wanted and not over:
        if number not in there and number not in planned.used and not taken(number):
            planned.create.append(number)
            counted += 1
        number += 1
    return planned


def _surplus(there: Mapping[int, Reservation], count: int) -> list[int]:
    """The reservations to delete, unscheduled ones first, then unused ones. Those in use or used up are kept."""
    rank = {"Pending": 0, "Waiting": 1, "Available": 2}
    candidates = [
        number
        for number, each in there.items()
        if each.phase in rank and not each.terminating and not each.status.current_owners
    ]
    return sorted(candidates, key=lambda number: (rank[there[number].phase], -number))[:count]


def expiry(document: Document) -> tuple[str, float | None]:
    """The expiry time of each reservation, formatted and as a timestamp; empty and None if they never expire."""
    spec, created = document["spec"], parse_time(document["metadata"]["creationTimestamp"])
    moments = []
    if spec.get("ttl") is not None or not spec.get("expires"):
        ttl = ttl_seconds(DEFAULT_TTL if spec.get("ttl") is None else spec["ttl"])
        if ttl == 0:
            return "", None
        moments.append(created + ttl)
    if spec.get("expires"):
        moments.append(parse_time(spec["expires"]))
    return format_time(min(moments)), min(moments)


def reservation_of(document: Document, number: int) -> Document:
    """The reservation with this number."""
    metadata, spec = document["metadata"], document["spec"]
    body = {name: deepcopy(value) for name, value in spec.items() if name not in _SET_FIELDS}
    expires, _ = expiry(document)
    body |= {"expires": expires} if expires else {"ttl": "0s"}
    annotations = metadata.get("annotations") or {}
    return {
        "apiVersion": RESERVATIONS.api_version,
        "kind": RESERVATIONS.kind,
        "metadata": {
            "name": f"{metadata['name']}-{number}",
            "labels": {**(metadata.get("labels") or {}), SET_LABEL: metadata["name"]},
            "annotations": {name: annotations[name] for name in _COPIED_ANNOTATIONS if name in annotations},
            "ownerReferences": [controller_reference(RESERVATION_SETS, view(metadata, ObjectMeta))],
        },
        "spec": body,
    }


class ReservationSetController(ContextController[str]):
    name = "reservationset"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._keep_seconds = context.configuration.of(ReservationSettings).gc_seconds
        self._sets = context.documents(RESERVATION_SETS)
        self._reservations = context.informers.of(RESERVATIONS, Reservation)
        self._by_owner = self._reservations.index("controller", _owner_uid)
        self._sets.add_handler(self._enqueue, lambda old, new: self._enqueue(new))
        self._reservations.add_handler(
            self._reservation_changed, lambda old, new: self._reservation_changed(new), self._reservation_changed
        )

    def _enqueue(self, document: Document) -> None:
        self.queue.add(document["metadata"]["name"])

    def _reservation_changed(self, reservation: Reservation) -> None:
        owner = reservation.metadata.controller
        if owner is not None and owner.kind == RESERVATION_SETS.kind:
            self.queue.add(owner.name)

    async def reconcile(self, key: str) -> None:
        document = self._sets.get(key)
        if document is None or document["metadata"].get("deletionTimestamp"):
            return
        there = self._numbered(document)
        spec, now = document["spec"], self.context.now()
        _, end = expiry(document)
        if await self._collect(document, now):
            return
        if end is not None and now <= end:
            self.queue.add_after(key, end - now + 0.001, background=True)
        status = document.get("status") or {}
        planned = plan(
            spec.get("replicas", 1),
            there,
            replace_used=bool(spec.get("replaceUsed")),
            over=end is not None and now > end,
            used=numbers_in(str(status.get("usedNumbers") or "")),
            taken=lambda number: number not in there and self._reservations.get(f"{key}-{number}") is not None,
        )
        for number in planned.delete:
            await self._delete(there[number])
        refusal = await self._create(
            key, [reservation_of(document, number) for number in planned.create[:CREATE_BATCH]]
        )
        if len(planned.create) > CREATE_BATCH and not refusal:
            self.queue.add(key)  # update the status before creating the rest
        for number, reservation in there.items():
            if number not in planned.delete and not reservation.ended:
                await self._update(document, number, reservation)
        await self._write_status(document, planned, refusal, over=end is not None and now > end)

    async def _collect(self, document: Document, now: float) -> bool:
        """Delete a set some time after it has finished; returns whether that was done."""
        finished = find_condition((document.get("status") or {}).get("conditions") or (), FINISHED) or {}
        if not self._keep_seconds or finished.get("status") != "True":
            return False
        moment = parse_time(finished["lastTransitionTime"]) + self._keep_seconds
        metadata = document["metadata"]
        if now < moment:
            self.queue.add_after(metadata["name"], moment - now, background=True)
            return False
        if (document.get("status") or {}).get("observedGeneration") != metadata.get("generation", 0):
            return False  # it was edited since
        with suppress(NotFound):
            await self.client.delete(RESERVATION_SETS, metadata["name"], uid=metadata["uid"])
        return True

    async def _create(self, key: str, documents: list[Document]) -> str:
        """Create reservations; returns the reason if they were rejected for now, for example by a quota."""
        outcomes = await asyncio.gather(
            *(self.client.create(RESERVATIONS, document) for document in documents), return_exceptions=True
        )
        refusal = ""
        for outcome in outcomes:
            if isinstance(outcome, AlreadyExists):
                # Either our own, not yet in the informer, or an unrelated reservation with the same name.
                self.queue.add_after(key, CONFLICT_RETRY)
            elif isinstance(outcome, ApiError) and outcome.code in (403, 422):
                refusal = str(outcome)
            elif isinstance(outcome, BaseException):
                raise outcome
        if refusal:
            self.queue.add_after(key, REJECTION_RETRY, background=True)
        return refusal

    def _numbered(self, document: Document) -> dict[int, Reservation]:
        prefix = f"{document['metadata']['name']}-"
        found = {}
        for each in self._by_owner.get(document["metadata"]["uid"]):
            number = each.metadata.name.removeprefix(prefix)
            if number.isdecimal():
                found[int(number)] = each
        return found

    async def _delete(self, reservation: Reservation) -> None:
        try:
            await self.client.delete(RESERVATIONS, reservation.metadata.name, uid=reservation.metadata.uid)
        except NotFound:
            return

    async def _update(self, document: Document, number: int, reservation: Reservation) -> None:
        """Apply changes of the set to a reservation; the scheduler resizes it."""
        wanted = reservation_of(document, number)
        labels, annotations = wanted["metadata"]["labels"], wanted["metadata"]["annotations"]
        if view(wanted["spec"], ReservationSpec) == reservation.spec and _has_metadata(
            reservation.metadata, wanted["metadata"]
        ):
            return
        try:
            current = await self.client.get(RESERVATIONS, reservation.metadata.name)
            # Not a merge patch, which would keep fields that the new spec omits.
            current["spec"] = wanted["spec"]
            metadata = current["metadata"]
            metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
            others = {
                name: text
                for name, text in (metadata.get("annotations") or {}).items()
                if name not in _COPIED_ANNOTATIONS
            }
            metadata["annotations"] = {**others, **annotations}
            await self.client.update(RESERVATIONS, current)
        except NotFound:
            return

    async def _write_status(self, document: Document, planned: ReservationSetPlan, refusal: str, *, over: bool) -> None:
        counts, wanted = planned.counts, document["spec"].get("replicas", 1)
        ready = counts["Available"] + counts["Succeeded"] >= wanted
        message = f"{counts['Available']} available and {counts['Succeeded']} used out of {wanted}"
        reason = "AllAvailable" if ready else "Refused" if refusal else "NotYetAvailable"
        if refusal:
            message = f"{message}; creation was rejected: {refusal}"
        now = self.context.now()
        conditions = set_condition(
            (document.get("status") or {}).get("conditions") or (), new_condition("Ready", ready, reason, message, now)
        )
        why = _finished(document, planned, over=over)
        if why is not None or find_condition(conditions, FINISHED) is not None:
            reason, message = why or ("InUse", "reservations are kept")
            conditions = set_condition(conditions, new_condition(FINISHED, why is not None, reason, message, now))
        status = {
            "replicas": sum(counts.values()),
            "available": counts["Available"],
            "waiting": counts["Waiting"],
            "pending": counts["Pending"],
            "used": counts["Succeeded"],
            "usedNumbers": ranges_text(planned.used) or None,
            "observedGeneration": document["metadata"].get("generation", 0),
            "conditions": conditions,
        }
        await patch_status(self.client, RESERVATION_SETS, document, status)


def _finished(document: Document, planned: ReservationSetPlan, *, over: bool) -> tuple[str, str] | None:
    """Reason and message if nothing more will happen; None if it may."""
    counts, spec = planned.counts, document["spec"]
    if any(counts[phase] for phase in ("Available", "Waiting", "Pending")):
        return None
    if over:
        return "Expired", "the set has expired"
    if not spec.get("replaceUsed") and counts["Succeeded"] >= spec.get("replicas", 1) > 0:
        return "AllUsed", "all reservations have been used"
    return None


def _owner_uid(reservation: Reservation) -> list[str]:
    owner = reservation.metadata.controller
    return [owner.uid] if owner is not None and owner.kind == RESERVATION_SETS.kind else []


def _has_metadata(metadata: ObjectMeta, wanted: Document) -> bool:
    """Whether the labels and annotations of the set are applied. Additional ones are allowed."""
    passed_on = {name: text for name, text in metadata.annotations.items() if name in _COPIED_ANNOTATIONS}
    return dict(metadata.labels) | wanted["labels"] == metadata.labels and passed_on == dict(wanted["annotations"])
