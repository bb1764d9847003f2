"""ManagedClusterSetBindings: whether the set they name exists."""

from __future__ import annotations

from wharfinger.api.errors import NotFound
from wharfinger.api.keys import ObjectKey
from wharfinger.controllers.context import ContextController, ControllerContext
from wharfinger.systems.placement.kinds.names import MANAGED_CLUSTER_SET_BINDINGS, MANAGED_CLUSTER_SETS
from wharfinger.systems.placement.kinds.views import ManagedClusterSet, ManagedClusterSetBinding
from wharfinger.systems.placement.rules.conditions import PlacementCondition, changed


class BindingController(ContextController[ObjectKey]):
    name = "managedclustersetbinding"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self.bindings = context.informers.of(MANAGED_CLUSTER_SET_BINDINGS, ManagedClusterSetBinding)
        self.sets = context.informers.of(MANAGED_CLUSTER_SETS, ManagedClusterSet)
        self._by_set = self.bindings.index("set", lambda binding: (binding.spec.cluster_set,))
        self.bindings.add_handler(
            lambda binding: self.queue.add(binding.metadata.key), lambda old, new: self.queue.add(new.metadata.key)
        )
        self.sets.add_handler(self._set_changed, None, self._set_changed)

    def _set_changed(self, cluster_set: ManagedClusterSet) -> None:
        for binding in self._by_set.get(cluster_set.metadata.name):
            self.queue.add(binding.metadata.key)

    async def reconcile(self, key: ObjectKey) -> None:
        binding = self.bindings.get(key[1], key[0])
        if binding is None or binding.metadata.deletion_timestamp:
            return
        name = binding.spec.cluster_set
        if self.sets.get(name) is not None:
            verdict = PlacementCondition("Bound", "True", "ClusterSetBound", "")
        else:
            verdict = PlacementCondition(
                "Bound", "False", "ClusterSetNotFound", f"ManagedClusterSet {name} does not exist"
            )
        conditions = changed(binding.status.conditions, [verdict], binding.metadata.generation, self.context.now())
        if conditions is None:
            return
        try:
            await self.context.client.patch(
                MANAGED_CLUSTER_SET_BINDINGS,
                key[1],
                {"status": {"conditions": conditions}},
                key[0],
                subresource="status",
            )
        except NotFound:
            return
