"""ManagedClusterSets: how many members they have; and the sets `default` and `global`, which are always there."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from wharfinger.api.errors import AlreadyExists, NotFound
from wharfinger.api.registry import Document
from wharfinger.api.views.base import view
from wharfinger.controllers.context import ContextController, ControllerContext
from wharfinger.systems.placement.kinds.names import MANAGED_CLUSTER_SETS, MANAGED_CLUSTERS
from wharfinger.systems.placement.kinds.views import PREFIX, ManagedClusterSet, ManagedClusterSetSpec
from wharfinger.systems.placement.rules.conditions import PlacementCondition, changed
from wharfinger.systems.placement.rules.selectors import BadClusterSelector, Selector, compile_set
from wharfinger.systems.placement.settings import PlacementSettings

DEFAULT_SETS: dict[str, Document] = {
    "default": {"clusterSelector": {"selectorType": "ExclusiveClusterSetLabel"}},
    "global": {"clusterSelector": {"selectorType": "LabelSelector", "labelSelector": {}}},
}
AUTO_UPDATE = PREFIX + "autoupdate"
_ALL = "*"  # the key that stands for every set, when clusters changed


class ClusterSetController(ContextController[str]):
    name = "managedclusterset"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self.sets = context.informers.of(MANAGED_CLUSTER_SETS, ManagedClusterSet)
        self.clusters = context.documents(MANAGED_CLUSTERS)
        self._labels: dict[str, dict[str, str]] = {}  # of each cluster
        self.sets.add_handler(self._set_changed, lambda old, new: self._set_changed(new), self._set_changed)
        self.clusters.add_handler(self._cluster, lambda old, new: self._cluster(new), self._cluster_gone)

    def _set_changed(self, cluster_set: ManagedClusterSet) -> None:
        self.queue.add(cluster_set.metadata.name)

    def _cluster(self, document: Document) -> None:
        labels = dict(document["metadata"].get("labels") or {})
        if self._labels.get(document["metadata"]["name"]) != labels:
            self._labels[document["metadata"]["name"]] = labels
            self.queue.add(_ALL)

    def _cluster_gone(self, document: Document) -> None:
        self._labels.pop(document["metadata"]["name"], None)
        self.queue.add(_ALL)

    async def prepare(self) -> None:
        for name in DEFAULT_SETS if self.context.configuration.of(PlacementSettings).default_cluster_set else ():
            self.queue.add(name)

    async def reconcile(self, key: str) -> None:
        if key == _ALL:
            for cluster_set in self.sets:
                self.queue.add(cluster_set.metadata.name)
            return
        found = self.sets.get(key)
        if key in DEFAULT_SETS and self.context.configuration.of(PlacementSettings).default_cluster_set:
            if await self._keep_default(key, found):
                return
        if found is not None and not found.metadata.deletion_timestamp:
            await self._tell_members(found)

    async def _keep_default(self, name: str, found: ManagedClusterSet | None) -> bool:
        """Restores a default set; True when it was written, and the watch will call again."""
        spec = DEFAULT_SETS[name]
        if found is None:
            document: dict[str, Any] = {
                "apiVersion": MANAGED_CLUSTER_SETS.api_version,
                "kind": MANAGED_CLUSTER_SETS.kind,
                "metadata": {"name": name},
                "spec": spec,
            }
            with suppress(AlreadyExists):
                await self.context.client.create(MANAGED_CLUSTER_SETS, document)
            return True
        wanted = view(spec, ManagedClusterSetSpec)
        if found.metadata.annotations.get(AUTO_UPDATE) == "false" or found.spec == wanted:
            return False
        # In a merge patch an empty object changes nothing: what a label selector may hold is removed by name.
        labels = {"matchLabels": None, "matchExpressions": None} if "labelSelector" in spec["clusterSelector"] else None
        selector = {**spec["clusterSelector"], "labelSelector": labels}
        await self.context.client.patch(MANAGED_CLUSTER_SETS, name, {"spec": {"clusterSelector": selector}})
        return True

    async def _tell_members(self, cluster_set: ManagedClusterSet) -> None:
        message, selector = "", Selector(never=True)
        try:
            selector = compile_set(cluster_set)
        except BadClusterSelector as error:
            message = f"the selector is invalid: {error}"
        count = sum(selector.matches(labels, {}) for labels in self._labels.values())
        if count:
            verdict = PlacementCondition(
                "ClusterSetEmpty", "False", "ClustersSelected", f"{count} ManagedClusters selected"
            )
        else:
            verdict = PlacementCondition(
                "ClusterSetEmpty", "True", "NoClusterMatched", message or "No ManagedCluster selected"
            )
        name, generation = cluster_set.metadata.name, cluster_set.metadata.generation
        conditions = changed(cluster_set.status.conditions, [verdict], generation, self.context.now())
        if conditions is None:
            return
        try:
            await self.context.client.patch(
                MANAGED_CLUSTER_SETS, name, {"status": {"conditions": conditions}}, subresource="status"
            )
        except NotFound:
            return
