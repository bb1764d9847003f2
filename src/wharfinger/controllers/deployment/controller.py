"""The Deployment controller."""

from __future__ import annotations

import copy
from collections.abc import Callable

import msgspec

from wharfinger.api.conditions import find_condition, new_condition, set_condition, without_condition
from wharfinger.api.errors import AlreadyExists, ApiError, NotFound, is_terminating_namespace
from wharfinger.api.keys import ObjectKey
from wharfinger.api.kinds.builtin import DEPLOYMENTS, REPLICA_SETS
from wharfinger.api.object_meta import controller_of, controller_reference
from wharfinger.api.registry import Document
from wharfinger.api.selectors import matches
from wharfinger.api.times import parse_time
from wharfinger.api.views import ObjectMeta, Pod, view
from wharfinger.api.views.workloads import Deployment, ReplicaSet
from wharfinger.client.events import EventKind
from wharfinger.controllers.context import ControllerContext, DocumentController
from wharfinger.controllers.deployment import rules
from wharfinger.controllers.ownership import ORPHANS, claim, document_owner_index, owner_index, selector_of
from wharfinger.controllers.status_patches import patch_status
from wharfinger.controllers.template_hashes import POD_TEMPLATE_HASH, same_template, template_hash

NAME_LIMIT = 253


class DeploymentRollout(msgspec.Struct):
    """The state of a deployment during one reconciliation, with the conditions to be written."""

    document: Document
    deployment: Deployment
    new: ReplicaSet | None
    old: list[ReplicaSet]
    conditions: list[Document] = msgspec.field(default_factory=list)

    @property
    def all_sets(self) -> list[ReplicaSet]:
        return [*self.old, *([self.new] if self.new is not None else [])]

    def replace(self, updated: ReplicaSet) -> None:
        uid = updated.metadata.uid
        self.old = [updated if each.metadata.uid == uid else each for each in self.old]
        if self.new is not None and self.new.metadata.uid == uid:
            self.new = updated


