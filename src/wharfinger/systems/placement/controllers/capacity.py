"""Asks the agents of clusters how many pods of a workload fit there.

A Placement names a PodTemplate of its namespace in the annotation `wharfinger.dev/capacity`. For each such template and
each cluster that a Placement can select from, this controller keeps an AddOnPlacementScore in the cluster's namespace with
the question. The agent adds its answer; nothing here reads it.
"""

from __future__ import annotations

from contextlib import suppress

from wharfinger.api.errors import AlreadyExists, NotFound
from wharfinger.api.keys import ObjectKey
from wharfinger.api.kinds.builtin import NAMESPACES, POD_TEMPLATES
from wharfinger.api.registry import Document
from wharfinger.api.views.meta import Metadata
from wharfinger.controllers.context import ContextController, ControllerContext
from wharfinger.systems.placement.kinds.names import (
    ADDON_PLACEMENT_SCORES,
    MANAGED_CLUSTER_SET_BINDINGS,
    MANAGED_CLUSTER_SETS,
    MANAGED_CLUSTERS,
    PLACEMENTS,
)
from wharfinger.systems.placement.kinds.views import (
    AddOnPlacementScore,
    ManagedClusterSet,
    ManagedClusterSetBinding,
    Placement,
)
from wharfinger.systems.placement.rules.capacity import (
    QUESTION,
    CapacityQuestion,
    question_name,
    schedulable_part,
    template_key,
    write_question,
)
from wharfinger.systems.placement.rules.extras import CAPACITY, CapacityNeed, parse_extras
from wharfinger.systems.placement.rules.scope import compile_sets, scope_of


