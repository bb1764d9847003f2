"""The ReplicaSet controller, which also serves ReplicationControllers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wharfinger.api.conditions import find_condition, new_condition, without_condition
from wharfinger.api.keys import ObjectKey
from wharfinger.api.kinds.builtin import REPLICA_SETS, REPLICATION_CONTROLLERS
from wharfinger.api.object_meta import controller_reference
from wharfinger.api.pod_state import is_active, is_available, next_availability
from wharfinger.api.registry import Document
from wharfinger.api.selectors import Requirements, matches
from wharfinger.api.views import ObjectMeta, Pod, view
from wharfinger.controllers.batches import BURST
from wharfinger.controllers.context import ControllerContext
from wharfinger.controllers.ownership import document_owner_index, selector_of
from wharfinger.controllers.pod_owner import PodOwner
from wharfinger.controllers.pod_templates import pod_from_template
from wharfinger.controllers.scale_in import pods_to_delete
from wharfinger.controllers.status_patches import patch_status


class ReplicaSetController(PodOwner):
    name = "replicaset"
    resource = REPLICA_SETS
    counts_terminating = True

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._siblings = document_owner_index(self.owners)

    async def sync(self, key: ObjectKey, document: Document, selector: Requirements) -> None:
        metadata = view(document["metadata"], ObjectMeta)
        satisfied = self.has_caught_up(key)
        everything = self.candidates(metadata)
        pods = await self.claim_pods(metadata, selector, [pod for pod in everything if is_active(pod)])
        failure = None
        if satisfied and not metadata.deletion_timestamp:
            failure = await self._manage(key, document, metadata, pods)
        await self._report(key, document, metadata, selector, pods, everything, failure)
        if failure is not None:
            raise failure

    async def _manage(
        self, key: ObjectKey, document: Document, metadata: ObjectMeta, pods: Sequence[Pod]
    ) -> Exception | None:
        surplus = len(pods) - _replicas(document)
        if surplus < 0:
            return await self._create(key, document, metadata, min(-surplus, BURST))
        if surplus > 0:
            return await self._delete(key, document, metadata, pods, min(surplus, BURST))
        return None

    async def _create(self, key: ObjectKey, document: Document, metadata: ObjectMeta, count: int) -> Exception | None:
        owner = controller_reference(self.resource, metadata)
        pod = pod_from_template(document["spec"].get("template") or {}, owner)
        self.expectations.expect_creations(key, count, self.context.now())
        _, failure = await self.create_pods(key, document, count, lambda index: pod)
        return failure

    async def _delete(
        self, key: ObjectKey, document: Document, metadata: ObjectMeta, pods: Sequence[Pod], count: int
    ) -> Exception | None:
        leaving = pods_to_delete(pods, self._related(document), count, self.context.now())
        self.expectations.expect_deletions(key, (pod.metadata.name for pod in leaving), self.context.now())
        return await self.delete_pods(key, document, leaving)

    def _related(self, document: Document) -> list[Pod]:
        """The pods of all sets of the same controller: pods of older revisions count for the spread over nodes too."""
        controller = view(document["metadata"], ObjectMeta).controller
        siblings = self._siblings.get(controller.uid) if controller is not None else [document]
        found: dict[str, Pod] = {}
        for sibling in siblings:
            selector = selector_of(sibling)
            if selector is None:
                continue
            for pod in self.pods_by_owner.get(sibling["metadata"]["uid"]):
                if matches(selector, pod.metadata.labels):
                    found[pod.metadata.uid] = pod
        return list(found.values())

    async def _report(
        self,
        key: ObjectKey,
        document: Document,
        metadata: ObjectMeta,
        selector: Requirements,
        pods: Sequence[Pod],
        everything: Sequence[Pod],
        failure: Exception | None,
    ) -> None:
        now = self.context.now()
        seconds = int(document["spec"].get("minReadySeconds") or 0)
        terminating = sum(
            pod.terminating
            and not pod.terminal
            and pod.metadata.controller is not None
            and matches(selector, pod.metadata.labels)
            for pod in everything
        )
        status = replica_status(document, pods, failure, now)
        if self.counts_terminating:
            status["terminatingReplicas"] = terminating
        await patch_status(self.client, self.resource, document, status)
        if seconds and status["readyReplicas"] != status["availableReplicas"]:
            wait = next_availability(pods, seconds, now)
            self.queue.add_after(key, seconds if wait is None else wait)


class ReplicationControllerController(ReplicaSetController):
    name = "replicationcontroller"
    resource = REPLICATION_CONTROLLERS
    counts_terminating = False


def replica_status(document: Document, pods: Sequence[Pod], failure: Exception | None, now: float) -> dict[str, Any]:
    """The status of a set, given its active pods (calculateStatus in replica_set_utils.go)."""
    spec = document["spec"]
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    seconds = int(spec.get("minReadySeconds") or 0)
    conditions: list[Document] = list((document.get("status") or {}).get("conditions") or [])
    failed = find_condition(conditions, "ReplicaFailure")
    if failure is not None and failed is None:
        surplus = len(pods) - _replicas(document)
        reason = "FailedCreate" if surplus < 0 else "FailedDelete" if surplus > 0 else ""
        conditions = [*conditions, new_condition("ReplicaFailure", True, reason, str(failure), now)]
    elif failure is None and failed is not None:
        conditions = without_condition(conditions, "ReplicaFailure")
    ready = [pod for pod in pods if pod.ready]
    return {
        "replicas": len(pods),
        "fullyLabeledReplicas": sum([labels.items() <= pod.metadata.labels.items() for pod in pods]),
        "readyReplicas": len(ready),
        "availableReplicas": sum([is_available(pod, seconds, now) for pod in ready]),
        "observedGeneration": int(document["metadata"].get("generation") or 0),
        "conditions": conditions,
    }


def _replicas(document: Document) -> int:
    replicas = document["spec"].get("replicas")
    return 1 if replicas is None else int(replicas)