class DeploymentController(DocumentController):
    name = "deployment"
    workers = 4

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self.deployments = self.reconciled(DEPLOYMENTS, deleted=True)
        self.replica_sets = context.documents(REPLICA_SETS)
        self.sets_by_owner = document_owner_index(self.replica_sets)
        self.pods = context.pods
        self.pods_by_owner = owner_index(self.pods)
        self.replica_sets.add_handler(self._set_changed, self._set_updated, self._set_changed)
        self.pods.add_handler(on_delete=self._pod_deleted)

    async def reconcile(self, key: ObjectKey) -> None:
        document = self.deployments.get(key[1], key[0])
        if document is None:
            return
        selector = selector_of(document)
        if selector is None:
            self._event(
                document,
                "Warning",
                "SelectingAll",
                "This deployment is selecting all pods. A non-empty selector is required.",
            )
            return
        deployment = view(document, Deployment)
        sets = await self._claim(deployment, lambda labels: matches(selector, labels))
        new = rules.find_new(deployment, sets)
        old = [each for each in rules.by_age(sets) if new is None or each.metadata.uid != new.metadata.uid]
        conditions = list((document.get("status") or {}).get("conditions") or [])
        rollout = DeploymentRollout(document, deployment, new, old, conditions)
        if deployment.metadata.deletion_timestamp:
            await self._write_status(key, rollout, self._status(rollout))
            return
        self._set_pause_condition(rollout)
        if rollout.new is not None:
            await self._sync_revision(rollout)
        if deployment.spec.paused or rules.is_scaling(deployment, rollout.all_sets):
            await self._scale(rollout)
            if deployment.spec.paused:
                await self._clean_up(rollout)
            await self._write_status(key, rollout, self._status(rollout))
        elif deployment.spec.strategy.type == "Recreate":
            await self._recreate(key, rollout)
        else:
            await self._roll(key, rollout)

    # The two strategies

    async def _roll(self, key: ObjectKey, rollout: DeploymentRollout) -> None:
        deployment = rollout.deployment
        if rollout.new is None:
            await self._create_new_set(rollout)
        new = rollout.new
        if new is not None and not await self._grow(rollout, new):
            sizes = rules.old_sizes(deployment, [each for each in rollout.old if each.spec.replicas > 0], new)
            for each in rules.by_age(rollout.old):
                if each.metadata.uid in sizes:
                    await self._resize(rollout, each, sizes[each.metadata.uid])
            if not sizes and rules.is_complete(deployment, rollout.document.get("status") or {}):
                await self._clean_up(rollout)
        await self._write_progress(key, rollout)

    async def _grow(self, rollout: DeploymentRollout, new: ReplicaSet) -> bool:
        """Scales the new set towards its size; returns whether that was necessary."""
        wanted, current = rollout.deployment.spec.replicas, new.spec.replicas
        size = wanted if current > wanted else rules.new_size(rollout.deployment, rollout.all_sets, current)
        if current == wanted or size == current:
            return False
        await self._resize(rollout, new, size)
        return True

    async def _recreate(self, key: ObjectKey, rollout: DeploymentRollout) -> None:
        running = [each for each in rollout.old if each.spec.replicas > 0]
        for each in running:
            await self._resize(rollout, each, 0)
        if not running and not self._old_pods_left(rollout):
            if rollout.new is None:
                await self._create_new_set(rollout)
            if rollout.new is not None:
                await self._resize(rollout, rollout.new, rollout.deployment.spec.replicas)
            if rules.is_complete(rollout.deployment, rollout.document.get("status") or {}):
                await self._clean_up(rollout)
        await self._write_progress(key, rollout)

    def _old_pods_left(self, rollout: DeploymentRollout) -> bool:
        if any(each.status.replicas > 0 for each in rollout.old):
            return True
        return any(not pod.terminal for each in rollout.old for pod in self.pods_by_owner.get(each.metadata.uid))

    # Replica sets

    async def _claim(self, deployment: Deployment, selects: Callable[[dict[str, str]], bool]) -> list[ReplicaSet]:
        metadata = deployment.metadata
        found = self.sets_by_owner.get(metadata.uid) + self.sets_by_owner.get((ORPHANS, metadata.namespace))
        return await claim(
            self.client,
            owner=metadata,
            owner_resource=DEPLOYMENTS,
            resource=REPLICA_SETS,
            candidates=[view(each, ReplicaSet) for each in found],
            matches=lambda each: selects(each.metadata.labels),
        )

    async def _sync_revision(self, rollout: DeploymentRollout) -> None:
        """Gives the new set the highest revision (after a rollback it is an old set) and writes it to the deployment."""
        new, deployment = rollout.new, rollout.deployment
        assert new is not None
        number = rules.next_revision(rollout.old)
        annotations = rules.new_set_annotations(deployment, new.metadata.annotations, number)
        seconds = deployment.spec.min_ready_seconds
        if annotations != new.metadata.annotations or new.spec.min_ready_seconds != seconds:
            change = {"metadata": {"annotations": annotations}, "spec": {"minReadySeconds": seconds or None}}
            new = await self._patch_set(new, change)
            rollout.replace(new)
        await self._annotate_revision(rollout, new.metadata.annotations.get(rules.REVISION, ""))
        if rules.has_deadline(deployment) and find_condition(rollout.conditions, "Progressing") is None:
            self._progressing(rollout, "True", "FoundNewReplicaSet", f'Found new replica set "{new.metadata.name}"')

    async def _annotate_revision(self, rollout: DeploymentRollout, number: str) -> None:
        metadata = rollout.deployment.metadata
        if number and metadata.annotations.get(rules.REVISION) != number:
            await self.client.patch(
                DEPLOYMENTS,
                metadata.name,
                {"metadata": {"uid": metadata.uid, "annotations": {rules.REVISION: number}}},
                metadata.namespace,
            )

    async def _create_new_set(self, rollout: DeploymentRollout) -> None:
        deployment = rollout.deployment
        document = self._new_set(rollout)
        name = document["metadata"]["name"]
        try:
            created = await self.client.create(REPLICA_SETS, document, deployment.metadata.namespace)
        except AlreadyExists:
            existing = await self.client.get(REPLICA_SETS, name, deployment.metadata.namespace)
            mine = view(existing["metadata"], ObjectMeta).controller
            ours = mine is not None and mine.uid == deployment.metadata.uid
            if not ours or not same_template(existing["spec"]["template"], deployment.spec.template):
                collisions = (deployment.status.collision_count or 0) + 1
                await patch_status(
                    self.client, DEPLOYMENTS, rollout.document, {"collisionCount": collisions}, locked=True
                )
                raise
            created = existing  # created by us, but not in the cache yet
        except ApiError as error:
            if not is_terminating_namespace(error):
                message = f'Failed to create new replica set "{name}": {error}'
                if rules.has_deadline(deployment):
                    self._progressing(rollout, "False", "ReplicaSetCreateError", message)
                    await patch_status(
                        self.client, DEPLOYMENTS, rollout.document, {"conditions": rollout.conditions}, locked=True
                    )
                self._event(rollout.document, "Warning", "ReplicaSetCreateError", message)
            raise
        else:
            size = created["spec"].get("replicas") or 0
            if size:
                self._event(
                    rollout.document, "Normal", "ScalingReplicaSet", f"Scaled up replica set {name} from 0 to {size}"
                )
            if rules.has_deadline(deployment):
                self._progressing(rollout, "True", "NewReplicaSetCreated", f'Created new replica set "{name}"')
        rollout.new = view(created, ReplicaSet)
        await self._annotate_revision(rollout, rollout.new.metadata.annotations.get(rules.REVISION, ""))

    def _new_set(self, rollout: DeploymentRollout) -> Document:
        deployment = rollout.deployment
        metadata = deployment.metadata
        template = copy.deepcopy(deployment.spec.template)
        digest = template_hash(template, deployment.status.collision_count)
        labels = {**((template.get("metadata") or {}).get("labels") or {}), POD_TEMPLATE_HASH: digest}
        template["metadata"] = {**(template.get("metadata") or {}), "labels": labels}
        selector = copy.deepcopy(rollout.document["spec"]["selector"])
        selector["matchLabels"] = {**(selector.get("matchLabels") or {}), POD_TEMPLATE_HASH: digest}
        annotations = rules.new_set_annotations(deployment, {}, rules.next_revision(rollout.old))
        return {
            "apiVersion": REPLICA_SETS.api_version,
            "kind": REPLICA_SETS.kind,
            "metadata": {
                "name": f"{metadata.name[: NAME_LIMIT - 1 - len(digest)]}-{digest}",
                "namespace": metadata.namespace,
                "labels": labels,
                "annotations": annotations | rules.replicas_annotations(deployment),
                "ownerReferences": [controller_reference(DEPLOYMENTS, metadata)],
            },
            "spec": {
                "replicas": rules.new_size(deployment, rollout.old, 0),
                **({"minReadySeconds": seconds} if (seconds := deployment.spec.min_ready_seconds) else {}),
                "selector": selector,
                "template": template,
            },
        }

    async def _scale(self, rollout: DeploymentRollout) -> None:
        sizes, annotate = rules.scaled_sizes(rollout.deployment, rollout.new, rollout.old)
        for each in rollout.all_sets:
            if each.metadata.uid in sizes:
                await self._resize(rollout, each, sizes[each.metadata.uid], annotate=annotate)

    async def _resize(self, rollout: DeploymentRollout, each: ReplicaSet, size: int, *, annotate: bool = False) -> None:
        """Scales a set; with `annotate` the deployment's size is written even if the size of the set does not change."""
        sizes = rules.replicas_annotations(rollout.deployment)
        if each.spec.replicas == size and not (annotate and not sizes.items() <= each.metadata.annotations.items()):
            return
        updated = await self._patch_set(each, {"metadata": {"annotations": sizes}, "spec": {"replicas": size}})
        rollout.replace(updated)
        if each.spec.replicas != size:
            way = "up" if each.spec.replicas < size else "down"
            self._event(
                rollout.document,
                "Normal",
                "ScalingReplicaSet",
                f"Scaled {way} replica set {each.metadata.name} from {each.spec.replicas} to {size}",
            )

    async def _patch_set(self, each: ReplicaSet, change: Document) -> ReplicaSet:
        """Fails if the set changed in the meantime: a stale cache must not undo a newer decision."""
        metadata = each.metadata
        change["metadata"]["resourceVersion"] = metadata.resource_version
        return view(await self.client.patch(REPLICA_SETS, metadata.name, change, metadata.namespace), ReplicaSet)

    async def _clean_up(self, rollout: DeploymentRollout) -> None:
        for each in rules.superfluous(rollout.deployment, rollout.old):
            metadata = each.metadata
            try:
                await self.client.delete(
                    REPLICA_SETS,
                    metadata.name,
                    metadata.namespace,
                    uid=metadata.uid,
                    resource_version=metadata.resource_version,
                    propagation="Background",
                )
            except NotFound:
                continue

    # Status

    def _set_pause_condition(self, rollout: DeploymentRollout) -> None:
        deployment = rollout.deployment
        current = find_condition(rollout.conditions, "Progressing")
        reason = current.get("reason") if current else ""
        if not rules.has_deadline(deployment) or reason == "ProgressDeadlineExceeded":
            return
        if deployment.spec.paused and reason != "DeploymentPaused":
            self._progressing(rollout, "Unknown", "DeploymentPaused", "Deployment is paused")
        elif not deployment.spec.paused and reason == "DeploymentPaused":
            self._progressing(rollout, "Unknown", "DeploymentResumed", "Deployment is resumed")

    def _status(self, rollout: DeploymentRollout) -> Document:
        """The counts; sets the Available condition."""
        counts = rules.replica_counts(rollout.deployment, rollout.all_sets, rollout.new)
        self._condition(rollout, "Available", *rules.availability(rollout.deployment, counts["availableReplicas"]))
        return counts

    async def _write_progress(self, key: ObjectKey, rollout: DeploymentRollout) -> None:
        deployment = rollout.deployment
        current = find_condition(rollout.conditions, "Progressing")
        counts = self._status(rollout)
        if not rules.has_deadline(deployment):
            rollout.conditions = without_condition(rollout.conditions, "Progressing")
        finished = (
            counts["replicas"] == counts["updatedReplicas"]
            and current is not None
            and current.get("reason") == "NewReplicaSetAvailable"
        )
        if rules.has_deadline(deployment) and not finished:
            self._judge_progress(rollout, counts, current)
        self._copy_failure(rollout)
        await self._write_status(key, rollout, counts)

    def _judge_progress(self, rollout: DeploymentRollout, counts: Document, current: Document | None) -> None:
        deployment = rollout.deployment
        subject = (
            f'ReplicaSet "{rollout.new.metadata.name}"'
            if rollout.new is not None
            else f'Deployment "{deployment.metadata.name}"'
        )
        if rules.is_complete(deployment, counts):
            self._progressing(rollout, "True", "NewReplicaSetAvailable", f"{subject} has successfully progressed.")
        elif rules.is_progressing(rollout.document.get("status") or {}, counts):
            # `lastUpdateTime` moves even if status and reason stay the same: the deadline counts from it.
            self._progressing(rollout, "True", "ReplicaSetUpdated", f"{subject} is progressing.", refresh=True)
        elif rules.has_timed_out(deployment, current, self.context.now()):
            self._progressing(rollout, "False", "ProgressDeadlineExceeded", f"{subject} has timed out progressing.")

    def _copy_failure(self, rollout: DeploymentRollout) -> None:
        """Copies the ReplicaFailure condition of a set, preferably of the new one."""
        ordered = [*([rollout.new] if rollout.new is not None else []), *rollout.all_sets]
        failures = [c for each in ordered for c in each.status.conditions if c.type == "ReplicaFailure"]
        if failures:
            first = failures[0]
            self._condition(rollout, first.type, first.status, first.reason, first.message)
        else:
            rollout.conditions = without_condition(rollout.conditions, "ReplicaFailure")

    async def _write_status(self, key: ObjectKey, rollout: DeploymentRollout, counts: Document) -> None:
        status = {**counts, "conditions": rollout.conditions}
        if await patch_status(self.client, DEPLOYMENTS, rollout.document, status):
            return
        deployment = rollout.deployment
        current = find_condition(rollout.conditions, "Progressing")
        if (
            rules.has_deadline(deployment)
            and current is not None
            and current.get("reason") != "ProgressDeadlineExceeded"
            and not deployment.spec.paused
            and not rules.is_complete(deployment, counts)
        ):
            deadline = parse_time(current["lastUpdateTime"]) + deployment.spec.progress_deadline_seconds
            self.queue.add_after(key, max(deadline - self.context.now() + 1, 1), background=True)

    def _progressing(
        self, rollout: DeploymentRollout, status: str, reason: str, message: str, *, refresh: bool = False
    ) -> None:
        self._condition(rollout, "Progressing", status, reason, message, refresh=refresh)

    def _condition(
        self, rollout: DeploymentRollout, type: str, status: str, reason: str, message: str, *, refresh: bool = False
    ) -> None:
        condition = new_condition(type, status, reason, message, self.context.now())
        condition["lastUpdateTime"] = condition["lastTransitionTime"]
        rollout.conditions = set_condition(rollout.conditions, condition, append=True, keep_if_same_reason=not refresh)

    # Informer events

    def _event(self, document: Document, type: EventKind, reason: str, message: str) -> None:
        self.context.recorder.event(DEPLOYMENTS, document, type, reason, message)

    def _set_updated(self, old: Document, new: Document) -> None:
        if controller_of(old) != controller_of(new):
            self._set_changed(old)
        self._set_changed(new)

    def _set_changed(self, document: Document) -> None:
        namespace = document["metadata"].get("namespace") or ""
        controller = controller_of(document)
        if controller is not None:
            owner = self.deployments.get(controller["name"], namespace)
            if owner is not None and owner["metadata"]["uid"] == controller["uid"]:
                self.enqueue(owner)
            return
        labels = document["metadata"].get("labels") or {}
        for owner in self.deployments:
            if owner["metadata"].get("namespace") == namespace and labels:
                selector = selector_of(owner)
                if selector is not None and matches(selector, labels):
                    self.enqueue(owner)

    def _pod_deleted(self, pod: Pod) -> None:
        """The Recreate strategy waits for the last old pod."""
        controller = pod.metadata.controller
        if controller is None or controller.kind != REPLICA_SETS.kind:
            return
        owner = self.replica_sets.get(controller.name, pod.metadata.namespace)
        if owner is not None and owner["metadata"]["uid"] == controller.uid:
            self._set_changed(owner)
