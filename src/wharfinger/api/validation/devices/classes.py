"""Validation of DeviceClasses and DeviceTaintRules."""

from __future__ import annotations

from functools import partial

from wharfinger.api.fields import FieldError, invalid, not_supported, required, too_many
from wharfinger.api.names import label_value, qualified_name
from wharfinger.api.registry import Document
from wharfinger.api.validation.common import name_faults
from wharfinger.api.validation.devices.claims import EFFECTS, MAX_CONFIGS, configuration_faults, selectors_faults
from wharfinger.api.validation.devices.conditions import conditions_faults
from wharfinger.api.validation.devices.wording import (
    Faults,
    child_list,
    declared,
    driver_faults,
    key_faults,
    label_name_faults,
    list_faults,
    ordered,
    pool_faults,
)

_MAX_CONDITIONS = 8


def class_faults(document: Document, old: Document | None) -> list[FieldError]:
    return ordered(_class_faults(document.get("spec") or {}, None if old is None else old.get("spec") or {}))


def _class_faults(spec: Document, before: Document | None) -> Faults:
    yield from selectors_faults(spec, "spec.selectors")
    configs = child_list(spec, "config")
    stored = before is not None and child_list(before, "config") == configs
    yield from list_faults(configs, MAX_CONFIGS, partial(configuration_faults, stored=stored), "spec.config")
    if spec.get("extendedResourceName") is not None:
        name = spec["extendedResourceName"]
        yield from declared(_extended_name_faults(name, "spec.extendedResourceName"))


def _extended_name_faults(name: str, path: str) -> Faults:
    if "/" not in name:
        yield invalid(path, name, "a name must be a domain-prefixed path, such as 'example.com/my-prop'")
    elif "kubernetes.io/" in name:
        yield invalid(path, name, 'must not have "kubernetes.io/" domain')
    if name.startswith("requests."):
        yield invalid(path, name, 'must not have "requests." prefix')
    for fault in qualified_name(f"requests.{name}"):
        yield invalid(path, name, fault)


def taint_rule_faults(document: Document, old: Document | None) -> list[FieldError]:
    spec = document.get("spec") or {}
    before = None if old is None else ((old.get("spec") or {}).get("taint") or {})
    return ordered([*_device_choice_faults(spec), *taint_faults(spec.get("taint") or {}, "spec.taint", before)])


def taint_rule_status_faults(document: Document, old: Document | None) -> list[FieldError]:
    conditions = child_list(document.get("status") or {}, "conditions")
    faults = list(conditions_faults(conditions, "status.conditions"))
    if len(conditions) > _MAX_CONDITIONS:
        faults.append(too_many("status.conditions", len(conditions), _MAX_CONDITIONS))
    return faults


def _device_choice_faults(spec: Document) -> Faults:
    chosen = spec.get("deviceSelector") or {}
    for name, rules in (("driver", driver_faults), ("pool", pool_faults), ("device", label_name_faults)):
        if chosen.get(name) is not None:
            yield from rules(chosen[name], f"spec.deviceSelector.{name}")


def taint_faults(taint: Document, path: str, before: Document | None = None) -> Faults:
    yield from key_faults(taint.get("key"), f"{path}.key")
    if taint.get("value"):
        yield from name_faults(label_value, taint["value"], f"{path}.value")
    effect = taint.get("effect") or ""
    if before is None or effect != before.get("effect"):
        if not effect:
            yield from declared([required(f"{path}.effect")])
        elif effect not in EFFECTS:
            yield from declared([not_supported(f"{path}.effect", effect, EFFECTS)])
