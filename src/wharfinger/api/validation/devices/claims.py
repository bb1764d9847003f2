"""Validation of ResourceClaims and ResourceClaimTemplates: the requests, constraints and configuration of a claim."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from wharfinger.api.fields import FieldError, immutable, invalid, not_supported, required
from wharfinger.api.names import dns_subdomain, label_value, qualified_name
from wharfinger.api.registry import Document
from wharfinger.api.validation.common import name_faults
from wharfinger.api.validation.devices.internal_types import internal_template
from wharfinger.api.validation.devices.wording import (
    Faults,
    child_list,
    declared,
    declared_driver_faults,
    declared_qualified_faults,
    declared_subdomain,
    label_name_faults,
    list_faults,
    ordered,
    raw_faults,
    set_faults,
)
from wharfinger.api.validation.selectors import annotations_faults, labels_faults

MAX_REQUESTS = 32
MAX_CONFIGS = 32
_MAX_CONSTRAINTS = 32
_MAX_SELECTORS = 32
_MAX_ALTERNATIVES = 8
_MAX_PARAMETERS = 10 * 1024
EFFECTS = ("NoExecute", "NoSchedule", "None")
_OPERATORS = ("Equal", "Exists")
_MODES = ("All", "ExactCount")
_ONE_KIND = "exactly one of `exactly` or `firstAvailable` is required"
_REFERENCE = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
# Fields of requests in the order of the Go types.
_REQUEST_ORDER = (
    *("name", "exactly", "firstAvailable", "deviceClassName", "selectors", "cel", "expression", "allocationMode"),
    *("count", "adminAccess", "tolerations", "key", "operator", "value", "effect", "tolerationSeconds", "capacity"),
    "requests",
)

RequestNames = Mapping[str, frozenset[str]]
"""The requests of a claim, and the alternatives of each."""


def claim_faults(document: Document, old: Document | None) -> list[FieldError]:
    spec = document.get("spec") or {}
    if old is not None:
        changed = spec != (old.get("spec") or {})
        return list(declared([_immutable_spec()])) if changed else []
    return ordered(_spec_faults(spec, "spec"))


def _immutable_spec() -> FieldError:
    return invalid("spec", None, "field is immutable")


def claim_template_faults(document: Document, old: Document | None) -> list[FieldError]:
    spec = document.get("spec") or {}
    metadata = spec.get("metadata") or {}
    faults = [
        *labels_faults(metadata.get("labels") or {}, "spec.metadata.labels"),
        *annotations_faults(metadata.get("annotations") or {}, "spec.metadata.annotations"),
        *_spec_faults(spec.get("spec") or {}, "spec.spec"),
    ]
    if old is not None and spec != (old.get("spec") or {}):
        faults.append(immutable("spec", internal_template(spec)))
    return ordered(faults)


def _spec_faults(spec: Document, path: str) -> Faults:
    devices = spec.get("devices") or {}
    path = f"{path}.devices"
    names = request_names(devices)
    yield from set_faults(
        child_list(devices, "requests"),
        MAX_REQUESTS,
        _request_faults,
        lambda request: request.get("name") or "",
        f"{path}.requests",
        order=_REQUEST_ORDER,
    )
    constraint = partial(_constraint_faults, names)
    yield from list_faults(child_list(devices, "constraints"), _MAX_CONSTRAINTS, constraint, f"{path}.constraints")
    config = partial(_claim_configuration_faults, names)
    yield from list_faults(child_list(devices, "config"), MAX_CONFIGS, config, f"{path}.config")


def request_names(devices: Document) -> RequestNames:
    return {
        request.get("name") or "": frozenset(each.get("name") or "" for each in child_list(request, "firstAvailable"))
        for request in child_list(devices, "requests")
    }


def _request_faults(request: Document, path: str) -> Faults:
    yield from label_name_faults(request.get("name"), f"{path}.name")
    exactly, alternatives = request.get("exactly"), child_list(request, "firstAvailable")
    if exactly is None and not alternatives:
        yield required(path, _ONE_KIND)
    elif exactly is not None and alternatives:
        yield invalid(path, None, f"{_ONE_KIND}, but multiple fields are set")
    elif alternatives:
        yield from set_faults(
            alternatives,
            _MAX_ALTERNATIVES,
            _alternative_faults,
            lambda each: each.get("name") or "",
            f"{path}.firstAvailable",
            order=_REQUEST_ORDER,
        )
    elif exactly is not None:
        yield from _class_name_faults(exactly.get("deviceClassName"), f"{path}.exactly.deviceClassName")
        yield from _what_faults(exactly, f"{path}.exactly")


def _alternative_faults(request: Document, path: str) -> Faults:
    yield from label_name_faults(request.get("name"), f"{path}.name")
    name, here = request.get("deviceClassName") or "", f"{path}.deviceClassName"
    faults = [invalid(here, name, fault) for fault in declared_subdomain(name)] if name else [required(here)]
    yield from declared(faults)
    yield from _what_faults(request, path)


def _class_name_faults(name: str | None, path: str) -> Faults:
    if not name:
        yield required(path)
    else:
        yield from name_faults(dns_subdomain, name, path)


def _what_faults(request: Document, path: str) -> Faults:
    yield from selectors_faults(request, f"{path}.selectors")
    mode, count = request.get("allocationMode") or "", request.get("count") or 0
    if mode == "All":
        if count:
            yield invalid(f"{path}.count", count, "must not be specified when allocationMode is 'All'")
    elif mode == "ExactCount":
        if count <= 0:
            yield invalid(f"{path}.count", count, "must be greater than zero")
    else:
        yield from declared([not_supported(f"{path}.allocationMode", mode, _MODES)])
    yield from tolerations_faults(request, path)


def selectors_faults(owner: Document, path: str) -> Faults:
    yield from list_faults(child_list(owner, "selectors"), _MAX_SELECTORS, _selector_faults, path)


def _selector_faults(selector: Document, path: str) -> Faults:
    if selector.get("cel") is None:
        yield required(f"{path}.cel")


def tolerations_faults(owner: Document, path: str) -> Faults:
    for index, toleration in enumerate(child_list(owner, "tolerations")):
        yield from _toleration_faults(toleration, f"{path}.tolerations[{index}]")


def _toleration_faults(toleration: Document, path: str) -> Faults:
    key, operator = toleration.get("key") or "", toleration.get("operator") or ""
    value, effect = toleration.get("value") or "", toleration.get("effect") or ""
    if key:
        yield from declared(name_faults(qualified_name, key, f"{path}.key"))
    if operator == "Exists":
        if value:
            yield invalid(f"{path}.value", value, "must be empty for operator `Exists`")
    elif operator == "Equal":
        yield from name_faults(label_value, value, f"{path}.value")
    else:
        yield from declared([not_supported(f"{path}.operator", operator, _OPERATORS)])
    if effect and effect not in EFFECTS:
        yield from declared([not_supported(f"{path}.effect", effect, EFFECTS)])


def _constraint_faults(names: RequestNames, constraint: Document, path: str) -> Faults:
    yield from references_faults(names, constraint, path)
    match, distinct = constraint.get("matchAttribute"), constraint.get("distinctAttribute")
    if match is not None:
        yield from declared_qualified_faults(match, f"{path}.matchAttribute")
    if distinct is not None:
        yield from declared_qualified_faults(distinct, f"{path}.distinctAttribute")
    if match is None and distinct is None:
        detail = 'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
        yield required(path, detail)


def references_faults(names: RequestNames, owner: Document, path: str) -> Faults:
    """The list `requests` of a constraint or of a configuration."""
    reference = partial(reference_faults, names)
    yield from set_faults(child_list(owner, "requests"), MAX_REQUESTS, reference, _itself, f"{path}.requests")


def reference_faults(names: RequestNames, name: str, path: str) -> Faults:
    parts = name.split("/")
    if len(parts) > 2:
        yield invalid(path, name, _REFERENCE)
        return
    for part in parts:
        yield from label_name_faults(part, path)
    if parts[0] not in names or (len(parts) == 2 and parts[1] not in names[parts[0]]):
        yield invalid(path, name, _REFERENCE)


def _itself(item: Any) -> Any:
    return item


def _claim_configuration_faults(names: RequestNames, config: Document, path: str) -> Faults:
    yield from references_faults(names, config, path)
    yield from configuration_faults(config, path)


def configuration_faults(config: Document, path: str, *, stored: bool = False) -> Faults:
    opaque = config.get("opaque")
    if opaque is None:
        yield required(f"{path}.opaque")
        return
    yield from declared_driver_faults(opaque.get("driver"), f"{path}.opaque.driver")
    yield from raw_faults(opaque.get("parameters"), f"{path}.opaque.parameters", _MAX_PARAMETERS, stored=stored)
