"""Allocations as they are written to the status of a claim."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from wharfinger.devices.allocator import ChosenDevice, ChosenDevices
from wharfinger.devices.slices import Document

Result = dict[str, Any]


def allocation(chosen: ChosenDevices, node_name: str, share_id: Callable[[], str]) -> Result:
    """The AllocationResult for a claim. `share_id` makes a new ID for each share of a device."""
    devices: Result = {}
    if chosen.devices:
        devices["results"] = [_device(each, share_id) for each in chosen.devices]
    config = _config(chosen)
    if config:
        devices["config"] = config
    made: Result = {"devices": devices}
    selector = _node_selector(chosen.devices, node_name)
    if selector is not None:
        made["nodeSelector"] = selector
    return made


def _device(chosen: ChosenDevice, share_id: Callable[[], str]) -> Result:
    device, request = chosen.device, chosen.request
    result: Result = {"request": request.qualified, **device.id._asdict()}
    if request.admin_access:
        result["adminAccess"] = True
    if request.tolerations:
        result["tolerations"] = list(request.tolerations)
    if device.binding_conditions:
        result["bindingConditions"] = list(device.binding_conditions)
    if device.binding_failure_conditions:
        result["bindingFailureConditions"] = list(device.binding_failure_conditions)
    if chosen.shared:
        result["shareID"] = share_id()
    if chosen.consumed:
        result["consumedCapacity"] = {name: amount.text for name, amount in chosen.consumed.items()}
    return result


def _config(chosen: ChosenDevices) -> list[Result]:
    """The configuration of the classes, each once, then that of the claim for requests that were taken."""
    found: list[tuple[str, list[str], Document]] = []  # (source, requests, configuration)
    of_class: dict[str, range] = {}
    for request, device_class in zip(chosen.taken, chosen.classes, strict=True):
        known = of_class.get(device_class.name)
        if known is not None:
            for index in known:
                found[index][1].append(request.qualified)
            continue
        start = len(found)
        found += [("FromClass", [request.qualified], each) for each in device_class.config]
        of_class[device_class.name] = range(start, len(found))
    names = {name for request in chosen.taken for name in (request.base, request.qualified)}
    for each in chosen.spec.config:
        requests = list(each.get("requests") or ())
        if not requests or not names.isdisjoint(requests):
            found.append(("FromClaim", requests, each))
    made = []
    for source, requests, document in found:
        result: Result = {"source": source}
        if not all(each.base in requests or each.qualified in requests for each in chosen.taken):
            if requests:
                result["requests"] = requests
        result |= {key: value for key, value in document.items() if key != "requests"}
        made.append(result)
    return made


def _node_selector(devices: Iterable[ChosenDevice], node_name: str) -> Result | None:
    """The nodes that can use all of the devices; None for all nodes."""
    fields: list[Document] = []
    expressions: list[Document] = []
    for each in devices:
        choice = each.device.choice if each.slice.per_device and each.device.choice else each.slice.choice
        if choice.node_name or each.device.binds_to_node:
            own = {"key": "metadata.name", "operator": "In", "values": [node_name]}
            return {"nodeSelectorTerms": [{"matchFields": [own]}]}
        for term in (choice.selector or {}).get("nodeSelectorTerms") or ():
            _add(fields, term.get("matchFields") or ())
            _add(expressions, term.get("matchExpressions") or ())
    if not fields and not expressions:
        return None
    term = {}
    if expressions:
        term["matchExpressions"] = expressions
    if fields:
        term["matchFields"] = fields
    return {"nodeSelectorTerms": [term]}


def _add(known: list[Document], requirements: Sequence[Document]) -> None:
    for each in requirements:
        if not any(_same(each, other) for other in known):
            known.append(each)


def _same(left: Document, right: Document) -> bool:
    return (
        left.get("key") == right.get("key")
        and left.get("operator") == right.get("operator")
        and set(left.get("values") or ()) == set(right.get("values") or ())
    )
