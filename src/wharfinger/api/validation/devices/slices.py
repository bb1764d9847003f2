"""Validation of ResourceSlices: a pool's devices, their attributes and capacities, and counters that they share."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from wharfinger.api.defaults.devices import LIST_ATTRIBUTES
from wharfinger.api.fields import FieldError, immutable, invalid, required, too_long
from wharfinger.api.names import dns_subdomain
from wharfinger.api.registry import Document
from wharfinger.api.validation.common import name_faults
from wharfinger.api.validation.devices.capacities import shared_capacity_faults, single_capacity_faults
from wharfinger.api.validation.devices.classes import taint_faults
from wharfinger.api.validation.devices.conditions import binding_condition_faults
from wharfinger.api.validation.devices.internal_types import internal_terms
from wharfinger.api.validation.devices.wording import (
    MAX_DRIVER,
    MAX_ID,
    Faults,
    child_list,
    declared,
    declared_label_faults,
    driver_faults,
    label_name_faults,
    list_faults,
    map_faults,
    ordered,
    pool_faults,
    qualified_faults,
    set_faults,
)
from wharfinger.api.validation.selectors import node_selector_faults

_MAX_DEVICES = 128
_MAX_ADVANCED_DEVICES = 64  # with taints or counters
_MAX_COUNTER_SETS = 8
_MAX_COUNTERS = 32
_MAX_CONSUMPTIONS = 2
_MAX_PROPERTIES = 32  # attributes and capacities of a device
_MAX_VALUES = 48
_MAX_TAINTS = 16
_MAX_TEXT = 64
_ATTRIBUTE_KINDS = ("int", "bool", "string", "version", *LIST_ATTRIBUTES)
_COUNTER_ORDER = ("name", "counterSet", "counters", "value")
_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?"
    r"(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?",
    re.ASCII,
)
_NODES = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
_DEVICE_NODES = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true "
    "in the ResourceSlice spec"
)
_UNSET_OR_TRUE = "must be either unset or set to true"


def slice_faults(document: Document, old: Document | None) -> list[FieldError]:
    return ordered(_spec_faults(document.get("spec") or {}, None if old is None else old.get("spec") or {}))


def _spec_faults(spec: Document, before: Document | None) -> Faults:
    yield from driver_faults(spec.get("driver"), "spec.driver")
    yield from _pool_faults(spec.get("pool") or {}, "spec.pool")
    if before is not None:
        yield from _immutable_faults(spec, before)
    yield from _node_faults(spec, "spec")
    if spec.get("sharedCounters") is not None and spec.get("devices") is not None:
        yield invalid("spec", "", "only one of `sharedCounters` or `devices` is allowed")
    devices = child_list(spec, "devices")
    advanced = any(device.get("taints") or device.get("consumesCounters") for device in devices)
    known = {device.get("name"): device for device in child_list(before or {}, "devices")}
    yield from set_faults(
        devices,
        _MAX_ADVANCED_DEVICES if advanced else _MAX_DEVICES,
        partial(_device_faults, known, bool(spec.get("perDeviceNodeSelection"))),
        lambda device: device.get("name") or "",
        "spec.devices",
        declares=False,
    )
    yield from set_faults(
        child_list(spec, "sharedCounters"),
        _MAX_COUNTER_SETS,
        _counter_set_faults,
        lambda counters: counters.get("name") or "",
        "spec.sharedCounters",
        order=_COUNTER_ORDER,
    )


def _pool_faults(pool: Document, path: str) -> Faults:
    yield from pool_faults(pool.get("name"), f"{path}.name")
    count, generation = pool.get("resourceSliceCount") or 0, pool.get("generation") or 0
    if count <= 0:
        yield invalid(f"{path}.resourceSliceCount", count, "must be greater than zero")
    if generation < 0:
        yield invalid(f"{path}.generation", generation, "must be greater than or equal to zero")


def _immutable_faults(spec: Document, before: Document) -> Faults:
    name, past = (spec.get("pool") or {}).get("name"), (before.get("pool") or {}).get("name")
    if name != past:
        yield immutable("spec.pool.name", name or "")
    for field in ("driver", "nodeName"):
        if spec.get(field) != before.get(field):
            yield immutable(f"spec.{field}", spec.get(field) if field == "nodeName" else spec.get(field) or "")


def _node_or_selector_faults(given: list[str], place: Document, path: str, when_empty: str) -> Faults:
    """The node or the nodes of a slice or a device. Adds to `given` which of the fields are set."""
    node, selector = place.get("nodeName"), place.get("nodeSelector")
    if node is not None and not node:
        yield invalid(f"{path}.nodeName", node, when_empty)
    elif node is not None:
        given.append("`nodeName`")
        yield from name_faults(dns_subdomain, node, f"{path}.nodeName")
    if selector is not None:
        given.append("`nodeSelector`")
        yield from node_selector_faults(selector, f"{path}.nodeSelector")


def _node_faults(spec: Document, path: str) -> Faults:
    """Where the devices of a slice are: in one of four ways."""
    given: list[str] = []
    yield from _node_or_selector_faults(given, spec, path, "must be either unset or set to a non-empty string")
    if spec.get("nodeSelector") is not None:
        terms = spec["nodeSelector"].get("nodeSelectorTerms") or []
        if len(terms) != 1:
            here = f"{path}.nodeSelector.nodeSelectorTerms"
            yield invalid(here, internal_terms(terms), "must have exactly one node selector term")
    for field in ("allNodes", "perDeviceNodeSelection"):
        if spec.get(field):
            given.append(f"`{field}`")
        elif spec.get(field) is not None:
            yield invalid(f"{path}.{field}", spec[field], _UNSET_OR_TRUE)
    if not given:
        yield required(path, _NODES)
    elif len(given) > 1:
        yield invalid(path, f"{{{', '.join(given)}}}", f"{_NODES}, but multiple fields are set")


def _counter_set_faults(counters: Document, path: str) -> Faults:
    yield from declared_label_faults(counters.get("name"), f"{path}.name")
    yield from _counters_faults(counters.get("counters") or {}, f"{path}.counters")


def _consumption_faults(consumption: Document, path: str) -> Faults:
    yield from declared_label_faults(consumption.get("counterSet"), f"{path}.counterSet")
    yield from _counters_faults(consumption.get("counters") or {}, f"{path}.counters")


def _counters_faults(counters: Document, path: str) -> Faults:
    if not counters:
        yield from declared([required(path)])
        return
    yield from map_faults(counters, _MAX_COUNTERS, MAX_DRIVER, _counter_name_faults, _no_faults, path)


def _counter_name_faults(name: Any, path: str) -> Faults:
    yield from declared(label_name_faults(name, path))


def _no_faults(item: Any, path: str) -> Faults:
    yield from ()


def _device_faults(known: dict[Any, Document], per_device: bool, device: Document, path: str) -> Faults:
    yield from label_name_faults(device.get("name"), f"{path}.name")
    attributes, capacities = device.get("attributes") or {}, device.get("capacity") or {}
    if len(attributes) + len(capacities) > _MAX_PROPERTIES:
        too_many = f"the total number of attributes and capacities must not exceed {_MAX_PROPERTIES}"
        yield invalid(path, len(attributes) + len(capacities), too_many)
    if len(attributes) > _MAX_VALUES:
        too_many = f"the total number of attribute values must not exceed {_MAX_VALUES}"
        yield invalid(path, len(attributes), too_many)
    longest = MAX_DRIVER + 1 + MAX_ID
    yield from map_faults(attributes, -1, longest, qualified_faults, _attribute_faults, f"{path}.attributes")
    before = known.get(device.get("name")) or {}
    if not before or (before.get("capacity") or {}) != capacities:
        shared = bool(device.get("allowMultipleAllocations"))
        rules = shared_capacity_faults if shared else single_capacity_faults
        yield from map_faults(capacities, -1, longest, qualified_faults, rules, f"{path}.capacity")
    taints = child_list(device, "taints")
    if not before or child_list(before, "taints") != taints:
        yield from list_faults(taints, _MAX_TAINTS, taint_faults, f"{path}.taints", declared_size=False)
    yield from set_faults(
        child_list(device, "consumesCounters"),
        _MAX_CONSUMPTIONS,
        _consumption_faults,
        lambda consumption: consumption.get("counterSet") or "",
        f"{path}.consumesCounters",
        order=_COUNTER_ORDER,
    )
    yield from _device_node_faults(device, path, per_device)
    yield from binding_condition_faults(device, path)


def _attribute_faults(attribute: Document, path: str) -> Faults:
    given = [name for name in _ATTRIBUTE_KINDS if attribute.get(name) is not None]
    if attribute.get("string") is not None:
        yield from _text_faults(attribute["string"], f"{path}.string")
    if attribute.get("version") is not None:
        version = attribute["version"]
        if not _SEMVER.fullmatch(version):
            detail = "must be a string compatible with semver.org spec 2.0.0"
            yield invalid(f"{path}.version", version, detail)
        yield from _text_faults(version, f"{path}.version")
    choices = ", ".join(f"`{name}`" for name in _ATTRIBUTE_KINDS)
    if not given:
        yield from declared([invalid(path, "", f"must specify one of: {choices}")])
    elif len(given) > 1:
        shown = f"{{{', '.join(given)}}}"
        yield from declared([invalid(path, shown, f"must specify exactly one of: {choices}")])


def _text_faults(text: str, path: str) -> Faults:
    if len(text.encode()) > _MAX_TEXT:
        yield too_long(path, _MAX_TEXT)


def _device_node_faults(device: Document, path: str, per_device: bool) -> Faults:
    node, selector, everywhere = device.get("nodeName"), device.get("nodeSelector"), device.get("allNodes")
    if not per_device:
        if node is not None or selector is not None or everywhere is not None:
            detail = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
            yield invalid(path, None, detail)
        return
    given: list[str] = []
    yield from _node_or_selector_faults(given, device, path, "must not be empty")
    if everywhere:
        given.append("`allNodes`")
    elif everywhere is not None:
        yield invalid(f"{path}.allNodes", everywhere, _UNSET_OR_TRUE)
    if not given:
        yield required(path, _DEVICE_NODES)
    elif len(given) > 1:
        yield invalid(path, f"{{{', '.join(given)}}}", _DEVICE_NODES)