class CapacityController(ContextController[ObjectKey]):
    """Keys are namespace and name of PodTemplates."""

    name = "capacity"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._needs: dict[ObjectKey, dict[ObjectKey, CapacityNeed]] = {}  # template → placement → what it needs
        informers = context.informers
        self.templates = context.documents(POD_TEMPLATES)
        self.clusters = context.documents(MANAGED_CLUSTERS)
        self.namespaces = informers.of(NAMESPACES, Metadata)
        self.sets = informers.of(MANAGED_CLUSTER_SETS, ManagedClusterSet)
        self.bindings = informers.of(MANAGED_CLUSTER_SET_BINDINGS, ManagedClusterSetBinding)
        self.scores = informers.of(ADDON_PLACEMENT_SCORES, AddOnPlacementScore)
        self.placements = informers.of(PLACEMENTS, Placement)
        self._asked = self.scores.index("question", _question_of)
        self.placements.add_handler(self._placement, self._placement_changed, self._placement_gone)
        self.templates.add_handler(self._template, lambda old, new: self._template(new), self._template)
        self.clusters.add_handler(self._cluster, self._cluster_changed, self._cluster)
        self.namespaces.add_handler(lambda _: self._queue_all())
        self.sets.add_handler(self._set, self._set_changed, self._set)
        self.bindings.add_handler(self._binding, None, self._binding)
        self.scores.add_handler(self._score, self._score_changed, self._score)

    # Which templates a change concerns

    def _placement(self, placement: Placement) -> None:
        need = _need(placement)
        if need is not None:
            key = (placement.metadata.namespace, need.pod_template)
            self._needs.setdefault(key, {})[placement.metadata.key] = need
            self.queue.add(key)

    def _placement_changed(self, old: Placement, new: Placement) -> None:
        if old.metadata.annotations.get(CAPACITY) != new.metadata.annotations.get(CAPACITY) or (
            CAPACITY in new.metadata.annotations and old.spec.cluster_sets != new.spec.cluster_sets
        ):
            self._placement_gone(old)
            self._placement(new)

    def _placement_gone(self, placement: Placement) -> None:
        need = _need(placement)
        if need is None:
            return
        key = (placement.metadata.namespace, need.pod_template)
        needs = self._needs.get(key, {})
        needs.pop(placement.metadata.key, None)
        if not needs:
            self._needs.pop(key, None)
        self.queue.add(key)

    def _template(self, template: Document) -> None:
        key = (template["metadata"].get("namespace") or "", template["metadata"]["name"])
        if key in self._needs:
            self.queue.add(key)

    def _cluster(self, cluster: Document) -> None:
        self._queue_all()

    def _cluster_changed(self, old: Document, new: Document) -> None:
        before, after = old["metadata"], new["metadata"]
        if before.get("labels") != after.get("labels") or before.get("deletionTimestamp") != after.get(
            "deletionTimestamp"
        ):
            self._queue_all()

    def _set(self, cluster_set: ManagedClusterSet) -> None:
        self._queue_all()

    def _set_changed(self, old: ManagedClusterSet, new: ManagedClusterSet) -> None:
        if old.spec != new.spec:
            self._queue_all()

    def _binding(self, binding: ManagedClusterSetBinding) -> None:
        for key in self._needs:
            if key[0] == binding.metadata.namespace:
                self.queue.add(key)

    def _score(self, score: AddOnPlacementScore) -> None:
        """A question that somebody changed is put back, and one that nobody asks any more is removed."""
        for key in _question_of(score):
            self.queue.add(key)

    def _score_changed(self, old: AddOnPlacementScore, new: AddOnPlacementScore) -> None:
        if old.metadata.annotations.get(QUESTION) != new.metadata.annotations.get(QUESTION):
            self._score(old)
            self._score(new)

    def _queue_all(self) -> None:
        for key in self._needs:
            self.queue.add(key)

    # Questions

    async def reconcile(self, key: ObjectKey) -> None:
        wanted = self._wanted(key)
        name, client = question_name(*key), self.context.client
        there = {score.metadata.namespace: score for score in self._asked.get(key)}
        for cluster in sorted(there.keys() - wanted.keys()):
            with suppress(NotFound):
                await client.delete(ADDON_PLACEMENT_SCORES, name, cluster)
        for cluster, question in sorted(wanted.items()):
            known = there.get(cluster)
            if known is not None and known.metadata.annotations.get(QUESTION) == question:
                continue
            change = {"metadata": {"annotations": {QUESTION: question}}}
            try:
                if known is None:
                    await self._ask(name, cluster, change)
                else:
                    await client.patch(ADDON_PLACEMENT_SCORES, name, change, cluster)
            except NotFound:  # deleted meanwhile, or its namespace; its event queues the template again
                continue

    async def _ask(self, name: str, cluster: str, change: Document) -> None:
        document: Document = {
            "apiVersion": ADDON_PLACEMENT_SCORES.api_version,
            "kind": ADDON_PLACEMENT_SCORES.kind,
            "metadata": {"name": name, "namespace": cluster, **change["metadata"]},
        }
        try:
            await self.context.client.create(ADDON_PLACEMENT_SCORES, document, cluster)
        except AlreadyExists:
            await self.context.client.patch(ADDON_PLACEMENT_SCORES, name, change, cluster)

    def _wanted(self, key: ObjectKey) -> dict[str, str]:
        """The question for each cluster."""
        needs = {
            placement: (need, found)
            for placement, need in self._needs.get(key, {}).items()
            if (found := self.placements.get(placement[1], placement[0])) is not None
            and not found.metadata.deletion_timestamp
        }
        template = self.templates.get(key[1], key[0])
        if template is None:
            for _, placement in needs.values():
                self.context.recorder.event(
                    PLACEMENTS,
                    placement,
                    "Warning",
                    "PodTemplateNotFound",
                    f"PodTemplate {key[1]} does not exist, so no cluster is asked for its capacity",
                )
        if template is None or not needs:
            return {}
        question = write_question(
            CapacityQuestion(
                namespace=key[0],
                replicas=max(need.replicas for need, _ in needs.values()),
                template=schedulable_part(template.get("template") or {}),
            )
        )
        selectors, _ = compile_sets(self.sets)
        bound = [binding.metadata.name for binding in self.bindings if binding.metadata.namespace == key[0]]
        eligible = {
            selector
            for _, placement in needs.values()
            for selector in scope_of(placement.spec.cluster_sets, bound, selectors).selectors
        }
        return {
            name: question
            for name, labels in self._present()
            if any(selector.matches(labels, {}) for selector in eligible)
        }

    def _present(self) -> list[tuple[str, dict[str, str]]]:
        """Clusters that have a namespace, with their labels."""
        found = []
        for cluster in self.clusters:
            metadata = cluster["metadata"]
            namespace = self.namespaces.get(metadata["name"])
            if (
                not metadata.get("deletionTimestamp")
                and namespace is not None
                and not namespace.metadata.deletion_timestamp
            ):
                found.append((metadata["name"], metadata.get("labels") or {}))
        return found


def _need(placement: Placement) -> CapacityNeed | None:
    annotations = placement.metadata.annotations
    return parse_extras(annotations).capacity if CAPACITY in annotations else None


def _question_of(score: AddOnPlacementScore) -> tuple[ObjectKey, ...]:
    key = template_key(score.metadata.name) if QUESTION in score.metadata.annotations else None
    return () if key is None else (key,)
