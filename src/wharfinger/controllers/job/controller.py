"""The Job controller. Every finished pod is counted exactly once, even if the controller crashes in between.

As upstream: a finished pod is first listed in `status.uncountedTerminatedPods`, then its finalizer is removed, and only then
is it added to the counters.
"""

from __future__ import annotations

from collections.abc import Sequence

from wharfinger.api.conditions import is_true, new_condition, set_condition
from wharfinger.api.errors import NotFound
from wharfinger.api.keys import ObjectKey
from wharfinger.api.kinds.builtin import JOBS, PODS
from wharfinger.api.object_meta import controller_reference
from wharfinger.api.registry import Document
from wharfinger.api.requests import PatchType
from wharfinger.api.selectors import Requirements
from wharfinger.api.times import format_time
from wharfinger.api.views import Job, Pod, view
from wharfinger.controllers.batches import BURST
from wharfinger.controllers.context import ControllerContext
from wharfinger.controllers.job import rules
from wharfinger.controllers.job.backoff import JobBackoff
from wharfinger.controllers.pod_owner import PodOwner
from wharfinger.controllers.pod_templates import pod_from_template
from wharfinger.controllers.status_patches import patch_status

OURSELVES = "kubernetes.io/job-controller"
ORPHAN = "orphan:"  # prefix of the namespace in keys of pods whose job was deleted
MAX_PREFIX = 58  # characters of a generated name, to which the server appends five


