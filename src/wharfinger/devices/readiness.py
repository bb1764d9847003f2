"""Binding conditions: whether the devices of an allocated claim are ready for its pods."""

from __future__ import annotations

from collections.abc import Sequence

from wharfinger.api.times import parse_time
from wharfinger.devices.claims import Claim, results_of
from wharfinger.devices.slices import Document


class DevicesFailed(Exception):
    """A device cannot be made ready."""


def waits_for_devices(claim: Claim) -> bool:
    """Whether a device of the claim has binding conditions."""
    return any(each.get("bindingConditions") for each in results_of(claim.allocation))


def is_ready(claim: Claim) -> bool:
    """Whether all binding conditions are true. Raises DevicesFailed."""
    if claim.allocation is None:
        return False
    for result in results_of(claim.allocation):
        wanted: Sequence[str] = result.get("bindingConditions") or ()
        if not wanted:
            continue
        conditions = _conditions(claim, result)
        if conditions is None:
            return False
        for name in result.get("bindingFailureConditions") or ():
            failed = conditions.get(name)
            if failed is not None and failed.get("status") == "True":
                raise DevicesFailed(
                    f"device binding failed: claim={claim.name}, reason={failed.get('reason', '')},"
                    f' message="{failed.get("message", "")}"'
                )
        for name in wanted:
            if (conditions.get(name) or {}).get("status") != "True":
                return False
    return True


def deadline(claim: Claim, timeout: float) -> float | None:
    """When the devices must be ready, in seconds since the epoch; None if they need not be."""
    allocation = claim.allocation or {}
    since = allocation.get("allocationTimestamp")
    if since is None or not any(each.get("bindingConditions") is not None for each in results_of(allocation)):
        return None
    return parse_time(since) + timeout


def is_unusable(claim: Claim, now: float, timeout: float) -> bool:
    """Whether the devices cannot be made ready, or were not in time."""
    try:
        if is_ready(claim):
            return False
    except DevicesFailed:
        return True
    until = deadline(claim, timeout)
    return until is not None and until < now


def _conditions(claim: Claim, result: Document) -> dict[str, Document] | None:
    """The conditions of an allocated device by type; None if the driver has not reported any status."""
    for device in claim.status.get("devices") or ():
        if all(device.get(part) == result.get(part) for part in ("device", "driver", "pool")):
            return {each.get("type", ""): each for each in device.get("conditions") or ()}
    return None
