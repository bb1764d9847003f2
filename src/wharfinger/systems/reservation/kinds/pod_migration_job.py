"""PodMigrationJob: moves a pod to another node, reserving its place there first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from msgspec import field

from wharfinger.api.fields import FieldError, invalid, required
from wharfinger.api.registry import Column, Document, Kind
from wharfinger.api.schema.models import ATOMIC, PRESERVED, Model, defaulter, doc, kind_schema, validator
from wharfinger.api.times import BadTime, parse_duration
from wharfinger.systems.reservation.kinds.names import KOORDINATOR, POD_MIGRATION_JOBS
from wharfinger.systems.reservation.kinds.reservation import ObjectReferenceModel, ReservationConditionModel


class ReservationOptionsModel(Model):
    """Which reservation to use."""

    reservation_ref: Annotated[ObjectReferenceModel, doc("One that is there already.")] | None = None
    template: (
        Annotated[dict[str, Any], PRESERVED, doc("Metadata and parts of the spec of the one that is made.")] | None
    ) = None
    preemption_options: Annotated[dict[str, Any], PRESERVED, doc("Accepted, without effect.")] | None = None


class PodMigrationJobSpecModel(Model):
    """Which pod, and how."""

    pod_ref: Annotated[ObjectReferenceModel, doc("The pod to move.")]
    paused: Annotated[bool, doc("Do nothing more until this is false.")] = False
    ttl: Annotated[str, doc("How long it may take; 0 for as long as it takes.")] = "5m"
    mode: Annotated[
        Literal["ReservationFirst", "EvictDirectly"], doc("Whether the new place is reserved before the eviction.")
    ] = "ReservationFirst"
    reservation_options: ReservationOptionsModel | None = None
    delete_options: Annotated[dict[str, Any], PRESERVED, doc("Options of the eviction.")] | None = None


class PodMigrationJobStatusModel(Model):
    """How far it has come."""

    phase: Annotated[str, doc("Pending, Running, Succeeded, Failed or Aborted.")] = "Pending"
    status: Annotated[str, doc("What is being waited for.")] = ""
    reason: str = ""
    message: str = ""
    conditions: Annotated[list[ReservationConditionModel], ATOMIC] = field(default_factory=list)
    pod_ref: Annotated[ObjectReferenceModel, doc("The pod that came in its place.")] | None = None
    node_name: Annotated[str, doc("The node it goes to.")] = ""


class PodMigrationJobModel(Model):
    """Moves a pod: reserves at the target, evicts, and lets the replacement take the reservation."""

    spec: PodMigrationJobSpecModel
    status: PodMigrationJobStatusModel | None = None


def _begin(document: Document) -> None:
    document["status"] = {"phase": "Pending"}


def _faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    spec = document["spec"]
    reference = spec["podRef"]
    for name in ("namespace", "name"):
        if not reference.get(name):
            yield required(f"spec.podRef.{name}")
    try:
        if parse_duration(spec["ttl"]) < 0:
            yield invalid("spec.ttl", spec["ttl"], "must not be negative")
    except BadTime as error:
        yield invalid("spec.ttl", spec["ttl"], str(error))


KIND = Kind(
    KOORDINATOR,
    POD_MIGRATION_JOBS.kind,
    POD_MIGRATION_JOBS.plural,
    versions=("v1alpha1",),
    namespaced=False,
    short_names=("pmj",),
    status=True,
    columns=(
        Column("Phase", "status.phase"),
        Column("Status", "status.status"),
        Column("Age", "metadata.creationTimestamp", type="date"),
        Column("Node", "status.nodeName"),
        Column("Reservation", "spec.reservationOptions.reservationRef.name", priority=1),
        Column("PodNamespace", "spec.podRef.namespace"),
        Column("Pod", "spec.podRef.name"),
        Column("NewPod", "status.podRef.name"),
        Column("TTL", "spec.ttl", priority=1),
    ),
    default=defaulter(PodMigrationJobModel),
    prepare_create=_begin,
    validate=validator(PodMigrationJobModel, _faults),
    schema=lambda version: kind_schema(PodMigrationJobModel),
    ours=True,
)

KINDS = (KIND,)
