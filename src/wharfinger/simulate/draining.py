"""Drains nodes as `kubectl drain --ignore-daemonsets --force` would: no new pods, then evictions as budgets allow."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from wharfinger.api.errors import ApiError, NotFound
from wharfinger.api.kinds.builtin import NODES, POD_DISRUPTION_BUDGETS, PODS
from wharfinger.api.object_meta import is_controlled_by
from wharfinger.api.registry import Document
from wharfinger.api.selectors import BadSelector, LabelSelector, compile_label_selector, matches
from wharfinger.api.views import Pod
from wharfinger.client.interface import Client
from wharfinger.scenario.runner import Rejection
from wharfinger.simulate.cluster import SimulatedCluster

_MIRROR = "kubernetes.io/config.mirror"


class BlockedEviction(msgspec.Struct, frozen=True):
    """A pod that stays on the node that is drained, and the disruption budgets that keep it there, if they do."""

    node: str
    namespace: str
    pod: str
    budgets: tuple[str, ...]
    message: str

    def document(self) -> Document:
        return {
            "node": self.node,
            "namespace": self.namespace,
            "pod": self.pod,
            "budgets": [f"{self.namespace}/{name}" for name in self.budgets],
            "message": self.message,
        }

    def rejection(self, user: str) -> Rejection:
        return Rejection("Pod", self.namespace, self.pod, user, self.message)


async def drain(world: SimulatedCluster, client: Client, nodes: Sequence[str]) -> list[BlockedEviction]:
    """Cordons all of the nodes, then drains one after the other. Evictions that a disruption budget prevents are retried
    as long as others succeed. Returns those that failed."""
    for node in nodes:
        await client.patch(NODES, node, {"spec": {"unschedulable": True}})
    blocked: list[BlockedEviction] = []
    for node in nodes:
        blocked += await _evict_all(world, client, node)
    return blocked


async def _evict_all(world: SimulatedCluster, client: Client, node: str) -> list[BlockedEviction]:
    before: set[tuple[str, str]] = set()
    while True:
        refused: dict[tuple[str, str], BlockedEviction] = {}
        for stored in world.store.scan(PODS):
            if stored.view(Pod).spec.node_name == node and _leaves(pod := stored.document()):
                metadata = pod["metadata"]
                key = (metadata["namespace"], metadata["name"])
                try:
                    await _evict(client, *key)
                except NotFound:
                    continue
                except ApiError as error:
                    refused[key] = BlockedEviction(node, *key, _budgets(world, pod, error), error.message)
        await world.settle()
        if not refused or refused.keys() == before:
            return list(refused.values())
        before = set(refused)


def _budgets(world: SimulatedCluster, pod: Document, error: ApiError) -> tuple[str, ...]:
    """The budgets that refuse an eviction; none if the error is another one."""
    if error.code not in (429, 500):
        return ()
    metadata = pod["metadata"]
    return tuple(
        budget["metadata"]["name"]
        for budget in world.objects(POD_DISRUPTION_BUDGETS)
        if budget["metadata"]["namespace"] == metadata["namespace"]
        and _selects((budget.get("spec") or {}).get("selector"), metadata.get("labels") or {})
    )


def _selects(selector: Document | None, labels: dict[str, str]) -> bool:
    try:
        return selector is not None and matches(
            compile_label_selector(msgspec.convert(selector, LabelSelector)), labels
        )
    except (BadSelector, msgspec.ValidationError):
        return False


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
