"""The StatefulSet controller."""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import Any

from wharfinger.api.errors import AlreadyExists, ApiError, NotFound, is_terminating_namespace
from wharfinger.api.keys import ObjectKey
from wharfinger.api.kinds.builtin import PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS
from wharfinger.api.kubernetes_version import REFERENCE
from wharfinger.api.object_meta import controller_reference
from wharfinger.api.pod_state import next_availability
from wharfinger.api.registry import Document
from wharfinger.api.selectors import Requirements
from wharfinger.api.views import ControllerRevision, ObjectMeta, PersistentVolumeClaim, Pod, StatefulSet, view
from wharfinger.controllers.context import ControllerContext
from wharfinger.controllers.controller_revisions import ControllerRevisions, RevisionHistory, template_of
from wharfinger.controllers.pod_owner import PodOwner
from wharfinger.controllers.pod_templates import pod_from_template
from wharfinger.controllers.stateful_set import claims, rules
from wharfinger.controllers.status_patches import patch_status
from wharfinger.controllers.template_hashes import REVISION_HASH

POD_NAME = "statefulset.kubernetes.io/pod-name"
POD_INDEX = "apps.kubernetes.io/pod-index"
HISTORY_HASH = "controller.kubernetes.io/hash"


class StatefulSetController(PodOwner):
    name = "statefulset"
    resource = STATEFUL_SETS

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self.revisions = ControllerRevisions(context, STATEFUL_SETS)
        self._awaited: dict[ObjectKey, ObjectKey] = {}  # claims whose deletion or change a set waits for
        self.claims = context.informers.of(PERSISTENT_VOLUME_CLAIMS, PersistentVolumeClaim)
        self.claims.add_handler(on_update=lambda old, new: self._claim_changed(new), on_delete=self._claim_gone)
        self.pods.add_handler(on_delete=self._name_freed)

    async def sync(self, key: ObjectKey, document: Document, selector: Requirements) -> None:
        spec = view(document, StatefulSet)
        metadata = spec.metadata
        pods = await self.claim_pods(
            metadata, selector, belongs=lambda pod: rules.ordinal(metadata.name, pod.metadata.name) is not None
        )
        history = await self.revisions.sync(
            metadata, spec.spec.template, selector, spec.status.collision_count or 0, hash_label=HISTORY_HASH
        )
        update = history.update
        current = history.named(spec.status.current_revision) or update
        now = self.context.now()
        plan = rules.plan(spec, pods, update.metadata.name, now, self.context.configuration.kubernetes or REFERENCE)
        failure: ApiError | None = None
        try:
            await self._carry_out(document, spec, plan, current, update)
        except ApiError as error:
            failure = error  # the status is written nevertheless
        await self._report(key, document, spec, pods, current, history, now)
        if failure is not None:
            raise failure

    async def _carry_out(
        self,
        document: Document,
        spec: StatefulSet,
        plan: rules.StatefulPlan,
        current: ControllerRevision,
        update: ControllerRevision,
    ) -> None:
        for pod in plan.keep:
            if not pod.terminating and not await self._restore(document, spec, pod):
                return
        for number in plan.create:
            chosen = current if rules.needs_current(spec, number) else update
            if not await self._create(document, spec, chosen, number):
                return
        for pod in plan.condemned:
            await self._own_claims(document, spec, pod.metadata, leaving=True)
        for pod in plan.delete:
            await self.delete_pod(document, pod)

    async def _report(
        self,
        key: ObjectKey,
        document: Document,
        spec: StatefulSet,
        pods: list[Pod],
        current: ControllerRevision,
        history: RevisionHistory,
        now: float,
    ) -> None:
        status = rules.status(spec, pods, current.metadata.name, history.update.metadata.name, now)
        status["collisionCount"] = history.collisions
        await patch_status(self.client, STATEFUL_SETS, document, status)
        seconds = spec.spec.min_ready_seconds
        if seconds:
            wait = next_availability(pods, seconds, now)
            if wait is not None:
                self.queue.add_after(key, wait)
        live = [pod.metadata.labels.get(REVISION_HASH, "") for pod in pods]
        live += [status["currentRevision"], status["updateRevision"]]
        await self.revisions.truncate(history, live, spec.spec.revision_history_limit)

    async def _create(self, document: Document, spec: StatefulSet, revision: ControllerRevision, number: int) -> bool:
        """False if a claim of the pod is still being deleted: the pod has to wait for that."""
        name = f"{spec.metadata.name}-{number}"
        free = True
        for template in spec.spec.volume_claim_templates:
            free &= await self._create_claim(document, spec, template, name)
        if not free:
            return False
        pod = self._pod(spec, revision, name, number)
        with suppress(AlreadyExists):  # not in the cache yet, or not ours: see `_name_freed`
            await self.create_pod(document, pod)
        return True

    async def _restore(self, document: Document, spec: StatefulSet, pod: Pod) -> bool:
        """Restores the pod's name label, missing claims while it is pending, and the owners of its claims. False if a claim
        is still being deleted."""
        name = pod.metadata.name
        if pod.status.phase == "Pending":
            for template in spec.spec.volume_claim_templates:
                there = self.claims.get(f"{template['metadata']['name']}-{name}", pod.metadata.namespace)
                if there is None and not await self._create_claim(document, spec, template, name):
                    return False
        changed = await self._own_claims(document, spec, pod.metadata, leaving=False)
        if pod.metadata.labels.get(POD_NAME) != name:
            labels = {POD_NAME: name, POD_INDEX: name.rpartition("-")[2]}
            change = {"metadata": {"uid": pod.metadata.uid, "labels": labels}}
            await self.client.patch(PODS, name, change, pod.metadata.namespace)
            changed = True
        if changed and pod.status.phase != "Pending":
            self._record_event(document, "Update", name)
        return True

    def _pod(self, spec: StatefulSet, revision: ControllerRevision, name: str, number: int) -> Document:
        owner = controller_reference(STATEFUL_SETS, spec.metadata)
        pod = pod_from_template(template_of(revision), owner)
        metadata = pod["metadata"]
        metadata["name"] = name
        metadata["labels"] = {
            **metadata.get("labels", {}),
            POD_NAME: name,
            POD_INDEX: str(number),
            REVISION_HASH: revision.metadata.name,
        }
        pod["spec"]["hostname"] = name
        if spec.spec.service_name:
            pod["spec"]["subdomain"] = spec.spec.service_name
        claimed = {template["metadata"]["name"] for template in spec.spec.volume_claim_templates}
        kept = [volume for volume in pod["spec"].get("volumes") or () if volume["name"] not in claimed]
        own = [{"name": each, "persistentVolumeClaim": {"claimName": f"{each}-{name}"}} for each in sorted(claimed)]
        if kept or own:
            pod["spec"]["volumes"] = own + kept
        return pod

    async def _create_claim(self, document: Document, spec: StatefulSet, template: dict[str, Any], pod: str) -> bool:
        """Whether the claim can be used now."""
        claim_document = copy.deepcopy(template)
        metadata = claim_document["metadata"]
        name = f"{metadata['name']}-{pod}"
        labels = spec.spec.selector.match_labels
        claim_document |= {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
        claim_document.pop("status", None)
        claim_document["metadata"] = {
            "name": name,
            "namespace": spec.metadata.namespace,
            "labels": {**(metadata.get("labels") or {}), **labels},
            **({"annotations": metadata["annotations"]} if metadata.get("annotations") else {}),
        }
        if spec.spec.persistent_volume_claim_retention_policy.when_deleted == "Delete":
            claim_document["metadata"]["ownerReferences"] = [controller_reference(STATEFUL_SETS, spec.metadata)]
        try:
            await self.client.create(PERSISTENT_VOLUME_CLAIMS, claim_document, spec.metadata.namespace)
        except AlreadyExists:
            return await self._is_usable(document, spec, name, pod)
        except ApiError as error:
            if not is_terminating_namespace(error):
                self._record_event(document, "Create", pod, f"failed to create PVC {name}: {error}")
                why = f"Create Claim {name} for Pod {pod} in StatefulSet {spec.metadata.name} failed error: {error}"
                self.event(document, "Warning", "FailedCreate", why)
            raise
        message = f"Create Claim {name} Pod {pod} in StatefulSet {spec.metadata.name} success"
        self.event(document, "Normal", "SuccessfulCreate", message)
        return True

    async def _is_usable(self, document: Document, spec: StatefulSet, name: str, pod: str) -> bool:
        """Whether an existing claim is neither being deleted nor owned by a former pod of that name."""
        key = (spec.metadata.namespace, name)
        self._awaited[key] = spec.metadata.key
        try:
            found = await self.client.get(PERSISTENT_VOLUME_CLAIMS, name, key[0], view=PersistentVolumeClaim)
        except NotFound:
            self.queue.add(spec.metadata.key)
            return False
        scaled = spec.spec.persistent_volume_claim_retention_policy.when_scaled
        if scaled == "Delete" and claims.is_stale(found.metadata.owner_references, PODS, pod):
            return False
        if found.metadata.deletion_timestamp:
            self._record_event(document, "Create", pod, f"pvc {name} is being deleted")
            return False
        self._awaited.pop(key, None)
        return True

    def _name_freed(self, pod: Pod) -> None:
        """A pod that is not ours, such as one that was released, may have had the name of one of ours."""
        name, _, number = pod.metadata.name.rpartition("-")
        namesake = self.owners.get(name, pod.metadata.namespace) if number.isdigit() else None
        if namesake is not None and self.owner_of(pod.metadata) is None:
            self.enqueue_soon(namesake)

    def _claim_changed(self, claim: PersistentVolumeClaim) -> None:
        waiting = self._awaited.pop(claim.metadata.key, None)
        if waiting is not None:
            self.queue.add(waiting)

    def _claim_gone(self, claim: PersistentVolumeClaim) -> None:
        """A pending pod may need it again."""
        self._claim_changed(claim)
        for owner in self.owners:
            if owner["metadata"].get("namespace") != claim.metadata.namespace:
                continue
            for template in owner["spec"].get("volumeClaimTemplates") or ():
                prefix = f"{template['metadata']['name']}-{owner['metadata']['name']}"
                if rules.ordinal(prefix, claim.metadata.name) is not None:
                    self.enqueue(owner)

    async def _own_claims(self, document: Document, spec: StatefulSet, pod: ObjectMeta, *, leaving: bool) -> bool:
        """Sets the owners of a pod's claims according to the retention policy; returns whether any changed."""
        changed = False
        for template in spec.spec.volume_claim_templates:
            claim = self.claims.get(f"{template['metadata']['name']}-{pod.name}", pod.namespace)
            if claim is None:
                continue
            metadata = claim.metadata
            owners = claims.owners(spec, metadata.owner_references, pod, leaving=leaving)
            if owners is None:
                continue
            if claims.has_conflict(spec, metadata.owner_references, pod):
                self.event(document, "Warning", "ConflictingController", claims.CONFLICT.format(metadata.name))
            change = {"resourceVersion": metadata.resource_version, "ownerReferences": owners}
            with suppress(NotFound):
                await self.client.patch(
                    PERSISTENT_VOLUME_CLAIMS, metadata.name, {"metadata": change}, metadata.namespace
                )
                changed = True
        return changed

    # Pod events with upstream's texts

    async def create_pod(self, owner: Document, pod: Document) -> Document | None:
        name = pod["metadata"]["name"]
        try:
            created = await self.client.create(PODS, pod, owner["metadata"]["namespace"])
        except AlreadyExists:
            raise
        except ApiError as error:
            if is_terminating_namespace(error):
                return None
            self._record_event(owner, "Create", name, str(error))
            raise
        self._record_event(owner, "Create", name)
        return created

    async def delete_pod(self, owner: Document, pod: Pod) -> bool:
        name = pod.metadata.name
        try:
            await self.client.delete(PODS, name, pod.metadata.namespace, uid=pod.metadata.uid)
        except NotFound:
            return False
        except ApiError as error:
            self._record_event(owner, "Delete", name, str(error))
            raise
        self._record_event(owner, "Delete", name)
        return True

    def _record_event(self, document: Document, verb: str, pod: str, failure: str = "") -> None:
        what = f"{verb} Pod {pod} in StatefulSet {document['metadata']['name']}"
        if failure:
            self.event(document, "Warning", f"Failed{verb}", f"{what} failed error: {failure}")
        else:
            self.event(document, "Normal", f"Successful{verb}", f"{what} successful")
