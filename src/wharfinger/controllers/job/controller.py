"""Jobs: pods that run to their end. Every finished pod is counted exactly once, whatever crashes in between.

As upstream: a finished pod is first noted in `status.uncountedTerminatedPods`, then loses its finalizer, and only then
moves into the counters. What is decided stands in `job_rules.py`.
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
from wharfinger.api.times import format_time
from wharfinger.api.views import Job, Pod, view
from wharfinger.controllers.batches import BURST
from wharfinger.controllers.context import ControllerContext
from wharfinger.controllers.job import rules
from wharfinger.controllers.job.backoff import JobBackoff
from wharfinger.controllers.ownership import selector_of
from wharfinger.controllers.pod_owner import PodOwner
from wharfinger.controllers.pod_templates import pod_from_template
from wharfinger.controllers.status_patches import patch_status

OURSELVES = "kubernetes.io/job-controller"
ORPHAN = "orphan:"  # prefix of the namespace in keys of pods whose job is gone
LONGEST_PREFIX = 58  # of generated names: the server appends five characters


class JobController(PodOwner):
    name = "job"
    resource = JOBS

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._released: set[str] = set()  # pods that have lost their finalizer, though the informer may not show it
        self._written: dict[str, int] = {}  # by uid of job the version of our last write, which the informer may lack
        self._backoff: dict[str, JobBackoff] = {}  # by uid of job
        self.pods.add_handler(self._look_for_orphan, lambda old, new: self._look_for_orphan(new), self._pod_gone)
        self.owners.add_handler(on_delete=self._job_gone)

    async def reconcile(self, key: ObjectKey) -> None:
        if key[0].startswith(ORPHAN):
            await self._release_orphan((key[0].removeprefix(ORPHAN), key[1]))
            return
        document = self.owners.get(key[1], key[0])
        if document is None:
            self.expectations.forget(key)
            return
        selector = selector_of(document)
        job = view(document, Job)
        if selector is None or job.spec.managed_by not in ("", OURSELVES):
            return
        if int(job.metadata.resource_version) < self._written.get(job.metadata.uid, 0):
            return  # the informer will show what we wrote, and bring us back; until then pods would be counted wrongly
        pods = await self.claim_pods(job.metadata, selector, finalizers=(rules.FINALIZER,))
        if rules.finished(job):
            self._forget(job.metadata.uid)
            await self._release(pods)
            return
        await self._sync(key, document, job, pods)

    async def _sync(self, key: ObjectKey, document: Document, job: Job, pods: list[Pod]) -> None:
        now = self.context.now()
        # A pod that shows no controller has been adopted just now, and its finalizer added.
        held = {pod.metadata.uid for pod in pods if self._holds(pod) or pod.metadata.controller is None}
        look = rules.look_at(job, pods, held)
        backoff = self._backoff_of(look)
        conditions = list((document.get("status") or {}).get("conditions") or [])
        status: Document = {"active": len(look.active), "ready": look.ready, "terminating": look.terminating}
        if not job.status.start_time and not job.spec.suspend:
            status["startTime"] = format_time(now)
        satisfied = self.expectations.satisfied(key, now)
        end = rules.ending(look, now)
        failure: Exception | None = None
        if end is not None:
            if satisfied:
                failure = await self._delete(key, document, look.active, status)
            if not satisfied or failure is not None:
                end = None  # pods that we do not see may be left
        else:
            managed = satisfied and not job.metadata.deletion_timestamp
            if managed:
                failure = await self._manage(key, document, look, status, backoff, now)
            end = rules.completion(look, status["active"])
            if managed and end is None:
                conditions = self._note_suspension(document, job, conditions, status, now)
            self._wake_for_deadline(key, job, now)
        await self._account(document, look, end, status, conditions)
        self._backoff[job.metadata.uid] = backoff
        if failure is not None:
            raise failure

    async def _account(
        self,
        document: Document,
        look: rules.Look,
        end: rules.Ending | None,
        status: Document,
        conditions: list[Document],
    ) -> None:
        """Writes the status, then lets go of the pods that it counts; the final condition waits for both."""
        book = rules.account(look, end)
        status |= _counts(look, book)
        final = end is not None and book.settled and not status["terminating"]
        if end is not None:
            conditions = self._set(conditions, rules.INTERIM[end.type], "True", end.reason, end.message)
        if end is not None and final:
            conditions = self._set(conditions, end.type, "True", end.reason, end.message)
            if end.type == rules.COMPLETE:
                status["completionTime"] = format_time(self.context.now())
        status["conditions"] = conditions
        stored = await patch_status(self.client, JOBS, document, status, locked=True)
        if stored is not None:
            self._written[look.job.metadata.uid] = int(stored["metadata"]["resourceVersion"])
        if end is not None and final:
            self._tell_end(document, look, end)
        await self._release(book.release)

    def _backoff_of(self, look: rules.Look) -> JobBackoff:
        """The waits after failures so far; after a restart of ours, told from the pods that are still there."""
        known = self._backoff.get(look.job.metadata.uid)
        if known is not None:
            return known.after(look.new_succeeded, look.new_failed)
        succeeded = [pod for pod in look.pods if pod.status.phase == "Succeeded"]
        return JobBackoff().after(succeeded, [pod for pod in look.pods if rules.has_failed(look.job, pod)])

    def _holds(self, pod: Pod) -> bool:
        return rules.FINALIZER in pod.metadata.finalizers and pod.metadata.uid not in self._released

    # Conditions

    def _tell_end(self, document: Document, look: rules.Look, end: rules.Ending) -> None:
        if end.type == rules.FAILED:
            self.event(document, "Warning", end.reason, end.message)
            return
        completions = look.job.spec.completions
        if completions is not None and look.succeeded > completions:
            message = "Too many succeeded pods running after completion count reached"
            self.event(document, "Warning", "TooManySucceededPods", message)
        self.event(document, "Normal", "Completed", "Job completed")

    def _note_suspension(
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
        self, key: ObjectKey, document: Document, look: rules.Look, status: Document, backoff: JobBackoff, now: float
    ) -> Exception | None:
        """Deletes what is too much or else creates what is missing; `status` follows."""
        job, active = look.job, len(look.active)
        wanted = rules.wanted_active(look)
        leaving = rules.surplus(look, wanted, now)[: None if job.spec.suspend else BURST]
        if leaving:
            # These are not failures of the job: without their finalizer they are never counted.
            await self._release(leaving)
            return await self._delete(key, document, leaving, status)
        missing = wanted - active
        if rules.replaces_failed_only(job):
            missing -= look.terminating
        if missing <= 0:
            return None
        indexes: list[int | None] = [None] * min(missing, BURST)
        wait = 0.0 if rules.limited_per_index(job) else backoff.remaining(now)
        if wait <= 0 and rules.indexed(job):
            indexes = list(rules.next_indexes(look, len(indexes)))
        if wait <= 0 and rules.limited_per_index(job):
            waits = {index: rules.index_wait(look.replaceable.get(index or 0), now) for index in indexes}
            indexes = [index for index in indexes if waits[index] <= 0]
            wait = min(waits.values(), default=0.0) if not indexes else 0.0
        if wait > 0:
            self.queue.add_after(key, wait)
            return None
        return await self._create(key, document, look, indexes, status)

    async def _create(
        self, key: ObjectKey, document: Document, look: rules.Look, indexes: Sequence[int | None], status: Document
    ) -> Exception | None:
        if not indexes:
            return None
        self.expectations.expect_creations(key, len(indexes), self.context.now())
        created, failure = await self.create_pods(
            key, document, len(indexes), lambda number: self._pod(look, indexes[number])
        )
        status["active"] += created
        return failure

    def _pod(self, look: rules.Look, index: int | None) -> Document:
        job = look.job
        owner = controller_reference(JOBS, job.metadata)
        name = job.metadata.name
        pod = pod_from_template(job.spec.template, owner)
        metadata = pod["metadata"]
        metadata["finalizers"] = list(dict.fromkeys((*metadata.get("finalizers", ()), rules.FINALIZER)))
        if index is None:
            return pod
        suffix = f"-{index}-"
        metadata["generateName"] = name[: LONGEST_PREFIX - len(suffix)] + suffix
        metadata["annotations"] = {**metadata.get("annotations", {}), rules.INDEX: str(index)}
        if rules.limited_per_index(job):
            metadata["annotations"] |= rules.failure_annotations(job, look.replaceable.get(index))
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
        """A pod whose job is gone waits for nobody."""
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

    def _look_for_orphan(self, pod: Pod) -> None:
        if self._holds(pod) and self.owners.synced and self.owner_of(pod.metadata) is None:
            self.queue.add((ORPHAN + pod.metadata.namespace, pod.metadata.name))

    def _pod_gone(self, pod: Pod) -> None:
        self._released.discard(pod.metadata.uid)

    def _job_gone(self, document: Document) -> None:
        uid = document["metadata"]["uid"]
        for pod in self.pods_by_owner.get(uid):
            self._look_for_orphan(pod)
        self._forget(uid)

    async def prepare(self) -> None:
        for pod in self.pods:
            self._look_for_orphan(pod)

    def _wake_for_deadline(self, key: ObjectKey, job: Job, now: float) -> None:
        left = rules.deadline_left(job, now)
        if left is not None:
            self.queue.add_after(key, max(left, 0.001), background=True)

    def _forget(self, uid: str) -> None:
        self._written.pop(uid, None)
        self._backoff.pop(uid, None)


def _counts(look: rules.Look, book: rules.Account) -> Document:
    job = look.job
    counts: Document = {
        "succeeded": book.succeeded,
        "failed": book.failed,
        "uncountedTerminatedPods": {
            "succeeded": book.noted_succeeded or None,
            "failed": book.noted_failed or None,
        },
    }
    noted = job.status.uncounted_terminated_pods
    if noted is None and not book.noted_succeeded and not book.noted_failed:
        counts["uncountedTerminatedPods"] = {}
    elif noted is not None and (list(noted.succeeded), list(noted.failed)) == (book.noted_succeeded, book.noted_failed):
        del counts["uncountedTerminatedPods"]
    if rules.indexed(job):
        counts["completedIndexes"] = str(look.done)
    if look.given_up is not None:
        counts["failedIndexes"] = str(look.given_up)
    return counts
