"""What must not be left over at rest: copies that differ from what the API server holds, work that nobody finished, tasks
and entries of caches that nobody needs any more."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from wharfinger.api.errors import ApiError
from wharfinger.api.keys import ObjectKey
from wharfinger.api.registry import Document
from wharfinger.api.requests import ApiRequest
from wharfinger.api.views.meta import Metadata
from wharfinger.client.informer import Informer
from wharfinger.client.interface import Client
from wharfinger.client.tasks import ON_DEMAND
from wharfinger.controllers.pod_owner import PodOwner
from wharfinger.fuzz.history import PlainHistory, condition, is_deleting, is_terminal, node_of, title
from wharfinger.node.annotations import DOWN
from wharfinger.scheduler.scheduler import Scheduler

# -- copies


def _running(name: str) -> Iterator[Any]:
    """The objects of which a method of this name is running as a task."""
    for task in asyncio.all_tasks():
        work = task.get_coro()
        if inspect.iscoroutine(work) and work.__qualname__ == name:
            yield inspect.getcoroutinelocals(work)["self"]


def informers() -> list[Informer[Any]]:
    """Every informer that is running, in whichever component."""
    return sorted(_running("Informer.run"), key=lambda each: each.resource.group_plural)


async def stale_copies(client: Client) -> list[str]:
    """What informers have differs from what a list of the same objects shows."""
    found: set[str] = set()
    lists: dict[ApiRequest[Any], dict[ObjectKey, str] | None] = {}  # many informers follow the same objects
    for informer in informers():
        request = replace(informer._request, view=Metadata, limit=0)
        if request not in lists:
            lists[request] = await _listed(client, request)
        listed, known = lists[request], _versions(informer.items.values())
        if listed is None:
            continue
        kind = informer.resource.group_plural
        if not informer.synced:
            found.add(f"an informer of {kind} is not synced")
        if listed == known:
            continue
        for key in sorted(listed.keys() | known.keys()):
            if listed.get(key) != known.get(key):
                name = "/".join(key).lstrip("/")
                found.add(
                    f"an informer of {kind} has version {known.get(key)} of {name}, but there is {listed.get(key)}"
                )
    return sorted(found)


async def _listed(client: Client, request: ApiRequest[Any]) -> dict[ObjectKey, str] | None:
    """The versions by key; None for a kind that is not served."""
    try:
        return _versions((await client.send(request)).items)
    except ApiError:
        return None


def _versions(items: Any) -> dict[ObjectKey, str]:
    found = {}
    for item in items:
        if isinstance(item, dict):
            metadata = item["metadata"]
            found[metadata.get("namespace") or "", metadata["name"]] = str(metadata["resourceVersion"])
        else:
            found[item.metadata.namespace, item.metadata.name] = str(item.metadata.resource_version)
    return found


def table_differences(scheduler: Scheduler, fresh: Scheduler) -> list[str]:
    """Where the tables of a scheduler differ from those of one that was loaded just now."""
    one, other = _rows(scheduler), _rows(fresh)
    return [
        f"node {name}: the scheduler counts {one.get(name)}; a new one counts {other.get(name)}"
        for name in sorted(one.keys() | other.keys())
        if one.get(name) != other.get(name)
    ]


def _rows(scheduler: Scheduler) -> dict[str, dict[str, Any]]:
    tables = scheduler.engine.tables
    found = {}
    for name, row in tables.row_of.items():
        found[name] = {
            "pods": sorted("/".join(key) for key in tables.pods_on[row]),
            **{
                resource: amount
                for number, resource in enumerate(tables.resource_names)
                if (amount := int(tables.requested[number].cells[row]))
            },
        }
    return found


# -- work


def unfinished_work(history: PlainHistory) -> Iterator[str]:
    """What kubelets and the controllers of workloads have not done."""
    for pod in history.of("pods"):
        node = history.objects["nodes"].get(("", node_of(pod)))
        if node is None or DOWN in (node["metadata"].get("annotations") or {}):
            continue
        if condition(node, "Ready").get("status") == "Unknown":
            continue  # in a simulation, nodes are as reported, and this one is silent
        if is_deleting(pod):
            if not pod["metadata"].get("finalizers"):
                yield f"pod {title(pod)} is being deleted, and its kubelet does not end it"
        elif not _has_started(pod) and not (pod["spec"].get("volumes") or pod["spec"].get("resourceClaims")):
            yield f"pod {title(pod)} is on node {node_of(pod)}, and its kubelet does not start it"
    owned = Counter(
        owner["uid"]
        for pod in history.of("pods")
        if not is_terminal(pod) and not is_deleting(pod)
        for owner in pod["metadata"].get("ownerReferences") or ()
    )
    for each in history.of("replicasets"):
        wanted, there = each["spec"].get("replicas", 1), owned[each["metadata"]["uid"]]
        if wanted != there and not is_deleting(each) and condition(each, "ReplicaFailure").get("status") != "True":
            yield f"replica set {title(each)} has {there} pods, and wants {wanted}"


def expectations_met(now: float) -> bool:
    """Whether no controller waits for events of what it has created or deleted. It may have missed them for good."""
    owners = (each for each in _running("Controller._work") if isinstance(each, PodOwner))
    return all(each.expectations.are_met(now) for each in owners)


def _has_started(pod: Document) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Running", "Succeeded", "Failed")


# -- tasks and entries


def task_counts() -> Counter[str]:
    """How many tasks there are of each kind, without those that end by themselves."""
    lasting = (task for task in asyncio.all_tasks() if task.get_name() != ON_DEMAND)
    return Counter(getattr(task.get_coro(), "__qualname__", "") for task in lasting)


def left_entries(scheduler: Scheduler) -> Iterator[str]:
    """Entries of the scheduler about items that do not wait any more."""
    waiting = {each.key for each in scheduler.state.queue}
    for key in scheduler.state.cycle.diagnoses:
        if key not in waiting:
            yield f"{'/'.join(key)} does not wait, but a diagnosis of it is kept"
    for node, nominated in scheduler.engine.tables.nominated.items():
        for key in nominated:
            if key not in waiting:
                yield f"{'/'.join(key)} does not wait, but room is kept for it on node {node}"
