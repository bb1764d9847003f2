"""CapacityBuffer (`autoscaling.x-k8s.io`): spare capacity that any pod may take, as the API of cluster-autoscaler has it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta, field

from wharfinger.api.columns.cells import AGE
from wharfinger.api.fields import FieldError, invalid
from wharfinger.api.registry import Column, Document
from wharfinger.api.schema.models import Conditions, Int32, Int64, Model, Quantity, doc, model_kind
from wharfinger.systems.reservation.kinds.names import CAPACITY_BUFFERS

ACTIVE_STRATEGY = "buffer.x-k8s.io/active-capacity"
_NEEDS_SIZE = "If X is set, replicas or limits must also be set"
_ONE_REFERENCE = "You must define either PodTemplateRef or ScalableRef, but not both"


class LocalObjectRefModel(Model):
    """The name of an object in the same namespace."""

    name: Annotated[str, Meta(min_length=1)]


class ScalableRefModel(Model):
    """A workload in the same namespace."""

    kind: Annotated[str, Meta(min_length=1)]
    name: Annotated[str, Meta(min_length=1)]
    api_group: str = ""


class CapacityBufferSpecModel(Model):
    """What to keep free, and how much of it: the greater of replicas and percentage, within the limits."""

    provisioning_strategy: Annotated[str, doc("Buffers of other strategies are left alone.")] = ACTIVE_STRATEGY
    pod_template_ref: Annotated[LocalObjectRefModel, doc("A PodTemplate: the size of one chunk.")] | None = None
    scalable_ref: Annotated[ScalableRefModel, doc("A workload whose pods are the size of one chunk.")] | None = None
    replicas: Annotated[Int32, Meta(ge=0), doc("The number of chunks.")] | None = None
    percentage: Annotated[Int32, Meta(ge=0), doc("The chunks, in percent of the workload's replicas.")] | None = None
    limits: Annotated[dict[str, Quantity], doc("The most that all chunks together may take.")] | None = None


class CapacityBufferStatusModel(Model):
    """What the buffer comes to."""

    pod_template_ref: Annotated[LocalObjectRefModel, doc("The PodTemplate that is used.")] | None = None
    replicas: Annotated[Int32, doc("The number of chunks that are wanted.")] | None = None
    pod_template_generation: Int64 | None = None
    provisioning_strategy: str | None = None
    conditions: Conditions = field(default_factory=list)


class CapacityBufferModel(Model):
    """Keeps capacity free that any pod may take at once."""

    spec: CapacityBufferSpecModel
    status: CapacityBufferStatusModel | None = None


def _faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    spec = document["spec"]
    if spec.get("podTemplateRef") and spec.get("replicas") is None and spec.get("limits") is None:
        yield invalid("spec", "object", _NEEDS_SIZE)
    if spec.get("podTemplateRef") and spec.get("scalableRef"):
        yield invalid("spec", "object", _ONE_REFERENCE)


KIND = model_kind(
    CAPACITY_BUFFERS,
    CapacityBufferModel,
    short_names=("cb",),
    columns=(
        Column("Strategy", "spec.provisioningStrategy"),
        Column("PodTemplate", "status.podTemplateRef.name"),
        Column("Replicas", "status.replicas", type="integer"),
        Column("Status", 'status.conditions[?(@.type=="Provisioning")].reason'),
        AGE,
    ),
    faults=_faults,
)

KINDS = (KIND,)
