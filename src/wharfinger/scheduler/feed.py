"""The feed: turns what the API server reports into updates of the engine and events for the scheduler.

Everything is loaded before the first decision, in any order. Nodes that the selector leaves out get no row in the engine;
it knows their labels only, because limits of the systems count pods there, too.
"""

from __future__ import annotations

from typing import Any, Protocol

from wharfinger.api.kinds.builtin import NAMESPACES, NODES, POD_DISRUPTION_BUDGETS, PODS
from wharfinger.api.registry import Registry, Resource
from wharfinger.api.selectors import Requirements, matches
from wharfinger.api.views import Namespace, Node, Pod, PodDisruptionBudget
from wharfinger.client.informer import Informer, InformerSet
from wharfinger.engine import Engine
from wharfinger.framework.events import FOREIGN_NODE, NODE, POD, Action, ClusterEvent, node_changes, pod_changes

OTHERS: dict[str, tuple[Resource, type[Any]]] = {
    "Namespace": (NAMESPACES, Namespace),
    "PodDisruptionBudget": (POD_DISRUPTION_BUDGETS, PodDisruptionBudget),
}
"""Kinds that every engine needs besides pods and nodes; those that plugins observe come on top."""

NEWER = frozenset({"DeviceTaintRule"})
"""Kinds that plugins observe but that the schemas of older versions lack."""


class FeedListener(Protocol):
    """Told of every change after the engine."""

    def pending(self, old: Pod | None, new: Pod | None) -> None:
        """A pod without a node was added or updated, or (`new` is None) is no longer one."""

    def assigned(self, pod: Pod) -> None:
        """A pod was bound."""

    def changed(self, kind: str, old: Any, new: Any) -> None:
        """An object of another kind was added, updated or deleted; `happened` follows."""

    def happened(self, event: ClusterEvent) -> None:
        """Something changed that may let waiting pods in."""


class Feed:
    def __init__(
        self,
        informers: InformerSet,
        registry: Registry,
        engine: Engine,
        listener: FeedListener,
        *,
        nodes: Requirements = (),
    ) -> None:
        self._engine = engine
        self._listener = listener
        self._selector = nodes
        self.others: dict[str, Informer[Any]] = {}
        self.pods: Informer[Pod] = informers.of(PODS, Pod)
        self.nodes: Informer[Node] = informers.of(NODES, Node)
        self.pods.add_handler(self._pod_added, self._pod_updated, self._pod_deleted)
        self.nodes.add_handler(self._node_added, self._node_updated, self._node_deleted)
        for kind in sorted(set(OTHERS) | _wanted(engine)):
            if kind in NEWER and registry.find(kind) is None:
                continue
            resource, view = OTHERS.get(kind) or _resource(registry, kind, engine)
            self.others[kind] = informers.of(resource, view)
            # A cluster may lack some of our kinds, and an older one those of devices; others appear sooner or later.
            ours = "." in resource.group and not resource.group.endswith(".k8s.io")
            self.others[kind].optional = ours or resource.group == "resource.k8s.io"
            self._follow(kind, self.others[kind])

    def _follow(self, kind: str, informer: Informer[Any]) -> None:
        def changed(old: Any, new: Any) -> None:
            self._engine.apply(kind, old if new is None else new, deleted=new is None)
            self._listener.changed(kind, old, new)
            action = Action.ADD if old is None else Action.DELETE if new is None else Action.UPDATE_OTHER
            self._listener.happened(ClusterEvent(kind, action, old, new))

        informer.add_handler(lambda new: changed(None, new), changed, lambda old: changed(old, None))

    def _ours(self, node: Node) -> bool:
        return not self._selector or matches(self._selector, node.metadata.labels)

    def _node_added(self, node: Node) -> None:
        if self._ours(node):
            self._engine.set_node(node)
            self._listener.happened(ClusterEvent(NODE, Action.ADD, None, node))
        else:
            self._foreign_node_changed(None, node)

    def _node_updated(self, old: Node, new: Node) -> None:
        before, after = self._ours(old), self._ours(new)
        if before and after:
            self._engine.set_node(new)
            self._listener.happened(ClusterEvent(NODE, node_changes(old, new), old, new))
        elif after:
            self._node_added(new)
        elif before:
            self._node_deleted(old)
            self._foreign_node_changed(None, new)
        elif old.metadata.labels != new.metadata.labels:
            self._foreign_node_changed(old, new)

    def _node_deleted(self, node: Node) -> None:
        if self._ours(node):
            self._engine.remove_node(node.metadata.name)
            self._listener.happened(ClusterEvent(NODE, Action.DELETE, node, None))
        else:
            self._foreign_node_changed(node, None)

    def _foreign_node_changed(self, old: Node | None, new: Node | None) -> None:
        metadata = (new or old).metadata  # type: ignore[union-attr]  # at least one is given
        self._engine.set_foreign_node(metadata.name, None if new is None else metadata.labels)
        action = Action.ADD if old is None else Action.DELETE if new is None else Action.UPDATE_NODE_LABEL
        self._listener.happened(ClusterEvent(FOREIGN_NODE, action, old, new))

    def _pod_added(self, pod: Pod) -> None:
        if pod.spec.node_name:
            self._engine.set_pod(pod)
            self._listener.assigned(pod)
            self._listener.happened(ClusterEvent(POD, Action.ADD, None, pod))
        elif not pod.terminal:
            self._listener.pending(None, pod)

    def _pod_updated(self, old: Pod, new: Pod) -> None:
        if new.spec.node_name:
            self._engine.set_pod(new)
            if not old.spec.node_name:
                self._listener.pending(old, None)
                self._listener.assigned(new)
                self._listener.happened(ClusterEvent(POD, Action.ADD, None, new))
            elif new.terminal and not old.terminal:
                self._listener.happened(ClusterEvent(POD, Action.DELETE, old, None))
            else:
                self._listener.happened(ClusterEvent(POD, pod_changes(old, new), old, new))
        elif new.terminal:
            self._listener.pending(old, None)
        else:
            self._listener.pending(old, new)

    def _pod_deleted(self, pod: Pod) -> None:
        self._engine.remove_pod(pod.metadata.namespace, pod.metadata.name)
        if pod.spec.node_name:
            if not pod.terminal:
                self._listener.happened(ClusterEvent(POD, Action.DELETE, pod, None))
        else:
            self._listener.pending(pod, None)


def _wanted(engine: Engine) -> set[str]:
    """The kinds that plugins observe."""
    return {
        kind for profile in engine.profiles.values() for plugin in profile.plugins.values() for kind in plugin.kinds
    }


def _resource(registry: Registry, kind: str, engine: Engine) -> tuple[Resource, type[Any]]:
    found = registry.find(kind)
    if found is None:
        raise LookupError(f"a plugin observes kind {kind}, which is unknown")
    return found.storage, engine.views.get(kind, dict)
