"""ReservationSet: a number of identical reservations, kept until they are used or expire."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta, field

from wharfinger.api.columns.cells import AGE
from wharfinger.api.fields import FieldError, invalid
from wharfinger.api.registry import Column, Document, Scale
from wharfinger.api.schema.models import Conditions, Int32, Int64, Model, doc, model_kind
from wharfinger.systems.reservation.kinds.names import RESERVATION_SETS
from wharfinger.systems.reservation.kinds.reservation import ReservationSpecModel, fill, reservation_spec_faults

LONGEST_NAME = 63


class ReservationSetSpecModel(ReservationSpecModel):
    """The reservations to create and how many. `ttl` counts from the creation of the set."""

    replicas: Annotated[Int32, Meta(ge=0, le=10000), doc("The number of reservations.")] = 1
    replace_used: Annotated[
        bool, doc("Whether used reservations are replaced. Otherwise they count towards replicas.")
    ] = False


class ReservationSetStatusModel(Model):
    """The number of reservations in each phase."""

    replicas: Annotated[Int32, doc("Reservations that are available, waiting, pending or used.")] = 0
    available: Int32 = 0
    waiting: Int32 = 0
    pending: Int32 = 0
    used: Annotated[Int32, doc("Reservations that have been used up, including deleted ones.")] = 0
    used_numbers: Annotated[str, doc("The numbers of the reservations that have been used up, such as 0-4,7.")] = ""
    observed_generation: Int64 = 0
    conditions: Conditions = field(default_factory=list)


class ReservationSetModel(Model):
    """Maintains a number of identical reservations, for example ahead of a scale-up."""

    spec: ReservationSetSpecModel
    status: ReservationSetStatusModel | None = None


def _faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    yield from reservation_spec_faults(document["spec"], "spec")
    name = document["metadata"].get("name") or ""
    if old is None and len(name) > LONGEST_NAME:
        # Its reservations carry the name as a label value.
        yield invalid("metadata.name", name, f"must be no more than {LONGEST_NAME} characters")


KIND = model_kind(
    RESERVATION_SETS,
    ReservationSetModel,
    pod_template="spec.template",
    pod_template_identity="requester",
    notes_requester=True,
    short_names=("rsvset",),
    scale=Scale(),
    columns=(
        Column("Desired", "spec.replicas", type="integer"),
        Column("Available", "status.available", type="integer"),
        Column("Used", "status.used", type="integer"),
        Column("Waiting", "status.waiting", type="integer", priority=1),
        Column("Pending", "status.pending", type="integer"),
        AGE,
    ),
    fill=fill,
    faults=_faults,
)

KINDS = (KIND,)
