"""Constraints between the devices of a claim: an attribute that they must share, or that must differ."""

from __future__ import annotations

from typing import Any

from wharfinger.devices.claims import DeviceRequest
from wharfinger.devices.slices import Device, Document

_KINDS = ("string", "int", "bool", "version")
Value = tuple[str, Any]
"""Type and value of an attribute."""


class DeviceConstraint:
    """Once a constraint refuses a device, it refuses it whatever else is added."""

    __slots__ = ("attribute", "distinct", "requests", "values")

    def __init__(self, document: Document) -> None:
        self.distinct = document.get("matchAttribute") is None
        self.attribute: str = document.get("distinctAttribute" if self.distinct else "matchAttribute") or ""
        self.requests = frozenset(document.get("requests") or ())
        self.values: list[Value] = []  # of the devices added so far

    def __str__(self) -> str:
        return f"{'distinctAttribute' if self.distinct else 'matchAttribute'} {self.attribute}"

    def concerns(self, request: DeviceRequest) -> bool:
        return not self.requests or request.base in self.requests or request.qualified in self.requests

    def add(self, request: DeviceRequest, device: Device) -> bool:
        """Whether the device may be added; if so, it is."""
        if not self.concerns(request):
            return True
        value = attribute_value(device.attribute(self.attribute))
        if value is None or (value[0] not in _KINDS and self.values):
            return False
        if self.values and ((value in self.values) if self.distinct else value != self.values[0]):
            return False
        self.values.append(value)
        return True

    def remove(self, request: DeviceRequest) -> None:
        if self.concerns(request):
            self.values.pop()


def known(document: Document) -> bool:
    """Whether this version of the rules knows the kind of constraint."""
    return document.get("matchAttribute") is not None or document.get("distinctAttribute") is not None


def attribute_value(attribute: Document | None) -> Value | None:
    if attribute is None:
        return None
    return next(((kind, attribute[kind]) for kind in _KINDS if attribute.get(kind) is not None), ("", None))
