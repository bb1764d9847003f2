"""The record of devices that an object which is not a Pod holds for pods to come, such as a Reservation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from wharfinger.devices.claims import device_id, results_of
from wharfinger.devices.slices import DeviceID, Document

HELD_DEVICES = "wharfinger.dev/held-devices"
"""Annotation of the object: the allocation for each claim, by the name that it has in the pod template."""

Allocations = Mapping[str, Document]
_decode = msgspec.json.Decoder(dict[str, dict[str, Any]]).decode


def recorded_devices(annotations: Mapping[str, str]) -> Allocations:
    """The allocations in the annotation; empty if there is none, or none that can be read."""
    text = annotations.get(HELD_DEVICES)
    if not text:
        return {}
    try:
        return _decode(text)
    except msgspec.DecodeError:
        return {}


def devices_record(allocations: Allocations) -> str:
    return msgspec.json.encode(allocations, order="sorted").decode()


def held_devices(annotations: Mapping[str, str]) -> list[DeviceID]:
    """All devices in the annotation."""
    return [device_id(result) for each in recorded_devices(annotations).values() for result in results_of(each)]
