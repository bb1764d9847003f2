"""What `wharf explain` says about devices: for each request and cause, how many devices it rules out, and which."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from wharfinger.devices.diagnosis import RequestDiagnosis
from wharfinger.devices.slices import DeviceID
from wharfinger.framework.explaining import ExplainedTable
from wharfinger.plugins.dynamic_resources.filtering import DevicesPrepared

HEADER = ("node", "claim", "request", "needed", "devices", "verdict", "which")
_USABLE = "usable"


def device_table(prepared: DevicesPrepared, rows: Sequence[int], names: Sequence[str]) -> ExplainedTable | None:
    """A line for each node, request and verdict; None if there is nothing to allocate."""
    lines = [line for row, name in zip(rows, names, strict=True) for line in _lines(prepared.diagnose(row), name)]
    return ExplainedTable("Devices", HEADER, tuple(lines)) if lines else None


def _lines(requests: Sequence[RequestDiagnosis], node: str) -> Iterator[tuple[Any, ...]]:
    for each in requests:
        about = (node, each.claim, each.request, each.needed or "all")
        if each.usable or not (each.causes or each.pools):
            verdict = f"{_USABLE}, {each.together}" if each.together else _USABLE
            yield (*about, len(each.usable), verdict, _which(each.usable))
        for cause, devices in each.causes.items():
            yield (*about, len(devices), cause, _which(devices))
        for pool in each.pools:
            yield (*about, "-", pool, ())


def _which(devices: Sequence[DeviceID]) -> tuple[str, ...]:
    return tuple(f"{each.pool}/{each.device}" for each in devices)
