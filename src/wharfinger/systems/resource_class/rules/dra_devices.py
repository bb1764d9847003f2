"""DRA devices as ComputeResources: what ResourceSlices publish, with attributes and capacities as properties. Read-only.

The status of ResourceClaims says which devices are in use.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from wharfinger.api.defaults.devices import allocation_results
from wharfinger.api.quantity import BadQuantity, canonical
from wharfinger.api.registry import Document

DeviceName = tuple[str, str, str]
"""Driver, pool and device."""
EVERYWHERE = "*"
"""Stands for the node of devices that several nodes can reach."""


def driver_resource(driver: str) -> str:
    """The name under which the devices of a driver are shown; nobody can ask for it."""
    return f"{driver}/devices"


class DeviceGroup(msgspec.Struct):
    """The devices of a driver on a node that have the same properties."""

    node: str
    driver: str
    properties: Mapping[str, str]
    devices: list[DeviceName] = msgspec.field(default_factory=list)
    used: int = 0
    reserved: int = 0  # held by reservations, and not used

    @property
    def free(self) -> int:
        return len(self.devices) - self.used - self.reserved


def device_groups(
    slices: Iterable[Document], claims: Iterable[Document] = (), held: Collection[DeviceName] = ()
) -> list[DeviceGroup]:
    """What is published in the newest generation of each pool, by node, driver and properties. `held` are the devices that
    reservations hold."""
    used = {
        _name_of(result) for claim in claims for result in allocation_results(claim) if not result.get("adminAccess")
    }
    groups: dict[tuple[str, str, tuple[tuple[str, str], ...]], DeviceGroup] = {}
    for slice in _newest(slices):
        spec = slice.get("spec") or {}
        driver, pool = spec.get("driver") or "", (spec.get("pool") or {}).get("name") or ""
        for device in spec.get("devices") or ():
            node = spec.get("nodeName") or device.get("nodeName") or EVERYWHERE
            properties = device_properties(device, driver)
            key = (node, driver, tuple(sorted(properties.items())))
            group = groups.setdefault(key, DeviceGroup(node, driver, properties))
            name = (driver, pool, device.get("name") or "")
            group.devices.append(name)
            group.used += name in used
            group.reserved += name in held and name not in used
    return [groups[key] for key in sorted(groups)]


def _newest(slices: Iterable[Document]) -> list[Document]:
    found = list(slices)
    newest: dict[tuple[str, str], int] = {}
    for slice in found:
        key, generation = _pool(slice)
        newest[key] = max(newest.get(key, generation), generation)
    return [slice for slice in found if newest[_pool(slice)[0]] == _pool(slice)[1]]


def _pool(slice: Document) -> tuple[tuple[str, str], int]:
    spec = slice.get("spec") or {}
    pool = spec.get("pool") or {}
    return (spec.get("driver") or "", pool.get("name") or ""), int(pool.get("generation") or 0)


def _name_of(result: Document) -> DeviceName:
    return result.get("driver") or "", result.get("pool") or "", result.get("device") or ""


def device_properties(device: Document, driver: str) -> dict[str, str]:
    """Attributes and capacities as text; those of the driver's own domain without it."""
    found: dict[str, str] = {}
    for name, attribute in (device.get("attributes") or {}).items():
        values = (attribute.get(kind) for kind in ("string", "version", "int", "bool"))
        value = next((each for each in values if each is not None), None)
        if value is not None:
            found[_short(name, driver)] = str(value).lower() if isinstance(value, bool) else str(value)
    for name, capacity in (device.get("capacity") or {}).items():
        try:
            found[_short(name, driver)] = canonical(capacity.get("value") or "0")
        except BadQuantity:
            continue
    return found


def _short(name: str, driver: str) -> str:
    return name.removeprefix(f"{driver}/")
