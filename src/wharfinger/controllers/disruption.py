"""The disruption controller: the status of PodDisruptionBudgets, and stale DisruptionTarget conditions.

As upstream, a budget is computed again when it or one of its pods changes, not when an owner of the pods is scaled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from wharfinger.api.conditions import new_condition, set_condition
from wharfinger.api.errors import ApiError, Conflict, NotFound
from wharfinger.api.keys import ObjectKey
from wharfinger.api.kinds.builtin import (
    DEPLOYMENTS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
)
from wharfinger.api.object_meta import controller_of
from wharfinger.api.registry import Document
from wharfinger.api.requests import PatchType
from wharfinger.api.selectors import BadSelector, matches
from wharfinger.api.times import format_time, parse_time
from wharfinger.api.views import OwnerReference, Pod, PodDisruptionBudget, view
from wharfinger.client.events import EventKind
from wharfinger.controllers.context import ControllerContext, DocumentController
from wharfinger.controllers.int_or_percent import scaled
from wharfinger.controllers.pod_owner import BATCH_WINDOW
from wharfinger.controllers.status_patches import patch_status

DELETION_TIMEOUT = 120.0  # seconds until an eviction whose deletion was not observed is forgotten
STALE_TARGET = 120.0  # seconds until the DisruptionTarget condition of a pod that is not deleted is reset


class NoExpectedCount(Exception):
    """The expected number of pods is unknown: an owner does not exist or has no scale."""


class DisruptionCounts(msgspec.Struct, frozen=True):
    current_healthy: int
    desired_healthy: int
    expected: int

    @property
    def allowed(self) -> int:
        return max(0, self.current_healthy - self.desired_healthy) if self.expected > 0 else 0


def needs_scale(budget: PodDisruptionBudget) -> bool:
    """Whether the sizes of the owners are needed, which an absolute minAvailable does not."""
    return budget.spec.max_unavailable is not None or isinstance(budget.spec.min_available, str)


def desired_healthy(budget: PodDisruptionBudget, expected: int) -> int:
    spec = budget.spec
    if spec.max_unavailable is not None:
        return max(0, expected - scaled(spec.max_unavailable, expected, round_up=True))
    if spec.min_available is not None:
        return scaled(spec.min_available, expected, round_up=True)
    return 0


def healthy(pods: Iterable[Pod], disrupted: Mapping[str, str], now: float) -> int:
    """The number of ready pods that are not being deleted or evicted."""
    return sum(
        pod.ready
        and not pod.terminating
        and not (pod.metadata.name in disrupted and parse_time(disrupted[pod.metadata.name]) + DELETION_TIMEOUT > now)
        for pod in pods
    )


def still_disrupted(pods: Iterable[Pod], disrupted: Mapping[str, str], now: float) -> dict[str, str]:
    """The entries of `disruptedPods` whose deletion was not observed and that have not timed out."""
    return {
        pod.metadata.name: disrupted[pod.metadata.name]
        for pod in pods
        if not pod.terminating
        and pod.metadata.name in disrupted
        and parse_time(disrupted[pod.metadata.name]) + DELETION_TIMEOUT >= now
    }


class DisruptionController(DocumentController):
    name = "disruption"
    workers = 2

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self.budgets = self.reconciled(POD_DISRUPTION_BUDGETS)
        self.pods = context.pods
        self.by_namespace = self.pods.index("namespace", lambda pod: (pod.metadata.namespace,))
        self.owners = {
            resource.kind: context.documents(resource)
            for resource in (REPLICA_SETS, DEPLOYMENTS, STATEFUL_SETS, REPLICATION_CONTROLLERS)
        }
        self.pods.add_handler(self._pod_changed, self._pod_updated, self._pod_changed)

    async def reconcile(self, key: ObjectKey) -> None:
        if key[0].startswith("pod:"):
            await self._clear_stale_target((key[0].removeprefix("pod:"), key[1]))
            return
        document = self.budgets.get(key[1], key[0])
        if document is None:
            return
        budget = view(document, PodDisruptionBudget)
        try:
            await self._sync(key, document, budget)
        except Conflict:
            raise
        except (NoExpectedCount, ApiError, ValueError) as error:
            self._event(
                document,
                "CalculateExpectedPodCountFailed",
                f"Failed to calculate the number of expected pods: {error}",
            )
            conditions = self._conditions(
                document, budget.status.observed_generation, "False", "SyncFailed", str(error)
            )
            await patch_status(
                self.client,
                POD_DISRUPTION_BUDGETS,
                document,
                {"disruptionsAllowed": 0, "conditions": conditions},
                locked=True,
            )

    async def _sync(self, key: ObjectKey, document: Document, budget: PodDisruptionBudget) -> None:
        now = self.context.now()
        pods = self._selected(budget)
        if not pods:
            self._event(document, "NoPods", "No matching pods found", type="Normal")
        expected = await self._expected(document, pods) if needs_scale(budget) else len(pods)
        disrupted = still_disrupted(pods, budget.status.disrupted_pods, now)
        counts = DisruptionCounts(healthy(pods, disrupted, now), desired_healthy(budget, expected), expected)
        enough = counts.allowed > 0
        reason = "SufficientPods" if enough else "InsufficientPods"
        generation = budget.metadata.generation
        status: Document = {
            "currentHealthy": counts.current_healthy,
            "desiredHealthy": counts.desired_healthy,
            "expectedPods": counts.expected,
            "disruptionsAllowed": counts.allowed,
            "observedGeneration": generation,
            "conditions": self._conditions(document, generation, "True" if enough else "False", reason, ""),
        }
        if disrupted != budget.status.disrupted_pods:
            gone = {name: None for name in budget.status.disrupted_pods if name not in disrupted}
            status["disruptedPods"] = {**disrupted, **gone} if disrupted else None
        await patch_status(self.client, POD_DISRUPTION_BUDGETS, document, status, locked=True)
        if disrupted:
            first = min(parse_time(moment) for moment in disrupted.values())
            self.queue.add_after(key, first + DELETION_TIMEOUT - now + 1, background=True)

    def _selected(self, budget: PodDisruptionBudget) -> list[Pod]:
        selector = budget.spec.selector
        if selector is None:
            return []
        try:
            requirements = selector.compile()
        except BadSelector as error:
            raise NoExpectedCount(str(error)) from error
        pods = self.by_namespace.get(budget.metadata.namespace)
        return [pod for pod in pods if matches(requirements, pod.metadata.labels)]

    async def _expected(self, document: Document, pods: Sequence[Pod]) -> int:
        """The sum of the sizes of the pods' owners, each counted once. Unmanaged pods do not count."""
        scales: dict[str, int] = {}
        seen: set[str] = set()
        unmanaged = False
        for pod in pods:
            owner = pod.metadata.controller
            if owner is None:
                unmanaged = True
            elif owner.uid not in seen:
                seen.add(owner.uid)
                uid, size = await self._scale(owner, pod)
                scales[uid] = size
        if unmanaged:
            self._event(
                document,
                "UnmanagedPods",
                f"Pods selected by this PodDisruptionBudget (selector: {_in_go(document)}) were found to be unmanaged. "
                "As a result, the status of the "
                "PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods "
                'please set ".spec.minAvailable" field of the PDB to an integer value.',
            )
        return sum(scales.values())

    async def _scale(self, owner: OwnerReference, pod: Pod) -> tuple[str, int]:
        namespace = pod.metadata.namespace
        informer = self.owners.get(owner.kind)
        if informer is not None:
            found = informer.get(owner.name, namespace)
            if found is None or found["metadata"]["uid"] != owner.uid:
                raise NoExpectedCount(f'found no controllers for pod "{pod.metadata.name}"')
            if owner.kind == "ReplicaSet":
                found = self._deployment_of(found) or found
            replicas = (found.get("spec") or {}).get("replicas")
            return found["metadata"]["uid"], 1 if replicas is None else int(replicas)
        kind = self.context.registry.of_object(owner.api_version, owner.kind)
        if kind is None:
            raise NoExpectedCount(f'found no controllers for pod "{pod.metadata.name}"')
        try:
            scale = await self.client.get(kind.storage, owner.name, namespace, subresource="scale")
        except NotFound as error:
            raise NoExpectedCount(f"{kind.storage.group_plural} does not implement the scale subresource") from error
        return owner.uid, int((scale.get("spec") or {}).get("replicas") or 0)

    def _deployment_of(self, replica_set: Document) -> Document | None:
        owner = controller_of(replica_set)
        if owner is None or owner["kind"] != "Deployment":
            return None
        found = self.owners["Deployment"].get(owner["name"], replica_set["metadata"]["namespace"])
        return found if found is not None and found["metadata"]["uid"] == owner["uid"] else None

    def _conditions(
        self, document: Document, generation: int, status: str, reason: str, message: str
    ) -> list[Document]:
        condition = new_condition("DisruptionAllowed", status, reason, message, self.context.now())
        condition["observedGeneration"] = generation
        return set_condition((document.get("status") or {}).get("conditions") or (), condition)

    async def _clear_stale_target(self, key: ObjectKey) -> None:
        """Resets the DisruptionTarget condition of a pod that was not deleted after all."""
        pod = self.pods.get(key[1], key[0])
        left = stale_target_in(pod, self.context.now()) if pod is not None else None
        if left is None:
            return
        if left > 0:
            self.queue.add_after((f"pod:{key[0]}", key[1]), left, background=True)
            return
        stamp = format_time(self.context.now())
        condition = {"type": "DisruptionTarget", "status": "False", "lastTransitionTime": stamp}
        await self.client.patch(
            PODS,
            key[1],
            {"status": {"conditions": [condition]}},
            key[0],
            type=PatchType.STRATEGIC,
            subresource="status",
        )

    # Informer events

    def _event(self, document: Document, reason: str, message: str, *, type: EventKind = "Warning") -> None:
        self.context.recorder.event(POD_DISRUPTION_BUDGETS, document, type, reason, message)

    def _pod_changed(self, pod: Pod) -> None:
        self._labels_changed(pod.metadata.namespace, pod.metadata.labels)
        if stale_target_in(pod, self.context.now()) is not None:
            self.queue.add((f"pod:{pod.metadata.namespace}", pod.metadata.name))

    def _pod_updated(self, old: Pod, new: Pod) -> None:
        if old.metadata.labels != new.metadata.labels:
            self._labels_changed(old.metadata.namespace, old.metadata.labels)
        self._pod_changed(new)

    def _labels_changed(self, namespace: str, labels: Mapping[str, str]) -> None:
        for document in self.budgets:
            if document["metadata"].get("namespace") == namespace:
                selector = view(document, PodDisruptionBudget).spec.selector
                try:
                    if selector is not None and matches(selector.compile(), labels):
                        self.queue.add_after((namespace, document["metadata"]["name"]), BATCH_WINDOW)
                except BadSelector:
                    continue  # its status reports that


def _in_go(document: Document) -> str:
    """The selector as Go prints it in upstream's message."""
    selector = document["spec"].get("selector") or {}
    labels = "".join(f"{key}: {value}," for key, value in sorted((selector.get("matchLabels") or {}).items()))
    expressions = "".join(
        f"LabelSelectorRequirement{{Key:{each.get('key', '')},Operator:{each.get('operator', '')},"
        f"Values:[{' '.join(each.get('values') or ())}],}},"
        for each in selector.get("matchExpressions") or ()
    )
    labels_text = f"map[string]string{{{labels}}}"
    return f"&LabelSelector{{MatchLabels:{labels_text},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"


def stale_target_in(pod: Pod, now: float) -> float | None:
    """Seconds until the DisruptionTarget condition is stale; None without one."""
    condition = pod.status.condition("DisruptionTarget")
    if condition is None or condition.status != "True" or pod.terminating or pod.terminal:
        return None
    if not condition.last_transition_time:
        return 0.0
    return parse_time(condition.last_transition_time) + STALE_TARGET - now