class JobController(PodOwner):
    name = "job"
    resource = JOBS

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._released: set[str] = set()  # pods without their finalizer; the cache may be stale
        self._written: dict[str, int] = {}  # by job uid: version of our last write; the cache may be older
        self._backoff: dict[str, JobBackoff] = {}  # by job uid
        self.pods.add_handler(self._check_orphan, lambda old, new: self._check_orphan(new), self._pod_gone)
        self.owners.add_handler(on_delete=self._job_gone)

    async def reconcile(self, key: ObjectKey) -> None:
        if key[0].startswith(ORPHAN):
            await self._release_orphan((key[0].removeprefix(ORPHAN), key[1]))
        else:
            await super().reconcile(key)

    async def sync(self, key: ObjectKey, document: Document, selector: Requirements) -> None:
        job = view(document, Job)
        if job.spec.managed_by not in ("", OURSELVES):
            return
        if int(job.metadata.resource_version) < self._written.get(job.metadata.uid, 0):
            return  # the cache lacks our last write: its event follows, until then pods would be counted twice
        pods = await self.claim_pods(job.metadata, selector, finalizers=(rules.FINALIZER,))
        if rules.finished(job):
            self._forget(job.metadata.uid)
            await self._release(pods)
            return
        await self._sync_unfinished(key, document, job, pods)

    async def _sync_unfinished(self, key: ObjectKey, document: Document, job: Job, pods: list[Pod]) -> None:
        now = self.context.now()
        # A pod without controller in the cache has just been adopted, and got its finalizer.
        held = {pod.metadata.uid for pod in pods if self._holds(pod) or pod.metadata.controller is None}
        state = rules.observe(job, pods, held)
        backoff = self._backoff_of(state)
        conditions = list((document.get("status") or {}).get("conditions") or [])
        status: Document = {"active": len(state.active), "ready": state.ready, "terminating": state.terminating}
        if not job.status.start_time and not job.spec.suspend:
            status["startTime"] = format_time(now)
        satisfied = self.has_caught_up(key)
        end = rules.ending(state, now)
        failure: Exception | None = None
        if end is not None:
            if satisfied:
                failure = await self._delete(key, document, state.active, status)
            if not satisfied or failure is not None:
                end = None  # there may be pods that the cache lacks
        else:
            managed = satisfied and not job.metadata.deletion_timestamp
            if managed:
                failure = await self._manage(key, document, state, status, backoff, now)
            end = rules.completion(state, status["active"])
            if managed and end is None:
                conditions = self._set_suspension(document, job, conditions, status, now)
            self._requeue_at_deadline(key, job, now)
        await self._write_counts(document, state, end, status, conditions)
        self._backoff[job.metadata.uid] = backoff
        if failure is not None:
            raise failure

    async def _write_counts(
        self,
        document: Document,
        state: rules.JobState,
        end: rules.JobEnding | None,
        status: Document,
        conditions: list[Document],
    ) -> None:
        """Writes the status, then removes the finalizers of the pods counted; the final condition is set after both."""
        counted = rules.count_finished(state, end)
        status |= _counts(state, counted)
        final = end is not None and counted.settled and not status["terminating"]
        if end is not None:
            conditions = self._set(conditions, rules.INTERIM[end.type], "True", end.reason, end.message)
        if end is not None and final:
            conditions = self._set(conditions, end.type, "True", end.reason, end.message)
            if end.type == rules.COMPLETE:
                status["completionTime"] = format_time(self.context.now())
        status["conditions"] = conditions
        stored = await patch_status(self.client, JOBS, document, status, locked=True)
        if stored is not None:
            self._written[state.job.metadata.uid] = int(stored["metadata"]["resourceVersion"])
        if end is not None and final:
            self._report_end(document, state, end)
        await self._release(counted.release)

    def _backoff_of(self, state: rules.JobState) -> JobBackoff:
        """The back-off after the failures so far; after a restart, computed from the existing pods."""
        known = self._backoff.get(state.job.metadata.uid)
        if known is not None:
            return known.after(state.new_succeeded, state.new_failed)
        succeeded = [pod for pod in state.pods if pod.status.phase == "Succeeded"]
        return JobBackoff().after(succeeded, [pod for pod in state.pods if rules.has_failed(state.job, pod)])

    def _holds(self, pod: Pod) -> bool:
        return rules.FINALIZER in pod.metadata.finalizers and pod.metadata.uid not in self._released

    # Conditions

    def _report_end(self, document: Document, state: rules.JobState, end: rules.JobEnding) -> None:
        if end.type == rules.FAILED:
            self.event(document, "Warning", end.reason, end.message)
            return
        completions = state.job.spec.completions
        if completions is not None and state.succeeded > completions:
            message = "Too many succeeded pods running after completion count reached"
            self.event(document, "Warning", "TooManySucceededPods", message)
        self.event(document, "Normal", "Completed", "Job completed")

    def _set_suspension(
        self, document: Document, job: Job, conditions: list[Document], status: Document, now: float
    ) -> list[Document]:
        suspended = is_true(conditions, "Suspended")
        if job.spec.suspend and not suspended:
            self.event(document, "Normal", "Suspended", "Job suspended")
            if job.status.start_time:
                status["startTime"] = None
            return self._set(conditions, "Suspended", "True", "JobSuspended", "Job suspended")
        if not job.spec.suspend and suspended:
            self.event(document, "Normal", "Resumed", "Job resumed")
            status["startTime"] = format_time(now)
            return self._set(conditions, "Suspended", "False", "JobResumed", "Job resumed")
        return conditions

    def _set(self, conditions: list[Document], type: str, status: str, reason: str, message: str) -> list[Document]:
        condition = new_condition(type, status, reason, message, self.context.now())
        condition["lastProbeTime"] = condition["lastTransitionTime"]
        return set_condition(conditions, condition, append=True, keep_if_same_reason=True)

    # Pods

    async def _manage(
        self,
        key: ObjectKey,
        document: Document,
        state: rules.JobState,
        status: Document,
        backoff: JobBackoff,
        now: float,
    ) -> Exception | None:
        """Deletes surplus pods or else creates missing ones; updates `status`."""
        job, active = state.job, len(state.active)
        wanted = rules.wanted_active(state)
        leaving = rules.surplus(state, wanted, now)[: None if job.spec.suspend else BURST]
        if leaving:
            # They do not count as failures: the finalizer is removed before the deletion.
            await self._release(leaving)
            return await self._delete(key, document, leaving, status)
        missing = wanted - active
        if rules.replaces_failed_only(job):
            missing -= state.terminating
        if missing <= 0:
            return None
        indexes: list[int | None] = [None] * min(missing, BURST)
        wait = 0.0 if rules.limited_per_index(job) else backoff.remaining(now)
        if wait <= 0 and rules.indexed(job):
            indexes = list(rules.next_indexes(state, len(indexes)))
        if wait <= 0 and rules.limited_per_index(job):
            waits = {index: rules.index_wait(state.replaceable.get(index or 0), now) for index in indexes}
            indexes = [index for index in indexes if waits[index] <= 0]
            wait = min(waits.values(), default=0.0) if not indexes else 0.0
        if wait > 0:
            self.queue.add_after(key, wait)
            return None
        return await self._create(key, document, state, indexes, status)

    async def _create(
        self, key: ObjectKey, document: Document, state: rules.JobState, indexes: Sequence[int | None], status: Document
    ) -> Exception | None:
        if not indexes:
            return None
        self.expectations.expect_creations(key, len(indexes), self.context.now())
        created, failure = await self.create_pods(
            key, document, len(indexes), lambda number: self._pod(state, indexes[number])
        )
        status["active"] += created
        return failure

    def _pod(self, state: rules.JobState, index: int | None) -> Document:
        job = state.job
        owner = controller_reference(JOBS, job.metadata)
        name = job.metadata.name
        pod = pod_from_template(job.spec.template, owner)
        metadata = pod["metadata"]
        metadata["finalizers"] = list(dict.fromkeys((*metadata.get("finalizers", ()), rules.FINALIZER)))
        if index is None:
            return pod
        suffix = f"-{index}-"
        metadata["generateName"] = name[: MAX_PREFIX - len(suffix)] + suffix
        metadata["annotations"] = {**metadata.get("annotations", {}), rules.INDEX: str(index)}
        if rules.limited_per_index(job):
            metadata["annotations"] |= rules.failure_annotations(job, state.replaceable.get(index))
        metadata["labels"] = {**metadata.get("labels", {}), rules.INDEX: str(index)}
        pod["spec"]["hostname"] = f"{name}-{index}"
        source = {"fieldRef": {"fieldPath": f"metadata.labels['{rules.INDEX}']"}}
        for container in (*pod["spec"].get("initContainers", ()), *pod["spec"].get("containers", ())):
            environment = container.setdefault("env", [])
            if not any(each.get("name") == "JOB_COMPLETION_INDEX" for each in environment):
                environment.append({"name": "JOB_COMPLETION_INDEX", "valueFrom": source})
        return pod

    async def _delete(
        self, key: ObjectKey, document: Document, pods: Sequence[Pod], status: Document
    ) -> Exception | None:
        if not pods:
            return None
        self.expectations.expect_deletions(key, (pod.metadata.name for pod in pods), self.context.now())

        def deleted(pod: Pod, existed: bool) -> None:
            status["active"] -= 1
            status["ready"] -= pod.ready
            status["terminating"] += existed

        return await self.delete_pods(key, document, pods, deleted)

    # Finalizers

    async def _release(self, pods: Sequence[Pod]) -> None:
        for pod in pods:
            if self._holds(pod):
                await self._drop_finalizer(pod)

    async def _drop_finalizer(self, pod: Pod) -> None:
        metadata = pod.metadata
        change = {"metadata": {"uid": metadata.uid, "$deleteFromPrimitiveList/finalizers": [rules.FINALIZER]}}
        try:
            await self.client.patch(PODS, metadata.name, change, metadata.namespace, type=PatchType.STRATEGIC)
        except NotFound:
            return
        self._released.add(metadata.uid)

    async def _release_orphan(self, key: ObjectKey) -> None:
        """Removes the finalizer of a pod whose job was deleted."""
        pod = self.pods.get(key[1], key[0])
        if pod is None or not self._holds(pod) or self.owner_of(pod.metadata) is not None:
            return
        controller = pod.metadata.controller
        if controller is not None and controller.kind == "Job":
            try:
                live = await self.client.get(JOBS, controller.name, key[0], view=Job)
                if live.metadata.uid == controller.uid:
                    return
            except NotFound:
                pass
        await self._drop_finalizer(pod)

    def _check_orphan(self, pod: Pod) -> None:
        if self._holds(pod) and self.owners.synced and self.owner_of(pod.metadata) is None:
            self.queue.add((ORPHAN + pod.metadata.namespace, pod.metadata.name))

    def _pod_gone(self, pod: Pod) -> None:
        self._released.discard(pod.metadata.uid)

    def _job_gone(self, document: Document) -> None:
        uid = document["metadata"]["uid"]
        for pod in self.pods_by_owner.get(uid):
            self._check_orphan(pod)
        self._forget(uid)

    async def prepare(self) -> None:
        for pod in self.pods:
            self._check_orphan(pod)

    def _requeue_at_deadline(self, key: ObjectKey, job: Job, now: float) -> None:
        left = rules.deadline_left(job, now)
        if left is not None:
            self.queue.add_after(key, max(left, 0.001), background=True)

    def _forget(self, uid: str) -> None:
        self._written.pop(uid, None)
        self._backoff.pop(uid, None)


def _counts(state: rules.JobState, counted: rules.FinishedPods) -> Document:
    job = state.job
    counts: Document = {
        "succeeded": counted.succeeded,
        "failed": counted.failed,
        "uncountedTerminatedPods": {
            "succeeded": counted.uncounted_succeeded or None,
            "failed": counted.uncounted_failed or None,
        },
    }
    listed = job.status.uncounted_terminated_pods
    if listed is None and not counted.uncounted_succeeded and not counted.uncounted_failed:
        counts["uncountedTerminatedPods"] = {}
    elif listed is not None and (list(listed.succeeded), list(listed.failed)) == (
        counted.uncounted_succeeded,
        counted.uncounted_failed,
    ):
        del counts["uncountedTerminatedPods"]
    if rules.indexed(job):
        counts["completedIndexes"] = str(state.completed)
    if state.failed_indexes is not None:
        counts["failedIndexes"] = str(state.failed_indexes)
    return counts
