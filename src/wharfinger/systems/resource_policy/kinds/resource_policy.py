"""ResourcePolicy: which nodes to fill first and how many pods to place on each group of nodes. This file is the example
to follow for kinds of our own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from msgspec import Meta, field

from wharfinger.api.columns.cells import AGE
from wharfinger.api.fields import FieldError, duplicate, forbidden, invalid, required
from wharfinger.api.names import dns_label, qualified_name
from wharfinger.api.quantity import BadQuantity, parse_nano
from wharfinger.api.registry import Column, Document
from wharfinger.api.schema.models import (
    ATOMIC,
    UNIQUE,
    Conditions,
    Int32,
    Model,
    Quantity,
    doc,
    keyed,
    kind_schema,
    model_kind,
)
from wharfinger.api.selectors import LabelSelector
from wharfinger.api.times import BadTime, parse_duration
from wharfinger.api.validation.selectors import each, label_key_faults, label_selector_faults
from wharfinger.systems.resource_policy.kinds.crd_rules import with_rules
from wharfinger.systems.resource_policy.kinds.names import RESOURCE_POLICIES

REQUIRED = "required"
PREFER = "prefer"
EXCEED_MAX = "ExceedMax"
TIMEOUT_OR_EXCEED_MAX = "TimeoutOrExceedMax"


class MatchPolicyModel(Model):
    """How governed pods are counted."""

    ignore_terminating_pod: Annotated[bool, doc("Whether terminating pods are left out of the count.")] = False


class UnitModel(Model):
    """A group of nodes, with limits on the pods of a group that run there."""

    name: Annotated[str, Meta(max_length=63), doc("The name of the unit in messages; defaults to unit-<index>.")] = ""
    priority: Annotated[Int32, Meta(ge=0, le=2147483647), doc("Units with a higher priority are filled first.")] = 0
    max_count: (
        Annotated[Int32, Meta(ge=0), doc("The maximum number of pods of a group; 0 disables the unit.")] | None
    ) = None
    max_percent: (
        Annotated[Int32, Meta(ge=0, le=100), doc("The maximum percentage of a group's pods, rounded up.")] | None
    ) = None
    max_resources: Annotated[dict[str, Quantity], doc("The maximum resources requested by the pods of a group.")] = (
        field(default_factory=dict)
    )
    node_selector: (
        Annotated[LabelSelector, doc("Selects the nodes of the unit; absent or empty selects every node.")] | None
    ) = None


class WhenTryNextUnitsModel(Model):
    """When a pod may use units of the next lower priority."""

    policy: Annotated[
        Literal["LackResourceOrExceedMax", "ExceedMax", "TimeoutOrExceedMax"],
        doc(
            "LackResourceOrExceedMax: when no node of the previous units fits. ExceedMax: only when the previous units "
            "are full. TimeoutOrExceedMax: when they are full, or after the timeout."
        ),
    ] = "LackResourceOrExceedMax"
    timeout: Annotated[str, doc("How long to wait at each priority, such as 5m; for TimeoutOrExceedMax.")] | None = None


class ResourcePolicySpecModel(Model):
    """The governed pods and the units they are placed in."""

    units: Annotated[list[UnitModel], Meta(min_length=1, max_length=100), ATOMIC, doc("The groups of nodes to use.")]
    pod_selector: (
        Annotated[LabelSelector, doc("Selects the governed pods; absent or empty selects all pods of the namespace.")]
        | None
    ) = None
    match_label_keys: Annotated[
        list[str], UNIQUE, doc("Pods with equal values for these label keys form a group; limits apply to each group.")
    ] = field(default_factory=list)
    match_policy: MatchPolicyModel | None = None
    strategy: Annotated[
        Literal["required", "prefer"],
        doc("Whether nodes outside all units are rejected (required) or used last (prefer)."),
    ] = "required"
    when_try_next_units: WhenTryNextUnitsModel | None = None


class GroupStatusModel(Model):
    """The usage of a unit by one group."""

    labels: Annotated[dict[str, str], doc("The values of the matchLabelKeys.")] = field(default_factory=dict)
    count: Annotated[Int32, doc("Pods and reservations of the group charged to the unit.")] = 0


class UnitStatusModel(Model):
    """The usage of a unit."""

    name: Annotated[str, doc("The name of the unit.")]
    count: Annotated[Int32, doc("Pods and reservations charged to the unit, summed over groups.")] = 0
    max: Annotated[str, doc("The limits of the unit for each group; absent if there are none.")] = ""
    groups: Annotated[
        list[GroupStatusModel],
        ATOMIC,
        doc("With matchLabelKeys, the usage by group: the largest groups, at most 20."),
    ] = field(default_factory=list)


class ResourcePolicyStatusModel(Model):
    """The observed state of the policy."""

    conditions: Conditions = field(default_factory=list)
    units: Annotated[list[UnitStatusModel], keyed("name"), doc("The usage of each unit.")] = field(default_factory=list)
    summary: Annotated[str, doc("The usage of all units in one line, such as `static 2/2, spot 3`.")] = ""


class ResourcePolicyModel(Model):
    """Defines the order in which groups of nodes are filled with the pods of a namespace, and a limit for each."""

    spec: ResourcePolicySpecModel
    status: ResourcePolicyStatusModel | None = None


def _name_units(document: Document) -> None:
    spec = document.get("spec")
    units = spec.get("units") if isinstance(spec, dict) else None
    for index, unit in enumerate(units if isinstance(units, list) else ()):
        if isinstance(unit, dict) and unit.get("name") in (None, ""):
            unit["name"] = f"unit-{index}"


def _faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    spec = document["spec"]
    yield from label_selector_faults(spec.get("podSelector"), "spec.podSelector")
    yield from _key_faults(spec)
    names: set[str] = set()
    for index, unit in each(spec, "units"):
        path = f"spec.units[{index}]"
        name = unit.get("name", "")
        for fault in dns_label(name):
            yield invalid(f"{path}.name", name, fault)
        if name in names:
            yield duplicate(f"{path}.name", name)
        names.add(name)
        yield from label_selector_faults(unit.get("nodeSelector"), f"{path}.nodeSelector")
        yield from _amount_faults(unit.get("maxResources") or {}, f"{path}.maxResources")
    yield from _waiting_faults(spec.get("whenTryNextUnits") or {}, "spec.whenTryNextUnits")


def _amount_faults(amounts: dict[str, Any], path: str) -> Iterator[FieldError]:
    for name, amount in amounts.items():
        for fault in qualified_name(name):
            yield invalid(f"{path}[{name}]", name, fault)
        try:
            if parse_nano(amount) < 0:
                yield invalid(f"{path}[{name}]", amount, "must be greater than or equal to 0")
        except BadQuantity as fault:
            yield invalid(f"{path}[{name}]", amount, str(fault))


def _waiting_faults(waiting: dict[str, Any], path: str) -> Iterator[FieldError]:
    timeout = waiting.get("timeout")
    if waiting.get("policy") != TIMEOUT_OR_EXCEED_MAX:
        if timeout is not None:
            yield forbidden(f"{path}.timeout", f"may only be set when `policy` is {TIMEOUT_OR_EXCEED_MAX}")
    elif timeout is None:
        yield required(f"{path}.timeout", f"must be set when `policy` is {TIMEOUT_OR_EXCEED_MAX}")
    else:
        try:
            if parse_duration(timeout) <= 0:
                yield invalid(f"{path}.timeout", timeout, "must be greater than 0")
        except BadTime as fault:
            yield invalid(f"{path}.timeout", timeout, str(fault))


def _key_faults(spec: dict[str, Any]) -> Iterator[FieldError]:
    """Like topology spread constraints: a key must not be in both the selector and matchLabelKeys."""
    selector = spec.get("podSelector") or {}
    selected = set(selector.get("matchLabels") or ()) | {e.get("key") for _, e in each(selector, "matchExpressions")}
    seen: set[str] = set()
    for index, key in each(spec, "matchLabelKeys"):
        path = f"spec.matchLabelKeys[{index}]"
        yield from label_key_faults(key, path)
        if key in seen:
            yield duplicate(path, key)
        if key in selected:
            yield invalid(path, key, "exists in both matchLabelKeys and podSelector")
        seen.add(key)


def _condition(name: str, description: str) -> Column:
    return Column(name, f'status.conditions[?(@.type=="{name}")].status', description=description)


KIND = model_kind(
    RESOURCE_POLICIES,
    ResourcePolicyModel,
    short_names=("rsp",),
    columns=(
        Column("Strategy", "spec.strategy", description="Whether nodes outside all units are rejected or used last."),
        # A separate field, because a printer column shows only the first element of a list.
        Column("Units", "status.summary", description="The number of pods in each unit, with its limit."),
        _condition("Valid", "Whether the policy is valid; others are ignored."),
        _condition("Conflicting", "Whether another policy matches some of the same pods."),
        _condition("Overlapping", "Whether a node belongs to several units."),
        AGE,
    ),
    fill=_name_units,
    faults=_faults,
    schema=lambda version: with_rules(kind_schema(ResourcePolicyModel)),
)

KINDS = (KIND,)
