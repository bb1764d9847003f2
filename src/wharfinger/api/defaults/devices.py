"""Defaults of the kinds of dynamic resource allocation, and fields that the server drops because their feature is off.

A taint without a time gets that of the object's creation; admission sets the time of taints that are added later.
"""

from __future__ import annotations

from collections.abc import Iterator

from wharfinger.api.defaults.walk import canonical_quantity, child, children, fill, fill_number, fill_text
from wharfinger.api.quantity import BadQuantity, canonical
from wharfinger.api.registry import Document

LIST_ATTRIBUTES = ("ints", "bools", "strings", "versions")


def default_claim(document: Document) -> None:
    _default_devices(child(child(document, "spec"), "devices"))
    for result in children(child(child(child(document, "status"), "allocation"), "devices"), "results"):
        for toleration in children(result, "tolerations"):
            fill_text(toleration, operator="Equal")
        _canonical_values(child(result, "consumedCapacity"))


def default_claim_template(document: Document) -> None:
    _default_devices(child(child(child(document, "spec"), "spec"), "devices"))


def _default_devices(devices: Document) -> None:
    for request in device_requests(devices):
        fill_text(request, allocationMode="ExactCount")
        if request.get("allocationMode") == "ExactCount":
            fill_number(request, count=1)
        for toleration in children(request, "tolerations"):
            fill_text(toleration, operator="Equal")
        _canonical_values(child(child(request, "capacity"), "requests"))


def device_requests(devices: Document) -> Iterator[Document]:
    """What is asked for exactly, and the alternatives of prioritized lists."""
    for request in children(devices, "requests"):
        if isinstance(request.get("exactly"), dict):
            yield request["exactly"]
        yield from children(request, "firstAvailable")


def _canonical_values(quantities: Document) -> None:
    canonical_quantity(quantities, *quantities)


def default_slice(document: Document) -> None:
    spec = child(document, "spec")
    for counters in children(spec, "sharedCounters"):
        _default_counters(counters)
    for device in children(spec, "devices"):
        for taint in children(device, "taints"):
            _default_taint(taint, document)
        for counters in children(device, "consumesCounters"):
            _default_counters(counters)
        for capacity in child(device, "capacity").values():
            if isinstance(capacity, dict):
                _default_capacity(capacity)


def _default_counters(owner: Document) -> None:
    for counter in child(owner, "counters").values():
        if isinstance(counter, dict):
            canonical_quantity(counter, "value")


def _default_capacity(capacity: Document) -> None:
    canonical_quantity(capacity, "value")
    policy = child(capacity, "requestPolicy")
    canonical_quantity(policy, "default")
    canonical_quantity(child(policy, "validRange"), "min", "max", "step")
    values = policy.get("validValues")
    if isinstance(values, list):
        try:
            policy["validValues"] = [canonical(value) for value in values]
        except (BadQuantity, ValueError, OverflowError, TypeError):
            return  # validation reports it


def default_taint_rule(document: Document) -> None:
    _default_taint(child(child(document, "spec"), "taint"), document)


def _default_taint(taint: Document, document: Document) -> None:
    created = child(document, "metadata").get("creationTimestamp")
    if created and not child(document, "metadata").get("resourceVersion"):
        fill(taint, timeAdded=created)


def prepare_slice(document: Document) -> None:
    """Drops fields of features that are off by default."""
    spec = child(document, "spec")
    for name in ("partitionTypeAttribute", "skipNodeOperations"):
        spec.pop(name, None)
    for device in children(spec, "devices"):
        for name in ("nodeAllocatableResources", "nodeAllocatableResourceMappings"):
            device.pop(name, None)
        for consumption in children(device, "consumesCounters"):
            consumption.pop("compatibilityGroups", None)
        for attribute in child(device, "attributes").values():
            if isinstance(attribute, dict):
                for name in LIST_ATTRIBUTES:
                    attribute.pop(name, None)


def prepare_slice_update(new: Document, old: Document) -> None:
    prepare_slice(new)


def prepare_claim(document: Document) -> None:
    for request in device_requests(child(child(document, "spec"), "devices")):
        request.pop("derivedAttributes", None)


def prepare_claim_update(new: Document, old: Document) -> None:
    prepare_claim(new)


def prepare_claim_template(document: Document) -> None:
    prepare_claim(child(document, "spec"))


def prepare_claim_template_update(new: Document, old: Document) -> None:
    prepare_claim_template(new)


def prepare_claim_status(new: Document, old: Document) -> None:
    """Drops the status of devices that are no longer allocated, so that no client has to."""
    status = child(new, "status")
    for result in allocation_results(new):
        result.pop("skipNodeOperations", None)
    kept = {device_key(result) for result in allocation_results(new)}
    gone = {device_key(result) for result in allocation_results(old)} - kept
    devices = status.get("devices")
    if isinstance(devices, list) and gone:
        devices = [device for device in devices if not (isinstance(device, dict) and device_key(device) in gone)]
        if devices:
            status["devices"] = devices
        else:
            del status["devices"]


def allocation_results(claim: Document) -> list[Document]:
    """The devices that are allocated to a claim."""
    return list(children(child(child(child(claim, "status"), "allocation"), "devices"), "results"))


DeviceKey = tuple[str, str, str, str]
"""Driver, pool, device and, for one of several allocations of a device, its share."""


def device_key(entry: Document) -> DeviceKey:
    return (
        str(entry.get("driver") or ""),
        str(entry.get("pool") or ""),
        str(entry.get("device") or ""),
        str(entry.get("shareID") or ""),
    )
