"""Which device ids a pod gets: as many of each ComputeResource as its record says, none that another pod has. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from wharfinger.api.views import Pod
from wharfinger.systems.resource_class.rules.compute_resources import Allocation

DEVICE_IDS = "wharfinger.dev/allocated-devices"
"""Pod annotation: the ids given to each container, by ComputeResource. Agents find by it what is in use."""

Given = dict[str, dict[str, list[str]]]
"""Container, ComputeResource: device ids."""


class NotEnough(ValueError):
    """The record asks for more than there is; the message says of what."""


def given(pod: Pod) -> Given:
    """The devices that a pod has by its annotation; nothing where that is absent or unreadable."""
    text = pod.metadata.annotations.get(DEVICE_IDS)
    if text is None:
        return {}
    try:
        return msgspec.json.decode(text, type=Given)
    except msgspec.DecodeError:
        return {}


def in_use(pods: Collection[Pod]) -> set[tuple[str, str]]:
    """(ComputeResource, id) of everything that pods have."""
    return {
        (resource, id)
        for pod in pods
        if not pod.terminal
        for resources in given(pod).values()
        for resource, ids in resources.items()
        for id in ids
    }


def available(healthy: Mapping[str, Collection[str]], used: Collection[tuple[str, str]]) -> dict[str, list[str]]:
    """The ids of each ComputeResource that can be given, in order."""
    return {resource: sorted(id for id in ids if (resource, id) not in used) for resource, ids in healthy.items()}


def choose(pod: Pod, record: Allocation, free: Mapping[str, Collection[str]]) -> Given:
    """Ids for each container. Init containers that end hand theirs on to those that come later. Raises NotEnough."""
    left = {resource: list(ids) for resource, ids in free.items()}
    reusable: dict[str, list[str]] = {}
    chosen: Given = {}
    plain_inits = {each.name for each in pod.spec.init_containers if each.restart_policy != "Always"}
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        counts: dict[str, int] = {}
        for resources in record.get(container.name, {}).values():
            for resource, count in resources.items():
                counts[resource] = counts.get(resource, 0) + count
        for resource, count in counts.items():
            again, fresh = reusable.get(resource, []), left.get(resource, [])
            if len(again) + len(fresh) < count:
                have = len(again) + len(fresh)
                raise NotEnough(f"container {container.name} was given {count} of {resource}, of which {have} are free")
            ids = [*again, *fresh][:count]
            chosen.setdefault(container.name, {})[resource] = ids
            left[resource] = [id for id in fresh if id not in ids]
            if container.name in plain_inits:
                reusable[resource] = [*again, *(id for id in ids if id not in again)]
            else:
                reusable[resource] = [id for id in again if id not in ids]
    return chosen
