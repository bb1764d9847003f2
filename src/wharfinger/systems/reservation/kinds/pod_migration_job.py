"""PodMigrationJob: moves a pod to another node after reserving room for its replacement."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from msgspec import field

from wharfinger.api.columns.cells import AGE
from wharfinger.api.fields import FieldError, required
from wharfinger.api.registry import Column, Document
from wharfinger.api.schema.models import ATOMIC, PRESERVED, Model, doc, model_kind
from wharfinger.systems.reservation.kinds.names import POD_MIGRATION_JOBS
from wharfinger.systems.reservation.kinds.reservation import (
    ObjectReferenceModel,
    ReservationConditionModel,
    ttl_faults,
    write_ttl_as_text,
)


class ReservationOptionsModel(Model):
    """The reservation used for the migration."""

    reservation_ref: Annotated[ObjectReferenceModel, doc("An existing reservation to use.")] | None = None
    template: (
        Annotated[dict[str, Any], PRESERVED, doc("Metadata and spec fields for the reservation that is created.")]
        | None
    ) = None
    preemption_options: Annotated[dict[str, Any], PRESERVED, doc("Accepted but ignored.")] | None = None


class PodMigrationJobSpecModel(Model):
    """The pod to migrate and how to migrate it."""

    pod_ref: Annotated[ObjectReferenceModel, doc("The pod to migrate.")]
    paused: Annotated[bool, doc("Suspends the migration until set to false.")] = False
    ttl: Annotated[str | int, doc("How long the migration may take; 0 means no limit.")] = "5m"
    mode: Annotated[
        Literal["ReservationFirst", "EvictDirectly"], doc("Whether room is reserved before the pod is evicted.")
    ] = "ReservationFirst"
    reservation_options: ReservationOptionsModel | None = None
    delete_options: Annotated[dict[str, Any], PRESERVED, doc("Delete options for the eviction.")] | None = None


class PodMigrationJobStatusModel(Model):
    """The progress of the migration."""

    phase: Annotated[str, doc("Pending, Running, Succeeded, Failed or Aborted.")] = "Pending"
    status: Annotated[str, doc("The current step.")] = ""
    reason: str = ""
    message: str = ""
    conditions: Annotated[list[ReservationConditionModel], ATOMIC] = field(default_factory=list)
    pod_ref: Annotated[ObjectReferenceModel, doc("The replacement pod.")] | None = None
    node_name: Annotated[str, doc("The target node.")] = ""


class PodMigrationJobModel(Model):
    """Migrates a pod: reserves room on the target node, evicts the pod, and lets the replacement use the reservation."""

    spec: PodMigrationJobSpecModel
    status: PodMigrationJobStatusModel | None = None


def _fill(document: Document) -> None:
    write_ttl_as_text(document.get("spec"))


def _begin(document: Document) -> None:
    document["status"] = {"phase": "Pending"}


def _faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    spec = document["spec"]
    reference = spec["podRef"]
    for name in ("namespace", "name"):
        if not reference.get(name):
            yield required(f"spec.podRef.{name}")
    yield from ttl_faults(spec["ttl"], "spec.ttl")


KIND = model_kind(
    POD_MIGRATION_JOBS,
    PodMigrationJobModel,
    notes_requester=True,
    churns=True,
    short_names=("pmj",),
    columns=(
        Column("Phase", "status.phase"),
        Column("Status", "status.status"),
        AGE,
        Column("Node", "status.nodeName"),
        Column("Reservation", "spec.reservationOptions.reservationRef.name", priority=1),
        Column("PodNamespace", "spec.podRef.namespace"),
        Column("Pod", "spec.podRef.name"),
        Column("NewPod", "status.podRef.name"),
        Column("TTL", "spec.ttl", priority=1),
    ),
    fill=_fill,
    prepare_create=_begin,
    faults=_faults,
)

KINDS = (KIND,)
