"""Names of device resources and ComputeResources, and the record of the devices allocated to a pod.

The record is a pod annotation: a JSON object by container, resource and ComputeResource. The embedded API server also
shows it in `containers[].allocatedComputeResources`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container as Names
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from wharfinger.api.quantity import value
from wharfinger.api.validation.resources import is_device
from wharfinger.api.views.nodes import ComputeResource, Node
from wharfinger.api.views.pods import AllocatedResource, Container, Pod
from wharfinger.api.wording import decoding_fault
from wharfinger.systems.resource_class.kinds.views import NodeComputeResources

RECORD = "scheduling.sigs.x-k8s.io/allocated-compute-resources"
"""The annotation on a Pod, Binding or Reservation that records the devices held."""

RECORD_FIELD = "allocatedComputeResources"
"""The field of a container in which the embedded API server shows the record."""

DEVICE_IDS = "wharfinger.dev/allocated-devices"
"""Pod annotation: the device IDs of each container, by ComputeResource, as the device agent allocated them."""

OVERLAID = "scheduling.sigs.x-k8s.io/overlaid-requests"
"""The annotation with the raw amounts, by container, that the overlay added for requested classes."""

HASH_DIGITS = 10

Allocation = dict[str, dict[str, dict[str, int]]]
"""Number of devices by container, requested name and ComputeResource."""


class BadRecord(ValueError):
    """The annotation is not a valid record; the message says why."""


# Names


def property_hash(properties: Mapping[str, str], digits: int = HASH_DIGITS) -> str:
    """Hex SHA-256 of the properties as canonical JSON: sorted keys, no spaces, UTF-8."""
    return hashlib.sha256(_canonical(properties)).hexdigest()[:digits]


def _canonical(properties: Mapping[str, str]) -> bytes:
    return msgspec.json.encode(dict(sorted(properties.items())))


def compute_resource_name(resource: str, properties: Mapping[str, str], taken: Names[str] = ()) -> str:
    """`<resource>-<hash>`, with a longer hash if another ComputeResource of the node already has the name."""
    for digits in range(HASH_DIGITS, 65):
        name = f"{resource}-{property_hash(properties, digits)}"
        if name not in taken:
            return name
    raise ValueError(f"{resource}: two ComputeResources have the same properties")


# Devices of nodes


def name_compute_resources(resources: Any) -> None:
    """Sets the default name on ComputeResources without one."""
    found = [each for each in resources if isinstance(each, dict)] if isinstance(resources, list) else []
    taken = {str(each["name"]) for each in found if each.get("name")}
    for resource in found:
        raw, properties = resource.get("resourceName"), resource.get("properties") or {}
        if resource.get("name") or not isinstance(raw, str) or not raw:
            continue
        if isinstance(properties, dict) and all(isinstance(value, str) for value in properties.values()):
            resource["name"] = compute_resource_name(raw, properties, taken)
            taken.add(resource["name"])


def published(node: Node, separate: NodeComputeResources | None) -> tuple[ComputeResource, ...]:
    """The ComputeResources of a node, from its status or from its NodeComputeResources object."""
    if node.status.compute_resources:
        return node.status.compute_resources
    return separate.spec.compute_resources if separate is not None else ()


def capacity(resource: ComputeResource) -> int:
    """The number of healthy devices."""
    healthy = resource.devices if resource.allocatable_devices is None else resource.allocatable_devices
    return len(set(healthy))


def named(resources: Iterable[ComputeResource]) -> Iterator[tuple[str, ComputeResource]]:
    """ComputeResources with their names, or the default name where one is missing."""
    taken: set[str] = set()
    for resource in resources:
        name = resource.name or compute_resource_name(resource.resource_name, resource.properties, taken)
        taken.add(name)
        yield name, resource


# Requests and records of pods


def device_requests(container: Container) -> dict[str, int]:
    """The devices that a container requests, by name as written."""
    resources = container.resources
    if not resources.limits and not resources.requests:
        return {}
    amounts = {**resources.limits, **resources.requests}
    return {name: value(amount) for name, amount in amounts.items() if is_device(name) and value(amount) > 0}


def overlaid_requests(pod: Pod) -> dict[str, dict[str, int]]:
    """Raw amounts, by container, that the overlay added for classes and that must not be counted again."""
    text = pod.metadata.annotations.get(OVERLAID)
    return {} if text is None else parse_overlaid(text)


def parse_overlaid(text: str) -> dict[str, dict[str, int]]:
    """Parses the overlay annotation; empty if it is malformed."""
    try:
        return msgspec.json.decode(text, type=dict[str, dict[str, int]])
    except msgspec.DecodeError:
        return {}


def format_overlaid(amounts: Mapping[str, Mapping[str, int]]) -> str:
    return msgspec.json.encode({name: dict(sorted(amounts[name].items())) for name in sorted(amounts)}).decode()


def recorded(pod: Pod) -> Allocation | None:
    """The pod's record; None if it has none. Raises BadRecord."""
    text = pod.metadata.annotations.get(RECORD)
    if text is not None:
        return parse_record(text) if text else None
    fields = record_fields(pod)
    return (
        None
        if not fields
        else {
            container: {name: _counts(entries) for name, entries in names.items()}
            for container, names in fields.items()
        }
    )


def record_fields(pod: Pod) -> dict[str, dict[str, tuple[AllocatedResource, ...]]]:
    """The record as containers show it, which counts only without the annotation."""
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    return {each.name: each.allocated_compute_resources for each in containers if each.allocated_compute_resources}


@lru_cache(maxsize=8192)
def _parsed(text: str) -> dict[str, dict[str, tuple[AllocatedResource, ...]]]:
    try:
        return msgspec.json.decode(text, type=dict[str, dict[str, tuple[AllocatedResource, ...]]])
    except msgspec.DecodeError as error:
        raise BadRecord(f"annotation {RECORD}: {decoding_fault(error)}") from None


def parse_record(text: str) -> Allocation:
    """Parses a record annotation. Raises BadRecord."""
    return {
        container: {name: _counts(entries) for name, entries in names.items()}
        for container, names in _parsed(text).items()
    }


def _counts(entries: Iterable[AllocatedResource]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for entry in entries:
        if not entry.compute_resource_name or entry.count < 1:
            raise BadRecord("every entry needs a computeResourceName and a count of 1 or more")
        counts[entry.compute_resource_name] = counts.get(entry.compute_resource_name, 0) + entry.count
    return counts


def as_fields(allocation: Allocation) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """The record in the form of `allocatedComputeResources`, by container."""
    return {
        container: {
            name: [{"computeResourceName": resource, "count": count} for resource, count in counts.items()]
            for name, counts in names.items()
        }
        for container, names in allocation.items()
    }


def format_record(allocation: Allocation) -> str:
    return msgspec.json.encode(as_fields(allocation)).decode()
