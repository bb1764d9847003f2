"""The feed: what the API server tells becomes events for the engine's tables and wake-ups for the queue.

Everything is loaded before the first decision, in any order. Nodes that a selector leaves out are never shown to the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from wharfinger.api.kinds.builtin import NAMESPACES, NODES, POD_DISRUPTION_BUDGETS, PODS
from wharfinger.api.registry import Registry, Resource
from wharfinger.api.selectors import Requirements, matches
from wharfinger.api.views import Namespace, Node, Pod, PodDisruptionBudget
from wharfinger.client.informer import Informer, InformerSet
from wharfinger.engine import Engine
from wharfinger.engine.engine import VIEWS
from wharfinger.framework.events import NODE, POD, Action, ClusterEvent, node_changes, pod_changes

OTHERS: dict[str, tuple[Resource, type[Any]]] = {
    "Namespace": (NAMESPACES, Namespace),
    "PodDisruptionBudget": (POD_DISRUPTION_BUDGETS, PodDisruptionBudget),
}
"""Kinds that every engine needs besides pods and nodes; what plugins ask for comes on top."""


class Feed:
    def __init__(
        self,
        informers: InformerSet,
        registry: Registry,
        engine: Engine,
        *,
        pending: Callable[[Pod | None, Pod | None], None],
        happened: Callable[[ClusterEvent], None],
        assigned: Callable[[Pod], None],
        nodes: Requirements = (),
        changed: Mapping[str, Callable[[Any, Any], None]] | None = None,
    ) -> None:
        """`pending` is told of pods without a node (before, after), `assigned` of pods that were just bound, and
        `changed`, by kind, of other objects (before, after) when the engine knows."""
        self._engine = engine
        self._pending = pending
        self._happened = happened
        self._assigned = assigned
        self._selector = nodes
        self._changed = changed or {}
        self.others: dict[str, Informer[Any]] = {}
        self.pods: Informer[Pod] = informers.of(PODS, Pod)
        self.nodes: Informer[Node] = informers.of(NODES, Node)
        self.pods.add_handler(self._pod_added, self._pod_updated, self._pod_deleted)
        self.nodes.add_handler(self._node_added, self._node_updated, self._node_deleted)
        for kind in sorted(set(OTHERS) | _wanted(engine)):
            resource, view = OTHERS.get(kind) or _resource(registry, kind)
            self.others[kind] = informers.of(resource, view)
            # A cluster may do without some of our kinds; Kubernetes' own are there, sooner or later.
            self.others[kind].optional = "." in resource.group and not resource.group.endswith(".k8s.io")
            self._follow(kind, self.others[kind])

    def _follow(self, kind: str, informer: Informer[Any]) -> None:
        tell = self._changed.get(kind)

        def changed(old: Any, new: Any) -> None:
            self._engine.apply(kind, old if new is None else new, deleted=new is None)
            if tell is not None:
                tell(old, new)
            action = Action.ADD if old is None else Action.DELETE if new is None else Action.UPDATE_OTHER
            self._happened(ClusterEvent(kind, action, old, new))

        informer.add_handler(lambda new: changed(None, new), changed, lambda old: changed(old, None))

    def _ours(self, node: Node) -> bool:
        return not self._selector or matches(self._selector, node.metadata.labels)

    def _node_added(self, node: Node) -> None:
        if self._ours(node):
            self._engine.set_node(node)
            self._happened(ClusterEvent(NODE, Action.ADD, None, node))

    def _node_updated(self, old: Node, new: Node) -> None:
        before, after = self._ours(old), self._ours(new)
        if before and after:
            self._engine.set_node(new)
            self._happened(ClusterEvent(NODE, node_changes(old, new), old, new))
        elif after:
            self._node_added(new)
        elif before:
            self._node_deleted(old)

    def _node_deleted(self, node: Node) -> None:
        if self._ours(node):
            self._engine.remove_node(node.metadata.name)
            self._happened(ClusterEvent(NODE, Action.DELETE, node, None))

    def _pod_added(self, pod: Pod) -> None:
        if pod.spec.node_name:
            self._engine.set_pod(pod)
            self._assigned(pod)
            self._happened(ClusterEvent(POD, Action.ADD, None, pod))
        elif not pod.terminal:
            self._pending(None, pod)

    def _pod_updated(self, old: Pod, new: Pod) -> None:
        if new.spec.node_name:
            self._engine.set_pod(new)
            if not old.spec.node_name:
                self._pending(old, None)
                self._assigned(new)
                self._happened(ClusterEvent(POD, Action.ADD, None, new))
            elif new.terminal and not old.terminal:
                self._happened(ClusterEvent(POD, Action.DELETE, old, None))
            else:
                self._happened(ClusterEvent(POD, pod_changes(old, new), old, new))
        elif new.terminal:
            self._pending(old, None)
        else:
            self._pending(old, new)

    def _pod_deleted(self, pod: Pod) -> None:
        self._engine.remove_pod(pod.metadata.namespace, pod.metadata.name)
        if pod.spec.node_name:
            if not pod.terminal:
                self._happened(ClusterEvent(POD, Action.DELETE, pod, None))
        else:
            self._pending(pod, None)


def _wanted(engine: Engine) -> set[str]:
    """The kinds that plugins observe."""
    return {
        kind for profile in engine.profiles.values() for plugin in profile.plugins.values() for kind in plugin.kinds
    }


def _resource(registry: Registry, kind: str) -> tuple[Resource, type[Any]]:
    found = registry.find(kind)
    if found is None:
        raise LookupError(f"a plugin observes the kind {kind}, which is not known")
    return found.storage, VIEWS.get(kind, dict)
