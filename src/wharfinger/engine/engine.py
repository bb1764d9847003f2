"""The engine: events in, decisions out. Holds the tables and the profiles; knows no clock and does no I/O.

engine = Engine()
engine.set_node(node)
decision = engine.schedule(pod)
if decision.node:
    engine.assume(pod, decision.node)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from wharfinger.api.keys import ObjectKey
from wharfinger.api.kubernetes_version import REFERENCE, KubernetesVersion
from wharfinger.api.views import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
    StorageClass,
    VolumeAttachment,
    view,
)
from wharfinger.engine import evaluation, preemption
from wharfinger.engine.answers import Answers
from wharfinger.engine.outcome import NO_NODES, Decision, Diagnosis, Explanation, PreemptionResult
from wharfinger.engine.preparation import PreparedShape
from wharfinger.engine.profile import Profile, ProfileSpec, default_profile
from wharfinger.engine.registry import known_plugins
from wharfinger.engine.rows import REFUSED, SHIFT
from wharfinger.engine.special_rows import feasible_rows
from wharfinger.framework.events import ClusterEvent
from wharfinger.framework.plugin import FailedAttempt, Plugin
from wharfinger.framework.prebinding import Preparation, Write
from wharfinger.framework.shapes import have_one_shape
from wharfinger.framework.status import SUCCESS, Code, Status
from wharfinger.framework.tables import EVERY_NAMESPACE, PodOnNode, Tables

VIEWS: dict[str, type[Any]] = {
    "CSIDriver": CSIDriver,
    "CSINode": CSINode,
    "CSIStorageCapacity": CSIStorageCapacity,
    "Namespace": Namespace,
    "PersistentVolume": PersistentVolume,
    "PersistentVolumeClaim": PersistentVolumeClaim,
    "PodDisruptionBudget": PodDisruptionBudget,
    "ReplicaSet": ReplicaSet,
    "ReplicationController": ReplicationController,
    "Service": Service,
    "StatefulSet": StatefulSet,
    "StorageClass": StorageClass,
    "VolumeAttachment": VolumeAttachment,
}
"""View types of the kinds that stock plugins observe."""


class UnknownProfile(KeyError):
    """There is no profile with this scheduler name."""

    def __init__(self, name: str) -> None:
        super().__init__(f'profile not found for scheduler name "{name}"')


class Engine:
    def __init__(
        self,
        profiles: Iterable[ProfileSpec] = (),
        *,
        seed: int = 0,
        plugins: Mapping[str, type[Plugin]] | None = None,
        kubernetes: KubernetesVersion = REFERENCE,
    ) -> None:
        """`plugins` are classes in addition to the registered ones; the seed decides ties between equal nodes; the rules
        are those of the given version of Kubernetes."""
        self.tables = Tables(seed, kubernetes=kubernetes)
        classes = known_plugins(kubernetes) | dict(plugins or {})
        specs = list(profiles) or [default_profile(kubernetes=kubernetes)]
        self.profiles = {spec.scheduler_name: Profile(spec, self.tables, classes) for spec in specs}
        self._plugins = [plugin for profile in self.profiles.values() for plugin in profile.plugins.values()]
        #: View types by kind; documents of other kinds reach the plugins as they are.
        self.views = VIEWS | {kind: each for plugin in self._plugins for kind, each in plugin.views.items()}
        self._objects: dict[str, dict[ObjectKey, Any]] = {}
        self.budgets: Sequence[PodDisruptionBudget] = []
        self.budgets_version = 0
        #: If set, collects the assumed and nominated pods that give their room back: no event of the API server tells of that.
        self.returned: list[PodOnNode] | None = None

    # -- events

    def set_node(self, node: Node) -> None:
        """A node was added or updated."""
        self.tables.set_node(node)

    def remove_node(self, name: str) -> None:
        self.tables.remove_node(name)

    def set_foreign_node(self, name: str, labels: Mapping[str, str] | None) -> None:
        """A node that is not ours was added or updated, or with None deleted."""
        self.tables.set_foreign_node(name, labels)

    def set_pod(self, pod: Pod) -> None:
        """A pod was added or updated. Only bound pods that have not terminated are counted; this confirms assumed pods."""
        tables = self.tables
        key = (pod.metadata.namespace, pod.metadata.name)
        if pod.terminal or not pod.spec.node_name:
            self._remove(key)
            return
        old = tables.pods.get(key)
        shape = old.shape if old is not None and have_one_shape(old.pod, pod) else None
        new = tables.record(pod, pod.spec.node_name, shape)
        if old is None:
            tables.add_pod(new)
        elif not tables.replace_pod(old, new):
            if old.assumed and old.node_name != new.node_name:
                self._gave_back(old)
            tables.add_pod(new)
        if tables.nominated:
            self._nominate(None, key, new.node_name)

    def remove_pod(self, namespace: str, name: str) -> None:
        """A pod was deleted, whether bound, assumed or nominated."""
        self._remove((namespace, name))
        self._nominate(None, (namespace, name))

    def _remove(self, key: ObjectKey) -> None:
        removed = self.tables.remove_pod(key)
        if removed is not None and removed.assumed:
            self._gave_back(removed)

    def _nominate(self, pod: PodOnNode | None, key: ObjectKey, node_name: str = "") -> None:
        """Nominates a pod or, with None, clears the nomination of one that now takes room on `node_name`, if anywhere."""
        dropped = self.tables.nominate(pod, key)
        if dropped is not None and dropped.node_name != (pod.node_name if pod is not None else node_name):
            self._gave_back(dropped)

    def _gave_back(self, pod: PodOnNode) -> None:
        if self.returned is not None:
            self.returned.append(pod)

    def apply(self, kind: str, document: Any, *, deleted: bool = False) -> None:
        """An object of another kind was added, updated or deleted: a view or a document."""
        if isinstance(document, Mapping) and kind in self.views:
            document = view(document, self.views[kind])
        of_kind = self._objects.setdefault(kind, {})
        key = _key(document)
        old = of_kind.get(key)
        if deleted:
            of_kind.pop(key, None)
        else:
            of_kind[key] = document
        new = None if deleted else document
        if kind == "Namespace":
            self._namespace(key[1], new)
        if kind == "PodDisruptionBudget":
            self.budgets = list(of_kind.values())
            self.budgets_version += 1
        if old is None and new is None:
            return
        for plugin in self._plugins:
            if kind in plugin.kinds:
                plugin.observe(kind, old, new)

    def known(self, kind: str, namespace: str, name: str) -> Any | None:
        """An object of another kind as `apply` was told of it last; None if there is none."""
        return self._objects.get(kind, {}).get((namespace, name))

    def _namespace(self, name: str, namespace: Any) -> None:
        labels = None if namespace is None else namespace.metadata.labels
        if self.tables.namespaces.get(name) == labels:
            return
        if labels is None:
            del self.tables.namespaces[name]
        else:
            self.tables.namespaces[name] = labels
        # Affinity terms with namespace selectors may select other namespaces now.
        self.tables.changed(namespace=EVERY_NAMESPACE)

    def set_nominated(self, pod: Pod, node_name: str | None) -> None:
        """Nominates a pending pod for a node, or with None clears the nomination."""
        record = None if not node_name else self.tables.record(pod, node_name)
        self._nominate(record, (pod.metadata.namespace, pod.metadata.name))

    def nominated_node(self, pod: Pod) -> str:
        """The node for which a pending pod is nominated; empty for none."""
        return next((name for name, pods in self.tables.nominated.items() if pod.metadata.key in pods), "")

    # -- decisions

    def profile(self, pod: Pod, name: str | None = None) -> Profile:
        name = pod.spec.scheduler_name if name is None else name
        profile = self.profiles.get(name)
        if profile is None:
            raise UnknownProfile(name)
        return profile

    def pre_enqueue(self, pod: Pod, profile: str | None = None) -> Status:
        """Whether the pod may enter the active queue."""
        for plugin in self.profile(pod, profile).at["preEnqueue"]:
            status = plugin.pre_enqueue(pod)
            if not status.ok:
                return status if status.plugin else status.by(plugin.name)
        return SUCCESS

    def schedule(self, pod: Pod, profile: str | None = None) -> Decision:
        """The best node for a pod, of all nodes. Changes nothing: see `assume`."""
        tables = self.tables
        if not tables.row_of:
            return Decision(error=NO_NODES)
        chosen = self.profiles.get(profile or pod.spec.scheduler_name) or self.profile(pod, profile)
        answers = chosen.answers_for(pod)
        prepared = answers.prepared
        if prepared.refusal is not None:
            if prepared.refusal.code is Code.ERROR:
                text = f'running PreFilter plugin "{prepared.refusal.plugin}": {prepared.refusal.message}'
                return Decision(error=text)
            return Decision(diagnosis=evaluation.diagnose(tables, prepared, pod))
        if prepared.fails():
            fault = evaluation.filter_error(tables, prepared, pod)
            if fault is not None:
                return Decision(error=fault.message)
        if pod.status.nominated_node_name:
            row = tables.row_of.get(pod.status.nominated_node_name)
            if row is not None and self._feasible(prepared, pod, row):
                return Decision(pod.status.nominated_node_name, row, 1, 1)
        only = prepared.within if prepared.only is None else prepared.only
        if only is not None:
            return self._among(prepared, only, pod)
        if answers.favoured is not None and not tables.nominated:
            row = answers.favoured.best(pod)
            if row >= 0:
                return Decision(tables.names[row], row, 0, len(tables.row_of))
        values = answers.values
        values.refresh()
        row = self._best_with_special_rows(answers, pod) if tables.nominated or prepared.overlays else values.best()
        if row < 0:
            accepted = values.nodes_accept
            return Decision(diagnosis=evaluation.diagnose(tables, prepared, pod, nodes_accepted=accepted))
        if prepared.score_fault and self._has_choice(answers, pod):
            return Decision(error=prepared.score_fault)
        return Decision(tables.names[row], row, 0, len(tables.row_of))

    def _best_with_special_rows(self, answers: Answers, pod: Pod) -> int:
        """The best row when some rows have overlays or nominated pods; -1 if no row is feasible."""
        accepted = feasible_rows(self.tables, answers, pod)
        if accepted is None:
            return answers.values.best()
        values = answers.values.among(accepted)
        row = int(values.argmax())
        return row if values[row] != REFUSED else -1

    def _has_choice(self, answers: Answers, pod: Pod) -> bool:
        """Whether more than one row is feasible, so that scores matter."""
        accepted = feasible_rows(self.tables, answers, pod)
        return int(np.count_nonzero(answers.values.accepted() if accepted is None else accepted)) > 1

    def _feasible(self, prepared: PreparedShape, pod: Pod, row: int) -> bool:
        if prepared.only is not None and self.tables.name(row) not in prepared.only:
            return False
        filters = evaluation.active_filters(prepared)
        return not evaluation.row_refusals(self.tables, prepared, filters, pod, row)

    def _among(self, prepared: PreparedShape, names: Collection[str], pod: Pod) -> Decision:
        """The best of the only nodes that can be feasible. Nothing is cached for such shapes."""
        tables = self.tables
        rows = [tables.row_of[name] for name in names if name in tables.row_of]
        feasible = [row for row in rows if self._feasible(prepared, pod, row)]
        if not feasible:
            return Decision(diagnosis=evaluation.diagnose(tables, prepared, pod))
        best = feasible[0]
        if len(feasible) > 1:
            if prepared.score_fault:
                return Decision(error=prepared.score_fault)
            chosen = np.array(sorted(feasible))
            total = np.zeros(len(chosen), dtype=np.int64)
            for _, scores in evaluation.final_scores(prepared, chosen):
                total += scores
            best = int(chosen[((total << SHIFT) - tables.tie_breaks.view[chosen]).argmax()])
        return Decision(tables.name(best), best, len(feasible), len(rows))

    def ties(self, pod: Pod, one: str, other: str) -> bool:
        """Whether the pod fits on both nodes with the same score, so that only the tie-break decides between them."""
        if one not in self.tables.row_of or other not in self.tables.row_of:
            return False
        rows = [self.tables.row_of[name] for name in (one, other)]
        answers = self.profile(pod).answers_for(pod)
        if answers.prepared.refusal is not None:
            return False
        if answers.prepared.only is not None:
            found = self.explain(pod)
            return one in found.scores and other in found.scores and found.total(one) == found.total(other)
        answers.values.refresh()
        accepted = feasible_rows(self.tables, answers, pod)
        values = answers.values.among(answers.values.accepted() if accepted is None else accepted)[rows]
        if (values == REFUSED).any():
            return False
        totals = (values + self.tables.tie_breaks.view[rows]) >> SHIFT
        return bool(totals[0] == totals[1])

    def explain(self, pod: Pod, profile: str | None = None) -> Explanation:
        """Every node's verdict and scores, computed without caches."""
        chosen = self.profile(pod, profile)
        return evaluation.explain(self.tables, chosen.answers_for(pod).prepared, pod)

    def preempt(self, pod: Pod, diagnosis: Diagnosis | None = None, profile: str | None = None) -> PreemptionResult:
        """Runs the postFilter plugins: which pods to evict so that this one fits. `diagnosis` is that of the failed attempt;
        their messages are added to it."""
        chosen = self.profile(pod, profile)
        answers = chosen.answers_for(pod)
        if diagnosis is None:
            diagnosis = evaluation.diagnose(self.tables, answers.prepared, pod)
        sparing = [plugin for plugin in chosen.plugins.values() if plugin.spares_pods()]

        result, messages, writes = PreemptionResult(False), list[str](), list[Write]()
        for plugin in chosen.at["postFilter"]:
            if plugin.preempts:
                result = preemption.preempt(self.tables, answers, pod, diagnosis, self, sparing)
                if result.node is not None:
                    told = self.tables.kubernetes >= KubernetesVersion.V1_37
                    diagnosis.post_filter = preemption.success_message(result) if told else ""
                    return result
                messages.append(f"preemption: {result.message}")
                continue
            failure = FailedAttempt(plugin.name not in answers.prepared.skipped, diagnosis.groups)
            found = plugin.post_filter(pod, answers.prepared.by_plugin.get(plugin.name), failure)
            writes += found.writes
            if found.status.code is Code.ERROR:
                diagnosis.post_filter = found.status.message
                return PreemptionResult(True, found.status.message)
            messages += found.status.reasons
        diagnosis.post_filter = ", ".join(messages)
        result.writes = tuple(writes)
        return result

    # -- reserving and binding

    def assume(self, pod: Pod, node_name: str, profile: str | None = None) -> Status:
        """Adds the pod to the node before it is bound; it needs no nomination any more. If a plugin refuses, nothing has
        changed."""
        tables = self.tables
        chosen = self.profiles.get(profile or pod.spec.scheduler_name) or self.profile(pod, profile)
        answers = chosen.answers_for(pod)
        row = tables.row_of[node_name]
        reservers = answers.prepared.reservers
        for index, (plugin, prepared) in enumerate(reservers):
            status = plugin.reserve(pod, row, prepared)
            if not status.ok:
                for earlier, _ in reversed(reservers[: index + 1]):
                    earlier.unreserve(pod, row)
                return status.by(plugin.name)
        record = tables.record(pod, node_name, None if pod.spec.node_name else answers.shape.plain)
        record.assumed = True
        tables.tie_breaks.chosen(row)
        tables.add_pod(record)
        if tables.nominated:
            self._nominate(None, record.key, node_name)
        return SUCCESS

    def forget(self, pod: Pod, profile: str | None = None) -> None:
        """Removes an assumed pod whose bind failed. Plugins unreserve even if the pod itself was deleted already."""
        key = (pod.metadata.namespace, pod.metadata.name)
        record = self.tables.pods.get(key)
        row = -1
        if record is not None and record.assumed:
            row = record.row
            self._remove(key)
        elif record is not None and record.pod.metadata.uid == pod.metadata.uid:
            return
        for plugin in reversed(self.profile(pod, profile).at["reserve"]):
            plugin.unreserve(pod, row)

    def commit(self, pod: Pod, profile: str | None = None) -> None:
        """An assumed pod was bound."""
        for plugin in self.profile(pod, profile).at["reserve"]:
            plugin.commit(pod)

    def preparations(self, pod: Pod, node_name: str, profile: str | None = None) -> list[tuple[str, Preparation]]:
        """What must happen before the assumed pod is bound, by plugin."""
        found = []
        for plugin in self.profile(pod, profile).at["preBind"]:
            preparation = plugin.before_binding(pod, node_name)
            if preparation is not None:
                found.append((plugin.name, preparation))
        return found

    def annotations(self, pod: Pod, node_name: str, profile: str | None = None) -> dict[str, str]:
        """The annotations that plugins put on the Binding."""
        merged: dict[str, str] = {}
        for plugin in self.profile(pod, profile).at["preBind"]:
            merged |= plugin.pre_bind(pod, node_name)
        return merged

    def object_gone(self, kind: str, namespace: str, name: str) -> Any | None:
        """The API server says that there is no such object, before a watch does. Returns it if it was known until now."""
        known = None
        for profile in self.profiles.values():
            for plugin in profile.plugins.values():
                if kind in plugin.kinds:
                    known = plugin.object_gone(kind, (namespace, name)) or known
        return known

    def wakes(self, pod: Pod, refused_by: Iterable[str], event: ClusterEvent, profile: str | None = None) -> bool:
        """Whether an event can make a pod schedulable that was refused by these plugins."""
        plugins = self.profile(pod, profile).plugins
        return any(
            wake_up.wakes(pod, event) for name in refused_by if name in plugins for wake_up in plugins[name].wake_ups()
        )


def _key(document: Any) -> ObjectKey:
    if isinstance(document, Mapping):
        metadata = document.get("metadata", {})
        return metadata.get("namespace", ""), metadata.get("name", "")
    return document.metadata.namespace, document.metadata.name
