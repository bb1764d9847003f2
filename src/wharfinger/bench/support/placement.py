"""The placement benchmark: a hub in this process, filled through its API, with timed controllers."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import NAMESPACES
from wharfinger.api.registry import Document
from wharfinger.client.controller import Controller, run_controllers
from wharfinger.client.events import EventRecorder
from wharfinger.client.informer import InformerSet
from wharfinger.client.local import LocalClient
from wharfinger.client.memory import freeze_heap
from wharfinger.client.tasks import cancel
from wharfinger.client.timers import SystemClock
from wharfinger.controllers.context import ControllerContext
from wharfinger.store import Store
from wharfinger.store.default_chain import extend_chain
from wharfinger.systems.placement.controllers import PlacementController, placement_controllers
from wharfinger.systems.placement.controllers.sets import DEFAULT_SETS
from wharfinger.systems.placement.kinds.names import (
    ADDON_PLACEMENT_SCORES,
    MANAGED_CLUSTER_SET_BINDINGS,
    MANAGED_CLUSTER_SETS,
    MANAGED_CLUSTERS,
    OCM,
    PLACEMENTS,
)


def run(placements: int, clusters: int, namespaces: int, users: int) -> dict[str, Any]:
    return asyncio.run(_run(placements, clusters, namespaces, users))


async def _run(placements: int, clusters: int, namespaces: int, users: int) -> dict[str, Any]:
    kinds = registry()
    store = Store(kinds)
    extend_chain(store.chain, store, complete=False)
    client = LocalClient(store)
    await _fill(client, placements, clusters, namespaces, users)
    clock = SystemClock()
    recorder = EventRecorder(client, "placement", clock)
    recorder.start()
    context = ControllerContext(client, InformerSet(client), recorder, kinds, clock, implicit_heartbeats=True)
    controllers = placement_controllers(context)
    scheduling = next(c for c in controllers if isinstance(c, PlacementController))
    freeze_heap()
    started, cpu = time.perf_counter(), time.process_time()
    task = asyncio.create_task(run_controllers(controllers, context.informers))
    await _until_idle(scheduling, controllers, placements, started)
    first, first_cpu = time.perf_counter() - started, time.process_time() - cpu
    # The hub may still update sets and namespaces; the second measurement starts when it is idle.
    before = scheduling.decided
    started, cpu = time.perf_counter(), time.process_time()
    scores = _scores(clusters - 1)
    scores[0]["value"] = 100
    change = {"status": {"scores": scores}}
    await client.patch(ADDON_PLACEMENT_SCORES, "bench", change, _cluster(clusters - 1), subresource="status")
    await _until_idle(scheduling, controllers, min(users, placements), started, before)
    again, again_cpu = time.perf_counter() - started, time.process_time() - cpu
    await cancel([task])
    await recorder.stop()
    return {
        "placements": placements,
        "clusters": clusters,
        "fromNothingSeconds": round(first, 3),
        "fromNothingCpuSeconds": round(first_cpu, 3),
        "decisionsPerSecond": round(placements / first, 1),
        "oneScoreSeconds": round(again, 3),
        "oneScoreCpuSeconds": round(again_cpu, 3),
        "decidedAgain": scheduling.decided - before,
    }


async def _until_idle(
    scheduling: PlacementController, controllers: list[Controller[Any]], wanted: int, started: float, before: int = 0
) -> None:
    """Waits until all decisions are made and all queues are empty."""
    while True:
        await asyncio.sleep(0.005)
        busy = any(len(controller.queue) or controller.queue.in_process for controller in controllers)
        if scheduling.decided - before >= wanted and not busy:
            return
        if time.perf_counter() - started > 3600:
            raise TimeoutError("the benchmark did not come to rest within an hour")


async def _fill(client: LocalClient, placements: int, clusters: int, namespaces: int, users: int) -> None:
    for index in range(clusters):
        name = _cluster(index)
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        await client.create(MANAGED_CLUSTERS, _managed_cluster(name, index))
        status = {
            "conditions": [
                {
                    "type": "ManagedClusterConditionAvailable",
                    "status": "True",
                    "reason": "ManagedClusterAvailable",
                    "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }
            ],
            "allocatable": {"cpu": str(8 + index % 57), "memory": f"{16 + index % 113}Gi"},
            "capacity": {"cpu": "64", "memory": "128Gi"},
        }
        await client.patch(MANAGED_CLUSTERS, name, {"status": status}, subresource="status")
        document = {
            "apiVersion": f"{OCM}/v1alpha1",
            "kind": "AddOnPlacementScore",
            "metadata": {"name": "bench", "namespace": name},
        }
        await client.create(ADDON_PLACEMENT_SCORES, document, name)
        change = {"status": {"scores": _scores(index)}}
        await client.patch(ADDON_PLACEMENT_SCORES, "bench", change, name, subresource="status")
    for name, spec in DEFAULT_SETS.items():
        document = {
            "apiVersion": f"{OCM}/v1beta2",
            "kind": "ManagedClusterSet",
            "metadata": {"name": name},
            "spec": spec,
        }
        await client.create(MANAGED_CLUSTER_SETS, document)
    for index in range(namespaces):
        name = f"team-{index}"
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        binding = {
            "apiVersion": f"{OCM}/v1beta2",
            "kind": "ManagedClusterSetBinding",
            "metadata": {"name": "global", "namespace": name},
            "spec": {"clusterSet": "global"},
        }
        await client.create(MANAGED_CLUSTER_SET_BINDINGS, binding, name)
    for index in range(placements):
        namespace = f"team-{index % namespaces}"
        await client.create(
            PLACEMENTS, _placement(f"p{index}", namespace, "fast" if index < users else "cheap"), namespace
        )


def _cluster(index: int) -> str:
    return f"cluster-{index:05d}"


def _scores(index: int) -> list[dict[str, Any]]:
    return [{"name": "fast", "value": index * 37 % 199 - 99}, {"name": "cheap", "value": index * 53 % 199 - 99}]


def _managed_cluster(name: str, index: int) -> Document:
    labels = {"region": f"r{index % 7}", "zone": f"z{index % 3}", f"{OCM}/clusterset": "default"}
    return {
        "apiVersion": f"{OCM}/v1",
        "kind": "ManagedCluster",
        "metadata": {"name": name, "labels": labels},
        "spec": {"hubAcceptsClient": True},
    }


def _placement(name: str, namespace: str, score: str) -> Document:
    configuration = {
        "scoreCoordinate": {"type": "AddOn", "addOn": {"resourceName": "bench", "scoreName": score}},
        "weight": 1,
    }
    return {
        "apiVersion": f"{OCM}/v1beta1",
        "kind": "Placement",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "numberOfClusters": 3,
            "prioritizerPolicy": {"mode": "Additive", "configurations": [configuration]},
        },
    }
