"""Names of device resources and ComputeResources, and the record of what a pod was given.

The record is a pod annotation, JSON by container, resource and ComputeResource; the embedded server shows the same in
`containers[].allocatedComputeResources`. What a record means for scheduling is the plugin's business.
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
from wharfinger.systems.resource_class.kinds.views import NodeComputeResources

RECORD = "scheduling.sigs.x-k8s.io/allocated-compute-resources"
"""The annotation of a pod, a Binding or a Reservation that names the devices held."""

OVERLAID = "scheduling.sigs.x-k8s.io/overlaid-requests"
"""The annotation that tells, by container, how much of a raw request stands for classes that are asked for as well."""

HASH_DIGITS = 10

Allocation = dict[str, dict[str, dict[str, int]]]
"""Container, name as written in the pod, ComputeResource: how many devices."""


class BadRecord(ValueError):
    """The text is no record; the message says why."""


# Names


def property_hash(properties: Mapping[str, str], digits: int = HASH_DIGITS) -> str:
    """Hex digits of SHA-256 over the canonical JSON of the properties: sorted keys, no spaces, UTF-8."""
    return hashlib.sha256(_canonical(properties)).hexdigest()[:digits]


def _canonical(properties: Mapping[str, str]) -> bytes:
    return msgspec.json.encode(dict(sorted(properties.items())))


def compute_resource_name(resource: str, properties: Mapping[str, str], taken: Names[str] = ()) -> str:
    """`<resource>-<hash>`; the hash is longer where another ComputeResource of the node has the name already."""
    for digits in range(HASH_DIGITS, 65):
        name = f"{resource}-{property_hash(properties, digits)}"
        if name not in taken:
            return name
    raise ValueError(f"{resource}: two ComputeResources with the same properties")


# What nodes have


def name_compute_resources(resources: Any) -> None:
    """Gives ComputeResources without a name the one they should have."""
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
    """The ComputeResources of a node: its own, or those of the object named after it."""
    if node.status.compute_resources:
        return node.status.compute_resources
    return separate.spec.compute_resources if separate is not None else ()


def capacity(resource: ComputeResource) -> int:
    """The number of healthy devices."""
    healthy = resource.devices if resource.allocatable_devices is None else resource.allocatable_devices
    return len(set(healthy))


def named(resources: Iterable[ComputeResource]) -> Iterator[tuple[str, ComputeResource]]:
    """ComputeResources by name; one without a name gets the one it should have."""
    taken: set[str] = set()
    for resource in resources:
        name = resource.name or compute_resource_name(resource.resource_name, resource.properties, taken)
        taken.add(name)
        yield name, resource


# What pods ask for and hold


def device_requests(container: Container) -> dict[str, int]:
    """The devices a container asks for, by name as written."""
    resources = container.resources
    if not resources.limits and not resources.requests:
        return {}
    amounts = {**resources.limits, **resources.requests}
    return {name: value(amount) for name, amount in amounts.items() if is_device(name) and value(amount) > 0}


def overlaid_requests(pod: Pod) -> dict[str, dict[str, int]]:
    """By container the raw amounts that only stand for classes, and must not be counted beside them."""
    text = pod.metadata.annotations.get(OVERLAID)
    return {} if text is None else parse_overlaid(text)


def parse_overlaid(text: str) -> dict[str, dict[str, int]]:
    """What the annotation says; nothing where it is unreadable."""
    try:
        return msgspec.json.decode(text, type=dict[str, dict[str, int]])
    except msgspec.DecodeError:
        return {}


def format_overlaid(amounts: Mapping[str, Mapping[str, int]]) -> str:
    return msgspec.json.encode({name: dict(sorted(amounts[name].items())) for name in sorted(amounts)}).decode()


def recorded(pod: Pod) -> Allocation | None:
    """What the pod holds or was told to take; None when nothing is recorded. Raises BadRecord."""
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    fields = {each.name: each.allocated_compute_resources for each in containers if each.allocated_compute_resources}
    if fields:
        return {
            container: {name: _counts(entries) for name, entries in names.items()}
            for container, names in fields.items()
        }
    text = pod.metadata.annotations.get(RECORD)
    return None if text is None else parse_record(text)


@lru_cache(maxsize=8192)
def _parsed(text: str) -> dict[str, dict[str, tuple[AllocatedResource, ...]]]:
    try:
        return msgspec.json.decode(text, type=dict[str, dict[str, tuple[AllocatedResource, ...]]])
    except msgspec.DecodeError as error:
        raise BadRecord(f"annotation {RECORD}: {error}") from None


def parse_record(text: str) -> Allocation:
    """The record in an annotation. Raises BadRecord."""
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
    """The record as objects show it, by container."""
    return {
        container: {
            name: [{"computeResourceName": resource, "count": count} for resource, count in counts.items()]
            for name, counts in names.items()
        }
        for container, names in allocation.items()
    }


def format_record(allocation: Allocation) -> str:
    return msgspec.json.encode(as_fields(allocation)).decode()
