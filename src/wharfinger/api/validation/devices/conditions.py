"""Validation of conditions: those that devices and taint rules have, and those that a device must have before binding."""

from __future__ import annotations

import re
from collections.abc import Sequence

from wharfinger.api.fields import duplicate, invalid, not_supported, required, too_long
from wharfinger.api.registry import Document
from wharfinger.api.validation.devices.wording import Faults, child_list, key_faults, list_faults

_MAX_BINDING_CONDITIONS = 4
_MAX_REASON = 1024
_MAX_MESSAGE = 32 * 1024
_STATUSES = ("False", "True", "Unknown")
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_REASON_MESSAGE = (
    "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric "
    "characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or "
    "'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is "
    "'[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')"
)


def conditions_faults(conditions: Sequence[Document], path: str) -> Faults:
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        type = condition.get("type") or ""
        if type in seen:
            yield duplicate(f"{path}[{index}]", type)
        seen.add(type)
        yield from _condition_faults(condition, f"{path}[{index}]")


def _condition_faults(condition: Document, path: str) -> Faults:
    type, status = condition.get("type") or "", condition.get("status") or ""
    if not type:
        yield required(f"{path}.type", "is required")
    else:
        yield from key_faults(type, f"{path}.type")
    if not status:
        yield required(f"{path}.status")
    elif status not in _STATUSES:
        yield not_supported(f"{path}.status", status, _STATUSES)
    generation = condition.get("observedGeneration") or 0
    if generation < 0:
        yield invalid(f"{path}.observedGeneration", generation, "must be greater than or equal to zero")
    if not condition.get("lastTransitionTime"):
        yield required(f"{path}.lastTransitionTime")
    reason = condition.get("reason") or ""
    if not reason:
        yield required(f"{path}.reason")
    else:
        if not _REASON.fullmatch(reason):
            yield invalid(f"{path}.reason", reason, _REASON_MESSAGE)
        if len(reason.encode()) > _MAX_REASON:
            yield too_long(f"{path}.reason", _MAX_REASON)
    if len((condition.get("message") or "").encode()) > _MAX_MESSAGE:
        yield too_long(f"{path}.message", _MAX_MESSAGE)


def binding_condition_faults(owner: Document, path: str) -> Faults:
    """Conditions that a device must get, or must not get, before a pod is bound."""
    wanted, failed = child_list(owner, "bindingConditions"), child_list(owner, "bindingFailureConditions")
    for name, conditions in (("bindingConditions", wanted), ("bindingFailureConditions", failed)):
        yield from list_faults(conditions, _MAX_BINDING_CONDITIONS, key_faults, f"{path}.{name}")
    for index, condition in enumerate(wanted):
        if condition in wanted[:index]:
            yield duplicate(f"{path}.bindingConditions[{index}]", condition)
    for index, condition in enumerate(failed):
        here = f"{path}.bindingFailureConditions[{index}]"
        if condition in failed[:index]:
            yield duplicate(here, condition)
        if condition in wanted:
            yield invalid(here, condition, "bindingFailureConditions must not overlap with bindingConditions")
    if failed and not wanted:
        detail = "bindingConditions are required to use bindingFailureConditions"
        yield invalid(f"{path}.bindingConditions", owner.get("bindingConditions"), detail)
    if wanted and not failed:
        detail = "bindingFailureConditions are required to use bindingConditions"
        yield invalid(f"{path}.bindingFailureConditions", owner.get("bindingFailureConditions"), detail)
