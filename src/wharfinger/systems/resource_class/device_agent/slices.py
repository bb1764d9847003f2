"""The ResourceSlices that a node publishes for the devices of its plugins. Pure.

Properties become attributes of the driver's domain: text, whole numbers, truth values, or capacities where they are
quantities with a suffix. Devices that are not healthy have a taint.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import NamedTuple

from wharfinger.api.names import dns_label
from wharfinger.api.quantity import BadQuantity, canonical
from wharfinger.api.registry import Document
from wharfinger.systems.resource_class.device_agent.inventory import ReportedDevice

DEVICES_PER_SLICE = 64  # the limit for devices with taints
UNHEALTHY = {"key": "wharfinger.dev/unhealthy", "effect": "NoSchedule"}
RESOURCE, ID = "resourceName", "id"
"""Attributes with the extended resource and the ID that the plugin knows a device by."""

_MOST_ATTRIBUTES = 32
_LONGEST_TEXT = 64
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}")
_WHOLE = re.compile(r"-?[0-9]{1,18}")


class PluginDevice(NamedTuple):
    """A device as its plugin knows it."""

    resource: str
    id: str


Reported = Mapping[str, Mapping[str, ReportedDevice]]
"""Devices by extended resource and ID."""


def device_names(reported: Reported) -> dict[PluginDevice, str]:
    """The name of each device in slices: its ID, if that can be a name that no other device has."""
    devices = [PluginDevice(resource, id) for resource in sorted(reported) for id in sorted(reported[resource])]
    plain = [each.id for each in devices]
    return {
        each: each.id if not dns_label(each.id) and plain.count(each.id) == 1 else _hashed(each) for each in devices
    }


def _hashed(device: PluginDevice) -> str:
    digest = sha256("\0".join(device).encode()).hexdigest()[:10]
    readable = re.sub(r"[^a-z0-9]+", "-", device.id.lower())[:40].strip("-")
    return f"{readable}-{digest}" if readable else f"device-{digest}"


def pool_devices(reported: Reported) -> list[Document]:
    """All devices of the node's pool, by name."""
    names = device_names(reported)
    return sorted((_device(each, names[each], reported[each.resource][each.id]) for each in names), key=_name)


def _name(device: Document) -> str:
    return str(device["name"])


def _device(device: PluginDevice, name: str, reported: ReportedDevice) -> Document:
    made: Document = {"name": name, "attributes": {ID: {"string": device.id[:_LONGEST_TEXT]}}}
    if len(device.resource) <= _LONGEST_TEXT:
        made["attributes"][RESOURCE] = {"string": device.resource}
    for key, value in sorted(reported.properties.items()):
        if not _NAME.fullmatch(key) or key in (ID, RESOURCE) or _count(made) == _MOST_ATTRIBUTES:
            continue
        amount = _capacity(value)
        if amount is not None:
            made.setdefault("capacity", {})[key] = {"value": amount}
        elif len(value) <= _LONGEST_TEXT:
            made["attributes"][key] = _attribute(value)
    if not reported.healthy:
        made["taints"] = [dict(UNHEALTHY)]
    return made


def _count(device: Document) -> int:
    return len(device["attributes"]) + len(device.get("capacity") or ())


def _attribute(value: str) -> Document:
    if value in ("true", "false"):
        return {"bool": value == "true"}
    return {"int": int(value)} if _WHOLE.fullmatch(value) else {"string": value}


def _capacity(value: str) -> str | None:
    """A quantity with a suffix; a plain number may be anything."""
    if not value[:1].isdigit() or value[-1:].isdigit():
        return None
    try:
        return canonical(value)
    except BadQuantity:
        return None


def pool_slices(driver: str, node: Document, devices: list[Document], generation: int) -> Iterator[Document]:
    """The slices of the node's pool. There is always one, so that it is known that there are no devices."""
    metadata = node["metadata"]
    count = max(1, -(-len(devices) // DEVICES_PER_SLICE))
    owner = {"apiVersion": "v1", "kind": "Node", "name": metadata["name"], "uid": metadata["uid"], "controller": True}
    for number in range(count):
        part = devices[number * DEVICES_PER_SLICE : (number + 1) * DEVICES_PER_SLICE]
        yield {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": slice_name(driver, metadata["name"], number), "ownerReferences": [owner]},
            "spec": {
                "driver": driver,
                "nodeName": metadata["name"],
                "pool": {"name": metadata["name"], "generation": generation, "resourceSliceCount": count},
                **({"devices": part} if part else {}),
            },
        }


def slice_name(driver: str, node: str, number: int) -> str:
    name = f"{node}-{driver}-{number}"
    if len(name) <= 253:
        return name
    return f"{node[:120]}-{sha256(name.encode()).hexdigest()[:16]}-{number}"
