"""Tries changes in an engine: whether pods that fit nowhere fit after them. The engine is as before afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from wharfinger.api.registry import Document
from wharfinger.api.views import Node, Pod
from wharfinger.api.views.meta import ObjectMeta
from wharfinger.engine import Engine
from wharfinger.framework.explaining import Suggestion

MOST_NODES = 50  # that are added at most
_HOSTNAME = "kubernetes.io/hostname"
_BY_NODE_NAME = ("CSINode", "NodeComputeResources")  # kinds whose objects belong to the node of the same name


class ProposedChange(msgspec.Struct, frozen=True):
    """One change, in the imperative, and as data."""

    kind: str
    text: str
    details: Document = msgspec.field(default_factory=dict)


class RemedyProposal(msgspec.Struct, frozen=True):
    """Changes that may let pods in. Smaller ones have a lower rank."""

    changes: tuple[ProposedChange, ...]
    rank: float
    pod: Callable[[Pod], Pod | None] | None = None
    nodes: tuple[Node, ...] = ()  # they replace the nodes of the same names
    template: Node | None = None  # nodes like this one are added, as many as it takes
    deleted: tuple[Pod, ...] = ()
    suggestion: Suggestion | None = None
    preempts: bool = False  # whether it helps by evicting others

    def joined(self, other: RemedyProposal) -> RemedyProposal:
        """Both together; they change different things of the pod, or different nodes."""
        first, second = self.pod, other.pod
        edit = second if first is None else first if second is None else _in_turn(first, second)
        nodes = {each.metadata.name: each for each in (*self.nodes, *other.nodes)}
        changes = (*self.changes, *(each for each in other.changes if each not in self.changes))
        template = self.template or other.template
        return RemedyProposal(changes, self.rank + other.rank, edit, tuple(nodes.values()), template)


def _in_turn(first: Callable[[Pod], Pod | None], second: Callable[[Pod], Pod | None]) -> Callable[[Pod], Pod | None]:
    def edited(pod: Pod) -> Pod | None:
        halfway = first(pod)
        return None if halfway is None else second(halfway)

    return edited


class TrialOutcome(msgspec.Struct, frozen=True):
    let_in: int  # how many of the pods fit
    node: str  # where the first of them goes
    added: int = 0  # nodes
    victims: tuple[str, ...] = ()


class Trials:
    """A limited number of trials for pods with equal needs."""

    def __init__(self, engine: Engine, pods: Sequence[Pod], limit: int) -> None:
        self._engine = engine
        self._pods = pods
        self._left = limit
        self._undo: list[Callable[[], object]] = []

    @property
    def over(self) -> bool:
        return self._left <= 0

    def run(self, proposal: RemedyProposal) -> TrialOutcome | None:
        """What the proposal achieves; None if no pod fits after it."""
        self._left -= 1
        pods = self._pods if proposal.pod is None else [each for pod in self._pods if (each := proposal.pod(pod))]
        if len(pods) < len(self._pods):
            return None
        try:
            self._apply(proposal)
            return self._preempted(pods[0]) if proposal.preempts else self._placed(pods, proposal.template)
        finally:
            while self._undo:
                self._undo.pop()()

    def _apply(self, proposal: RemedyProposal) -> None:
        engine = self._engine
        for node in proposal.nodes:
            before = engine.tables.nodes[engine.tables.row_of[node.metadata.name]]
            assert before is not None
            self._undo.append(partial(engine.set_node, before))
            engine.set_node(node)
        for pod in proposal.deleted:
            self._undo.append(partial(engine.set_pod, pod))
            engine.remove_pod(*pod.metadata.key)
        if (asked := proposal.suggestion) is not None:
            known = engine.known(asked.kind, asked.namespace, asked.name)
            if known is not None:
                self._undo.append(lambda: engine.apply(asked.kind, known))
                engine.apply(
                    asked.kind, known if asked.document is None else asked.document, deleted=asked.document is None
                )

    def _placed(self, pods: Sequence[Pod], template: Node | None) -> TrialOutcome | None:
        first, let_in, added = "", 0, 0
        for pod in pods:
            if not self._engine.pre_enqueue(pod).ok:
                break
            node = self._place(pod)
            if not node and template is not None and added < MOST_NODES:
                added += 1
                self._add_node(template, added)
                node = self._place(pod)
                added -= not node
            if not node:
                break
            first, let_in = first or node, let_in + 1
        return TrialOutcome(let_in, first, added) if let_in and (template is None or added) else None

    def _place(self, pod: Pod) -> str:
        """Assumes the pod on its best node, and returns that."""
        engine = self._engine
        decision = engine.schedule(pod)
        if decision.node is None or not engine.assume(pod, decision.node).ok:
            return ""
        self._undo.append(lambda: engine.forget(pod))
        return decision.node

    def _preempted(self, pod: Pod) -> TrialOutcome | None:
        decision = self._engine.schedule(pod)
        if decision.diagnosis is None:
            return None
        result = self._engine.preempt(pod, decision.diagnosis)
        if result.node is None:
            return None
        names = tuple(f"{each.metadata.namespace}/{each.metadata.name}" for each in result.victims)
        return TrialOutcome(1, result.node, victims=names)

    def _add_node(self, template: Node, number: int) -> None:
        """Adds an empty node like the template, with the devices and daemon pods that it would have."""
        engine, member = self._engine, template.metadata.name
        name = f"{member}-added-{number}"
        labels = {**template.metadata.labels, _HOSTNAME: name}
        made = replace(template, metadata=ObjectMeta(name=name, uid=name, labels=labels))
        self._undo.append(lambda: engine.remove_node(name))
        engine.set_node(made)
        for kind in _BY_NODE_NAME:
            known = engine.known(kind, "", member)
            if known is not None:
                copy = _renamed(known, name)
                self._undo.append(partial(engine.apply, kind, copy, deleted=True))
                engine.apply(kind, copy)
        for pod in daemon_pods(engine, member):
            metadata = replace(pod.metadata, name=f"{pod.metadata.name}-{name}", uid=f"{pod.metadata.uid}-{name}")
            copied = replace(pod, metadata=metadata, spec=replace(pod.spec, node_name=name))
            self._undo.append(partial(engine.remove_pod, *metadata.key))
            engine.set_pod(copied)


def daemon_pods(engine: Engine, node: str) -> Iterable[Pod]:
    """The pods of DaemonSets on a node: a new node like it gets them, too."""
    row = engine.tables.row_of.get(node)
    if row is None:
        return []
    found = []
    for each in engine.tables.pods_on[row].values():
        owner = each.pod.metadata.controller
        if owner is not None and owner.kind == "DaemonSet":
            found.append(each.pod)
    return found


def _renamed(known: Any, name: str) -> Any:
    if isinstance(known, dict):
        return {**known, "metadata": {**known["metadata"], "name": name, "uid": name}}
    return replace(known, metadata=replace(known.metadata, name=name, uid=name))
