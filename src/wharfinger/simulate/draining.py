"""Drains a node as `kubectl drain --ignore-daemonsets --force` would: no new pods, then evictions as budgets allow."""

from __future__ import annotations

from wharfinger.api.errors import ApiError, NotFound
from wharfinger.api.kinds.builtin import NODES, PODS
from wharfinger.api.object_meta import is_controlled_by
from wharfinger.api.registry import Document
from wharfinger.client.interface import Client
from wharfinger.scenario.runner import Rejection
from wharfinger.simulate.cluster import SimulatedCluster

_MIRROR = "kubernetes.io/config.mirror"


async def drain(world: SimulatedCluster, client: Client, node: str, user: str) -> list[Rejection]:
    """Evictions that a disruption budget prevents are retried as long as others succeed. Returns those that failed."""
    await client.patch(NODES, node, {"spec": {"unschedulable": True}})
    before: set[tuple[str, str]] = set()
    while True:
        refused: dict[tuple[str, str], str] = {}
        for pod in world.objects(PODS):
            if (pod.get("spec") or {}).get("nodeName") == node and _leaves(pod):
                metadata = pod["metadata"]
                key = (metadata["namespace"], metadata["name"])
                try:
                    await _evict(client, *key)
                except NotFound:
                    continue
                except ApiError as error:
                    refused[key] = error.message
        await world.settle()
        if not refused or refused.keys() == before:
            return [Rejection("Pod", *key, user, message) for key, message in refused.items()]
        before = set(refused)


def _leaves(pod: Document) -> bool:
    metadata = pod["metadata"]
    return not (
        metadata.get("deletionTimestamp")
        or _MIRROR in (metadata.get("annotations") or {})
        or is_controlled_by(pod, "DaemonSet")
    )


async def _evict(client: Client, namespace: str, name: str) -> None:
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
    await client.create(PODS, eviction, namespace, name=name, subresource="eviction")
