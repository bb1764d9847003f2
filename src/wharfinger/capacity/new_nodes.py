"""New nodes in an engine: added, filled with pods by the scheduler's own decisions, and taken out again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wharfinger.api.registry import Document
from wharfinger.api.views import DaemonSet, Node, Pod, view
from wharfinger.capacity.models import NodeModel
from wharfinger.controllers.daemon_set.rules import NodeEligibility, with_tolerations
from wharfinger.engine import Decision, Engine
from wharfinger.engine.engine import UnknownProfile
from wharfinger.engine.evaluation import active_filters, row_refusals
from wharfinger.framework.stand_ins import StandIn


def pod_title(pod: Pod) -> str:
    """`shop/web-0`, or `Reservation train` for an object that needs room as a pod does."""
    return f"{pod.kind} {pod.object_name}" if isinstance(pod, StandIn) else "/".join(pod.metadata.key)


@dataclass(frozen=True, slots=True)
class DaemonPods:
    """What a DaemonSet runs on the nodes that it selects."""

    name: str
    eligible: NodeEligibility
    template: Document

    def on(self, node: Node) -> Pod | None:
        if not self.eligible.of(node).run:
            return None
        metadata = self.template.get("metadata") or {}
        document: Document = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**metadata, "name": f"{self.name}-{node.metadata.name}", "namespace": "kube-system"},
            "spec": {**with_tolerations(self.template.get("spec") or {}), "nodeName": node.metadata.name},
        }
        document["metadata"]["uid"] = document["metadata"]["name"]
        return view(document, Pod)


def daemon_pods(daemon_sets: Iterable[Document]) -> list[DaemonPods]:
    found = []
    for document in daemon_sets:
        metadata = document["metadata"]
        name = f"{metadata.get('namespace', '')}-{metadata['name']}"
        found.append(DaemonPods(name, NodeEligibility(view(document, DaemonSet)), document["spec"]["template"]))
    return found


class NewNodes:
    """Adds new nodes to an engine. Whatever is added can be removed again; the engine is then as before."""

    def __init__(self, engine: Engine, daemons: Sequence[DaemonPods]) -> None:
        self.engine = engine
        self._daemons = daemons
        self.models: dict[str, NodeModel] = {}  # of the new nodes, by name
        self._placed: list[Pod] = []
        self._beside: dict[str, list[Document]] = {}
        self._on: dict[str, list[Pod]] = {}  # daemon pods
        self.questions = 0  # how often the engine was asked for a node: what a search may spend is counted in these

    def add(self, model: NodeModel, name: str) -> None:
        node, *beside = model.named(name)
        node["metadata"]["uid"] = name
        for each in beside:
            each["metadata"].setdefault("uid", f"{name}-{each['kind']}")
            self.engine.apply(each["kind"], each)
        seen = view(node, Node)
        self.engine.set_node(seen)
        self.models[name] = model
        self._beside[name] = beside
        self._on[name] = [pod for each in self._daemons if (pod := each.on(seen)) is not None]
        for pod in self._on[name]:
            self.engine.set_pod(pod)

    def remove(self, name: str) -> None:
        """Removes a new node on which no pod was placed."""
        for pod in self._on.pop(name):
            self.engine.remove_pod(*pod.metadata.key)
        self.engine.remove_node(name)
        for each in self._beside.pop(name):
            self.engine.apply(each["kind"], each, deleted=True)
        del self.models[name]

    def decide(self, pod: Pod) -> Decision:
        self.questions += 1
        try:
            return self.engine.schedule(pod)
        except UnknownProfile as error:
            return Decision(error=str(error.args[0]))

    def place(self, pod: Pod) -> Decision:
        """Places a pod where the scheduler would."""
        decision = self.decide(pod)
        if decision.node is not None:
            status = self.engine.assume(pod, decision.node)
            if not status.ok:
                return Decision(error=status.message)
            self._placed.append(pod)
        return decision

    def place_on(self, pod: Pod, name: str) -> bool:
        """Places a pod on a node, if the scheduler could."""
        self.questions += 1
        engine = self.engine
        profile = engine.profiles.get(pod.spec.scheduler_name)
        if profile is None:
            return False
        prepared = profile.answers_for(pod).prepared
        if prepared.refusal is not None or (prepared.only is not None and name not in prepared.only):
            return False
        row = engine.tables.row_of[name]
        if row_refusals(engine.tables, prepared, active_filters(prepared), pod, row):
            return False
        if not engine.assume(pod, name).ok:
            return False
        self._placed.append(pod)
        return True

    def mark(self) -> int:
        return len(self._placed)

    def back(self, mark: int) -> None:
        """Takes back the pods that were placed after the first `mark`."""
        while len(self._placed) > mark:
            self.engine.forget(self._placed.pop())

    def clear(self, mark: int) -> None:
        """Takes back pods as `back` does, and all new nodes."""
        self.back(mark)
        for name in list(self.models):
            self.remove(name)
