"""Which device IDs a pod gets: as many of each ComputeResource as its record says, and none that another pod holds. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from wharfinger.api.views import Pod
from wharfinger.systems.resource_class.rules.compute_resources import DEVICE_IDS, Allocation, BadRecord, recorded

DeviceIds = dict[str, dict[str, list[str]]]
"""Device IDs by container and ComputeResource."""


class InsufficientDevices(ValueError):
    """The record names more devices of a ComputeResource than are free."""


def allocated_devices(pod: Pod) -> DeviceIds:
    """The devices in the pod's annotation; empty if it is missing, malformed, or not what the pod's record says."""
    text = pod.metadata.annotations.get(DEVICE_IDS)
    if text is None:
        return {}
    try:
        ids = msgspec.json.decode(text, type=DeviceIds)
        record = recorded(pod) or {}
    except (msgspec.DecodeError, BadRecord):
        return {}
    counts = {
        container: {name: len(given) for name, given in by_name.items() if len(set(given)) == len(given)}
        for container, by_name in ids.items()
    }
    return ids if counts == {container: _by_resource(names) for container, names in record.items()} else {}


def _by_resource(names: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """The devices of one container by ComputeResource, from its record."""
    counts: dict[str, int] = {}
    for resources in names.values():
        for resource, count in resources.items():
            counts[resource] = counts.get(resource, 0) + count
    return counts


def in_use(pods: Collection[Pod]) -> set[tuple[str, str]]:
    """ComputeResource and ID of every device that a pod holds."""
    return {
        (resource, id)
        for pod in pods
        if not pod.terminal
        for resources in allocated_devices(pod).values()
        for resource, ids in resources.items()
        for id in ids
    }


def available(healthy: Mapping[str, Collection[str]], used: Collection[tuple[str, str]]) -> dict[str, list[str]]:
    """The free IDs of each ComputeResource, sorted."""
    return {resource: sorted(id for id in ids if (resource, id) not in used) for resource, ids in healthy.items()}


def choose(pod: Pod, record: Allocation, free: Mapping[str, Collection[str]]) -> DeviceIds:
    """IDs for each container; devices of ordinary init containers are reused by later containers. Raises InsufficientDevices."""
    left = {resource: list(ids) for resource, ids in free.items()}
    reusable: dict[str, list[str]] = {}
    chosen: DeviceIds = {}
    ordinary_inits = {each.name for each in pod.spec.init_containers if each.restart_policy != "Always"}
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        for resource, count in _by_resource(record.get(container.name, {})).items():
            again, fresh = reusable.get(resource, []), left.get(resource, [])
            if len(again) + len(fresh) < count:
                have = len(again) + len(fresh)
                raise InsufficientDevices(
                    f"container {container.name} was allocated {count} devices of {resource}, but only {have} are free"
                )
            ids = [*again, *fresh][:count]
            chosen.setdefault(container.name, {})[resource] = ids
            left[resource] = [id for id in fresh if id not in ids]
            if container.name in ordinary_inits:
                reusable[resource] = [*again, *(id for id in ids if id not in again)]
            else:
                reusable[resource] = [id for id in again if id not in ids]
    return chosen
