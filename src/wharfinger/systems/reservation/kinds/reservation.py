"""Reservation: node resources held for an owner before its pods exist. The pod template is stored exactly as submitted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, field

from wharfinger.api.columns.cells import AGE
from wharfinger.api.fields import FieldError, invalid, required
from wharfinger.api.quantity import BadQuantity, parse_nano
from wharfinger.api.registry import Column, Document
from wharfinger.api.schema.models import ATOMIC, PRESERVED, Model, Quantity, Time, doc, model_kind
from wharfinger.api.selectors import LabelSelector
from wharfinger.api.times import BadTime
from wharfinger.api.validation.scheduling import affinity_faults, taints_faults, tolerations_faults
from wharfinger.api.validation.selectors import each, label_selector_faults
from wharfinger.api.views.base import view
from wharfinger.api.views.pods import Quantities
from wharfinger.systems.reservation.kinds.names import RESERVATIONS
from wharfinger.systems.reservation.kinds.views import Reservation
from wharfinger.systems.reservation.rules.reservations import (
    DEFAULT_TTL,
    INNER,
    RESIZE,
    RESTRICTED_OPTIONS,
    BadReservation,
    annotated_names,
    annotated_quantities,
    template_of,
    ttl_seconds,
    wanted_quantities,
)


class ObjectReferenceModel(Model):
    """A reference to one pod. Empty fields match anything."""

    api_version: str = ""
    field_path: str = ""
    kind: str = ""
    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    uid: str = ""


class ControllerReferenceModel(Model):
    """A reference to the controller of the pods. Empty fields match anything."""

    api_version: str = ""
    block_owner_deletion: bool | None = None
    controller: bool | None = None
    kind: str = ""
    name: str = ""
    namespace: Annotated[str, doc("The namespace of the pods.")] = ""
    uid: str = ""


class OwnerModel(Model):
    """Pods that may use the reservation. All fields that are set must match."""

    schema_extra = {"minProperties": 1}

    object: ObjectReferenceModel | None = None
    controller: ControllerReferenceModel | None = None
    label_selector: (
        Annotated[LabelSelector, doc("Matches pods in all namespaces; an empty selector matches every pod.")] | None
    ) = None


class TaintModel(Model):
    """Keeps out pods whose reservation affinity does not tolerate the taint. Pods are never evicted."""

    key: Annotated[str, Meta(min_length=1)]
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
    value: str = ""
    time_added: Time | None = None


class PreAllocationPolicyModel(Model):
    """The running pods that a pre-allocation may take over."""

    mode: Annotated[
        Literal["Default", "Cluster"],
        doc("Default: pods that match an owner. Cluster: pods labelled pod.koordinator.sh/is-pre-allocatable=true."),
    ] = "Default"
    enable_multiple: Annotated[bool, doc("Whether several pods may be taken over.")] = False


class ReservationSpecModel(Model):
    """What to reserve, for which pods, and for how long."""

    template: Annotated[
        dict[str, Any],
        PRESERVED,
        doc("The pod template that is scheduled. If nodeName is set, only that node is used."),
    ]
    owners: Annotated[
        list[OwnerModel],
        Meta(min_length=1),
        ATOMIC,
        doc("The pods that may use the reservation; a pod must match at least one entry."),
    ]
    ttl: (
        Annotated[str | int, doc("Lifetime from creation; defaults to 24h if expires is not set. 0 disables expiry.")]
        | None
    ) = None
    expires: Annotated[Time, doc("Expiry time; if ttl is also set, the earlier one applies.")] | None = None
    pre_allocation: Annotated[bool, doc("Bind to a node that lacks free resources and wait until they are freed.")] = (
        False
    )
    pre_allocation_policy: PreAllocationPolicyModel | None = None
    allocate_once: Annotated[bool, doc("Whether the first pod that uses the reservation uses it up.")] = True
    allocate_policy: (
        Annotated[
            Literal["Aligned", "Restricted"],
            doc("Aligned: pods may use more than is reserved if the node has room. Restricted: they may not."),
        ]
        | None
    ) = None
    unschedulable: Annotated[bool, doc("Keeps out new pods; pods that already use it are unaffected.")] = False
    taints: Annotated[list[TaintModel], ATOMIC] = field(default_factory=list)


class ReservationConditionModel(Model):
    """One condition of the reservation, such as Scheduled or Ready."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_probe_time: Time | None = None
    last_transition_time: Time | None = None


class ReservationStatusModel(Model):
    """The observed state of the reservation."""

    phase: Annotated[str, doc("Pending, Available, Waiting, Succeeded or Failed.")] = "Pending"
    conditions: Annotated[list[ReservationConditionModel], ATOMIC] = field(default_factory=list)
    node_name: Annotated[str, doc("The node that holds the resources.")] = ""
    allocatable: Annotated[dict[str, Quantity], doc("The reserved resources.")] = field(default_factory=dict)
    allocated: Annotated[dict[str, Quantity], doc("The reserved resources requested by its consumers.")] = field(
        default_factory=dict
    )
    current_owners: Annotated[list[ObjectReferenceModel], ATOMIC, doc("The pods that use the reservation.")] = field(
        default_factory=list
    )


