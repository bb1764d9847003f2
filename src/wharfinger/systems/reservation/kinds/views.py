"""Typed views of Reservation and PodMigrationJob, and of the reservation affinity annotation on pods."""

from __future__ import annotations

from typing import Any

from msgspec import field

from wharfinger.api.selectors import LabelSelector, NodeSelectorTerm
from wharfinger.api.views.base import View
from wharfinger.api.views.core import ObjectReference
from wharfinger.api.views.meta import ConditionsStatus, ObjectView
from wharfinger.api.views.nodes import Taint
from wharfinger.api.views.pods import PodSpec, Quantities, Toleration


class PodTemplate(ObjectView, frozen=True):
    spec: PodSpec = field(default_factory=PodSpec)


class ControllerReference(View, frozen=True):
    """An owner reference plus the namespace of the pods. Empty fields match anything."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    namespace: str = ""


class ReservationOwner(View, frozen=True):
    """Pods that may use the reservation. All fields that are set must match."""

    object: ObjectReference | None = None
    controller: ControllerReference | None = None
    label_selector: LabelSelector | None = None


class PreAllocationPolicy(View, frozen=True):
    mode: str = "Default"
    enable_multiple: bool = False


class ReservationSpec(View, frozen=True):
    template: dict[str, Any] | None = None  # unvalidated; see `rules.reservations.template_of`
    owners: tuple[ReservationOwner, ...] = ()
    ttl: str | int | None = None
    expires: str | None = None
    pre_allocation: bool = False
    pre_allocation_policy: PreAllocationPolicy | None = None
    allocate_once: bool | None = None
    allocate_policy: str = ""
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class CurrentOwner(View, frozen=True):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class ReservationStatus(ConditionsStatus, frozen=True):
    phase: str = ""
    node_name: str = ""
    allocatable: Quantities = field(default_factory=dict)
    allocated: Quantities = field(default_factory=dict)
    current_owners: tuple[CurrentOwner, ...] = ()


class Reservation(ObjectView, frozen=True):
    spec: ReservationSpec = field(default_factory=ReservationSpec)
    status: ReservationStatus = field(default_factory=ReservationStatus)

    @property
    def phase(self) -> str:
        return self.status.phase or "Pending"

    @property
    def ended(self) -> bool:
        """Whether the reservation is in a final phase, Succeeded or Failed."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def holds(self) -> bool:
        """Whether it holds resources on a node."""
        return bool(self.status.node_name) and self.phase in ("Available", "Waiting")

    @property
    def once(self) -> bool:
        """Whether the first consumer uses it up."""
        return self.spec.allocate_once is not False

    @property
    def terminating(self) -> bool:
        return bool(self.metadata.deletion_timestamp)


class ReservationSelectorTerms(View, frozen=True):
    reservation_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class ReservationAffinity(View, frozen=True):
    """The reservation affinity annotation of a pod. A pod that has the annotation, even an empty one, requires a
    reservation."""

    name: str = ""
    reservation_selector: dict[str, str] = field(default_factory=dict)
    required: ReservationSelectorTerms | None = field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )
    tolerations: tuple[Toleration, ...] = ()


class PodMigrationJobSpec(View, frozen=True):
    pod_ref: ObjectReference = field(default_factory=ObjectReference)
    paused: bool = False
    ttl: str | int = "5m"
    mode: str = "ReservationFirst"
    reservation_options: dict[str, Any] | None = None
    delete_options: dict[str, Any] | None = None


class PodMigrationJobStatus(ConditionsStatus, frozen=True):
    phase: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    pod_ref: ObjectReference | None = None
    node_name: str = ""


class PodMigrationJob(ObjectView, frozen=True):
    spec: PodMigrationJobSpec = field(default_factory=PodMigrationJobSpec)
    status: PodMigrationJobStatus = field(default_factory=PodMigrationJobStatus)

    @property
    def ended(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed", "Aborted")
