"""Validation of ComputeResources, in Node status and in NodeComputeResources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from wharfinger.api.fields import FieldError, duplicate, forbidden, invalid, required
from wharfinger.api.validation.resources import is_extended

RESERVED = ("deviceUnits", "owner", "isolationGuarantee")
"""Fields that the design document reserves for future use."""


def compute_resources_faults(resources: Sequence[Mapping[str, Any]], path: str) -> Iterator[FieldError]:
    """Within a node, names and (resource, properties) pairs are unique, and a device is in one ComputeResource only."""
    names: set[str] = set()
    sets: set[tuple[Any, ...]] = set()
    owned: set[tuple[str, str]] = set()
    for index, resource in enumerate(resources):
        here = f"{path}[{index}]"
        name, raw = resource.get("name") or "", resource.get("resourceName") or ""
        for field in RESERVED:
            if resource.get(field) is not None:
                yield forbidden(f"{here}.{field}", "reserved for future use")
        if not raw:
            yield required(f"{here}.resourceName")
        elif not is_extended(raw):
            yield invalid(f"{here}.resourceName", raw, "must be the qualified name of an extended resource")
        if not name:
            yield required(f"{here}.name")
        elif name in names:
            yield duplicate(f"{here}.name", name)
        names.add(name)
        kind = (raw, *sorted((resource.get("properties") or {}).items()))
        if kind in sets:
            detail = "another ComputeResource of the node has the same resourceName and properties"
            yield invalid(f"{here}.properties", resource.get("properties") or {}, detail)
        sets.add(kind)
        yield from _device_faults(resource, raw, here, owned)


def _device_faults(
    resource: Mapping[str, Any], raw: str, path: str, owned: set[tuple[str, str]]
) -> Iterator[FieldError]:
    devices = resource.get("devices") or ()
    for index, device in enumerate(devices):
        if not device:
            yield required(f"{path}.devices[{index}]")
        elif (raw, device) in owned:
            yield duplicate(f"{path}.devices[{index}]", device)
        owned.add((raw, device))
    seen: set[str] = set()
    for index, device in enumerate(resource.get("allocatableDevices") or ()):
        here = f"{path}.allocatableDevices[{index}]"
        if device in seen:
            yield duplicate(here, device)
        elif device not in devices:
            yield invalid(here, device, "must be listed in devices")
        seen.add(device)
