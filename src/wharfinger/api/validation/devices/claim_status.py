"""Validation of the status of ResourceClaims: the allocation, who it is reserved for, the state of its devices."""

from __future__ import annotations

import ipaddress
from functools import partial

from wharfinger.api.defaults.devices import DeviceKey, allocation_results, device_key
from wharfinger.api.fields import FieldError, forbidden, invalid, not_supported, required, too_long, too_many
from wharfinger.api.registry import Document
from wharfinger.api.validation.devices.claims import (
    MAX_CONFIGS,
    RequestNames,
    configuration_faults,
    reference_faults,
    references_faults,
    request_names,
    tolerations_faults,
)
from wharfinger.api.validation.devices.conditions import binding_condition_faults, conditions_faults
from wharfinger.api.validation.devices.wording import (
    Faults,
    child_list,
    declared,
    declared_driver_faults,
    declared_pool_faults,
    declared_uuid_faults,
    driver_faults,
    label_name_faults,
    list_faults,
    ordered,
    pool_faults,
    raw_faults,
    set_faults,
)
from wharfinger.api.validation.selectors import node_selector_faults

_MAX_CONSUMERS = 256
_MAX_RESULTS = 32
_MAX_CONDITIONS = 8
_MAX_DATA = 10 * 1024
_MAX_ADDRESSES = 16
_SOURCES = ("FromClaim", "FromClass")
_CONSUMER_ORDER = ("apiGroup", "resource", "name", "uid")
_DEVICE_ORDER = ("driver", "pool", "device", "shareID", "conditions", "data", "networkData")


def claim_status_faults(document: Document, old: Document | None) -> list[FieldError]:
    return ordered(_status_faults(document, old or {}))


def _status_faults(document: Document, old: Document) -> Faults:
    status, before = document.get("status") or {}, old.get("status") or {}
    consumers, allocation = child_list(status, "reservedFor"), status.get("allocation")
    yield from set_faults(
        consumers,
        _MAX_CONSUMERS,
        _consumer_faults,
        lambda consumer: consumer.get("uid") or "",
        "status.reservedFor",
        order=_CONSUMER_ORDER,
    )
    allocated = {device_key(result) for result in allocation_results(document)}
    device = partial(_device_status_faults, allocated)
    devices = [{"conditions": None, **each} for each in child_list(status, "devices")]
    yield from set_faults(devices, -1, device, device_key, "status.devices", order=_DEVICE_ORDER)
    if consumers and allocation is None:
        yield forbidden("status.reservedFor", "may not be specified when `allocated` is not set")
    elif consumers and (document.get("metadata") or {}).get("deletionTimestamp"):
        known = child_list(before, "reservedFor")
        if any(consumer not in known for consumer in consumers):
            detail = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
            yield forbidden("status.reservedFor", detail)
    if allocation is not None and before.get("allocation") is not None:
        if allocation != before["allocation"]:
            yield from declared([invalid("status.allocation", None, "field cannot be modified once set")])
    elif allocation is not None:
        names = request_names((document.get("spec") or {}).get("devices") or {})
        yield from _allocation_faults(allocation, names, "status.allocation")


def _consumer_faults(consumer: Document, path: str) -> Faults:
    for name in ("resource", "name", "uid"):
        if not consumer.get(name):
            yield required(f"{path}.{name}")


def _allocation_faults(allocation: Document, names: RequestNames, path: str) -> Faults:
    devices = allocation.get("devices") or {}
    result = partial(_result_faults, names)
    yield from list_faults(child_list(devices, "results"), _MAX_RESULTS, result, f"{path}.devices.results")
    config = partial(_configuration_faults, names)
    yield from list_faults(child_list(devices, "config"), 2 * MAX_CONFIGS, config, f"{path}.devices.config")
    if allocation.get("nodeSelector") is not None:
        yield from node_selector_faults(allocation["nodeSelector"], f"{path}.nodeSelector")


def _result_faults(names: RequestNames, result: Document, path: str) -> Faults:
    yield from reference_faults(names, result.get("request") or "", f"{path}.request")
    yield from declared_driver_faults(result.get("driver"), f"{path}.driver")
    yield from declared_pool_faults(result.get("pool"), f"{path}.pool")
    yield from label_name_faults(result.get("device"), f"{path}.device")
    yield from binding_condition_faults(result, path)
    yield from tolerations_faults(result, path)
    yield from declared_uuid_faults(result.get("shareID"), f"{path}.shareID")


def _configuration_faults(names: RequestNames, config: Document, path: str) -> Faults:
    source = config.get("source") or ""
    if not source:
        yield from declared([required(f"{path}.source")])
    elif source not in _SOURCES:
        yield from declared([not_supported(f"{path}.source", source, _SOURCES)])
    yield from references_faults(names, config, path)
    yield from configuration_faults(config, path)


def _device_status_faults(allocated: set[DeviceKey], device: Document, path: str) -> Faults:
    yield from driver_faults(device.get("driver"), f"{path}.driver")
    yield from pool_faults(device.get("pool"), f"{path}.pool")
    yield from label_name_faults(device.get("device"), f"{path}.device")
    yield from declared_uuid_faults(device.get("shareID"), f"{path}.shareID")
    key = device_key(device)
    if key not in allocated:
        shown = {"Driver": key[0], "Pool": key[1], "Device": key[2], "ShareID": key[3]}
        yield invalid(path, shown, "must be an allocated device in the claim")
    conditions = child_list(device, "conditions")
    if len(conditions) > _MAX_CONDITIONS:
        yield too_many(f"{path}.conditions", len(conditions), _MAX_CONDITIONS)
    yield from conditions_faults(conditions, f"{path}.conditions")
    if device.get("data") is not None:
        yield from raw_faults(device["data"], f"{path}.data", _MAX_DATA)
    yield from _network_faults(device.get("networkData") or {}, f"{path}.networkData")


def _network_faults(data: Document, path: str) -> Faults:
    yield from _declared_size_faults(data.get("interfaceName"), 256, f"{path}.interfaceName")
    yield from set_faults(child_list(data, "ips"), _MAX_ADDRESSES, _address_faults, str, f"{path}.ips")
    yield from _declared_size_faults(data.get("hardwareAddress"), 128, f"{path}.hardwareAddress")


def _declared_size_faults(text: str | None, limit: int, path: str) -> Faults:
    if len((text or "").encode()) > limit:
        yield from declared([too_long(path, limit)])


def _address_faults(text: str, path: str) -> Faults:
    try:
        if "/" not in text:
            raise ValueError(text)
        address = str(ipaddress.ip_interface(text))
    except ValueError:
        example = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"
        yield invalid(path, text, example)
        return
    if text != address:
        yield invalid(path, text, f'must be in canonical form ("{address}")')
