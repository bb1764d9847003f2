"""Groups of devices: whether a node has as many as the extended resources of a pod need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from wharfinger.devices.claims import ClaimSpec, DeviceRequest
from wharfinger.devices.constraints import Value, attribute_value
from wharfinger.devices.slices import Device


def enough_groups(spec: ClaimSpec, usable: Callable[[DeviceRequest], Sequence[Device]]) -> bool:
    """False if there are fewer groups of usable devices than a claim for extended resources asks for. The search would find
    that out as well, but only after all orders of equal groups."""
    requests = {each.name: each.exactly for each in spec.requests}
    wanted: Counter[tuple[str, str, int]] = Counter()
    examples: dict[tuple[str, str, int], DeviceRequest] = {}
    for constraint in spec.constraints:
        request = requests[constraint["requests"][0]]
        assert request is not None  # the claim is ours
        kind = (request.class_name, constraint["matchAttribute"], request.count)
        wanted[kind] += 1
        examples[kind] = request
    return all(
        groups_of(usable(examples[kind]), attribute, size) >= count
        for kind, count in wanted.items()
        for _, attribute, size in (kind,)
    )


def groups_of(devices: Sequence[Device], attribute: str, size: int) -> float:
    """How many groups of equal value the devices make; without limit where several claims can have one device."""
    if any(each.allow_multiple for each in devices):
        return float("inf")
    values: Counter[Value] = Counter()
    for device in devices:
        value = attribute_value(device.attribute(attribute))
        if value is not None:
            values[value] += 1
    return sum(count // size for count in values.values())