class ReservationModel(Model):
    """Node resources reserved for pods that may not exist yet."""

    spec: ReservationSpecModel
    status: ReservationStatusModel | None = None


def fill(document: Document) -> None:
    spec = document.get("spec")
    # `expires` and `ttl` both apply if both are set, so the default ttl is added only if neither is set.
    if isinstance(spec, dict) and spec.get("ttl") is None and spec.get("expires") is None:
        spec["ttl"] = DEFAULT_TTL
    write_ttl_as_text(spec)


def write_ttl_as_text(spec: Any) -> None:
    """A ttl may be the number 0; clients of Koordinator read only text."""
    if isinstance(spec, dict) and spec.get("ttl") == 0 and not isinstance(spec["ttl"], bool):
        spec["ttl"] = "0s"


def _begin(document: Document) -> None:
    document["status"] = {"phase": "Pending"}


def _faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    faults = list(reservation_spec_faults(document["spec"], "spec"))
    yield from faults or _annotation_faults(document)


def reservation_spec_faults(spec: dict[str, Any], path: str) -> Iterator[FieldError]:
    """Faults in a reservation spec that its schema cannot express. Also used for the spec of a ReservationSet."""
    if not spec["template"]:
        yield required(f"{path}.template")
    yield from _template_faults(spec, f"{path}.template")
    for index, owner in each(spec, "owners"):
        yield from label_selector_faults(owner.get("labelSelector"), f"{path}.owners[{index}].labelSelector")
    yield from ttl_faults(spec.get("ttl"), f"{path}.ttl")
    yield from taints_faults(spec.get("taints") or (), f"{path}.taints")


def ttl_faults(ttl: str | int | None, path: str) -> Iterator[FieldError]:
    if ttl is None:
        return
    try:
        seconds = ttl_seconds(ttl)
    except BadTime as error:
        yield invalid(path, ttl, str(error))
        return
    if seconds < 0:
        yield invalid(path, ttl, "must not be negative")


def _template_faults(spec: dict[str, Any], path: str) -> Iterator[FieldError]:
    probe = {"metadata": {}, "spec": {"template": spec["template"]}}
    try:
        template = template_of(view(probe, Reservation))
    except BadReservation as error:
        where, _, message = str(error).partition(": ")
        yield FieldError(where.replace("spec.template", path, 1), "FieldValueTypeInvalid", f"Invalid value: {message}")
        return
    spec_view = template.spec
    for part, containers in (("containers", spec_view.containers), ("initContainers", spec_view.init_containers)):
        for index, container in enumerate(containers):
            here = f"{path}.spec.{part}[{index}].resources"
            yield from _quantity_faults(container.resources.limits, f"{here}.limits")
            yield from _quantity_faults(container.resources.requests, f"{here}.requests")
    yield from _quantity_faults(spec_view.overhead, f"{path}.spec.overhead")
    yield from _placement_faults(spec["template"].get("spec") or {}, f"{path}.spec")


def _placement_faults(spec: dict[str, Any], path: str) -> Iterator[FieldError]:
    """What decides about nodes is validated as in a pod; everything else waits for the pods."""
    if spec.get("affinity"):
        yield from affinity_faults(spec["affinity"], f"{path}.affinity")
    yield from tolerations_faults(spec.get("tolerations") or (), f"{path}.tolerations")


def _quantity_faults(quantities: Quantities, path: str) -> Iterator[FieldError]:
    for name, quantity in quantities.items():
        try:
            if parse_nano(quantity) < 0:
                yield invalid(f"{path}[{name}]", quantity, "must be greater than or equal to 0")
        except BadQuantity as error:
            yield invalid(f"{path}[{name}]", quantity, str(error))


def _annotation_faults(document: Document) -> Iterator[FieldError]:
    try:
        reservation = view({**document, "status": {}}, Reservation)
        for annotation in (INNER, RESIZE):
            annotated_quantities(reservation.metadata, annotation)
        annotated_names(reservation.metadata, RESTRICTED_OPTIONS, "resources")
        wanted_quantities(reservation)
    except BadReservation as error:
        where, _, message = str(error).partition(": ")
        yield FieldError(where, "FieldValueInvalid", f"Invalid value: {message}")
    except msgspec.ValidationError as error:
        yield FieldError("spec", "FieldValueInvalid", f"Invalid value: {error}")


KIND = model_kind(
    RESERVATIONS,
    ReservationModel,
    churns=True,
    pod_template="spec.template",
    pod_template_identity="requester",  # no pod runs under the template's service account yet
    columns=(
        Column("Phase", "status.phase", description="The phase of the reservation."),
        AGE,
        Column("Node", "status.nodeName", description="The node that holds the resources."),
        Column("TTL", "spec.ttl", description="Lifetime from creation."),
        Column("Expires", "spec.expires", description="Expiry time."),
    ),
    fill=fill,
    prepare_create=_begin,
    faults=_faults,
)

KINDS = (KIND,)
