"""Jobs: pods that run to their end. Every finished pod is counted exactly once, whatever crashes in between.

As upstream: a finished pod is first noted in `status.uncountedTerminatedPods`, then loses its finalizer, and only then
moves into the counters. Limits per index and success policies are not supported; such jobs are left alone with an event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from wharfinger.api.errors import ApiError, NotFound
from wharfinger.api.kinds.builtin import JOBS, PODS
from wharfinger.api.registry import Document
from wharfinger.api.selectors import matches
from wharfinger.api.times import format_time
from wharfinger.api.views import Job, Pod, view
from wharfinger.client.informer import Key
from wharfinger.client.interface import PatchType
from wharfinger.controllers import job_rules as rules
from wharfinger.controllers.context import ControllerContext
from wharfinger.controllers.parts.base import PodOwner, selector_of
from wharfinger.controllers.parts.batches import BURST, slow_start
from wharfinger.controllers.parts.ownership import claim
from wharfinger.controllers.parts.pods import controller_reference, generated_prefix, pod_from_template
from wharfinger.controllers.parts.scale_in import in_deletion_order
from wharfinger.controllers.parts.statuses import condition_of, patch_status, with_condition

ORPHAN = "orphan:"  # prefix of the namespace in keys of pods whose job is gone


@dataclass(slots=True)
class Tally:
    """What is known of a job's pods at one look."""

    active: list[Pod] = field(default_factory=list)
    terminating: list[Pod] = field(default_factory=list)
    succeeded: int = 0
    failed: int = 0
    completed: set[int] = field(default_factory=set)
    uncounted_succeeded: list[str] = field(default_factory=list)
    uncounted_failed: list[str] = field(default_factory=list)
    to_release: list[Pod] = field(default_factory=list)
    policy_failure: str = ""

    @property
    def all_succeeded(self) -> int:
        return self.succeeded + len(self.uncounted_succeeded)

    @property
    def all_failed(self) -> int:
        return self.failed + len(self.uncounted_failed)


class JobController(PodOwner):
    name = "job"
    resource = JOBS

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._released: set[str] = set()  # pods that have lost their finalizer, though the informer may not show it
        self.pods.add_handler(self._look_for_orphan, lambda old, new: self._look_for_orphan(new), self._pod_gone)
        self.owners.add_handler(on_delete=self._job_gone)

    async def reconcile(self, key: Key) -> None:
        if key[0].startswith(ORPHAN):
            await self._release_orphan((key[0].removeprefix(ORPHAN), key[1]))
            return
        document = self.owners.get(key[1], key[0])
        if document is None:
            self.expectations.forget(key)
            return
        selector = selector_of(document)
        job = view(document, Job)
        if selector is None or job.spec.managed_by not in ("", "kubernetes.io/job-controller"):
            return
        if document["spec"].get("successPolicy") or job.spec.backoff_limit_per_index is not None:
            what = "successPolicy" if document["spec"].get("successPolicy") else "backoffLimitPerIndex"
            self.event(document, "Warning", "Unsupported", f"spec.{what} is not supported; the job is not run")
            return
        pods = await claim(
            self.client,
            owner=job.metadata,
            owner_resource=JOBS,
            resource=PODS,
            candidates=self.candidates(job.metadata),
            matches=lambda pod: matches(selector, pod.metadata.labels),
            finalizers=(rules.FINALIZER,),
        )
        if rules.finished(job):
            await self._release(pods)
            return
        await self._sync(key, document, job, pods)

    async def _sync(self, key: Key, document: Document, job: Job, pods: list[Pod]) -> None:
        now = self.context.now()
        satisfied = self.expectations.satisfied(key, now)
        tally = self._tally(document, job, pods)
        conditions = list((document.get("status") or {}).get("conditions") or [])
        status: Document = {}
        if not job.status.start_time and not job.spec.suspend:
            status["startTime"] = format_time(now)
        ending = self._ending(document, job, conditions, tally, now)
        failure: Exception | None = None
        if ending is not None:
            conditions = self._set(conditions, _interim(ending), "True", ending[1], ending[2])
            if satisfied or tally.active:
                failure = await self._delete(key, document, tally.active)
        elif satisfied and not job.metadata.deletion_timestamp:
            failure = await self._manage(key, document, job, tally, pods, now)
        conditions = self._note_suspension(document, job, conditions, status, now)
        status |= self._counts(job, tally)
        if ending is not None and self._all_settled(ending, tally):
            conditions = self._set(conditions, ending[0], "True", ending[1], ending[2])
            if ending[0] == "Complete":
                status["completionTime"] = format_time(now)
        status["conditions"] = conditions
        changed = await patch_status(self.client, JOBS, document, status, locked=True)
        if changed and ending is not None and condition_of(conditions, ending[0]) is not None:
            self._tell_end(document, ending)
        await self._release(tally.to_release)
        self._wake_later(key, job, ending, now)
        if failure is not None:
            raise failure

    # Counting

    def _tally(self, document: Document, job: Job, pods: Sequence[Pod]) -> Tally:
        """Sorts the pods; moves into the counters what was noted before and has lost its finalizer since."""
        noted = job.status.uncounted_terminated_pods
        succeeded_before = set(noted.succeeded) if noted is not None else set()
        failed_before = set(noted.failed) if noted is not None else set()
        tally = Tally(
            succeeded=job.status.succeeded,
            failed=job.status.failed,
            completed=rules.parse_indexes(job.status.completed_indexes) if rules.indexed(job) else set(),
        )
        held = {pod.metadata.uid for pod in pods if self._holds(pod)}
        tally.failed += len(failed_before - held)
        tally.uncounted_failed = sorted(failed_before & held)
        if rules.indexed(job):
            tally.succeeded = len(tally.completed)
        else:
            tally.succeeded += len(succeeded_before - held)
            tally.uncounted_succeeded = sorted(succeeded_before & held)
        policy = document["spec"].get("podFailurePolicy")
        for pod in pods:
            self._tally_pod(job, pod, policy, tally, succeeded_before | failed_before)
        if rules.indexed(job):
            tally.succeeded = len(tally.completed)
        return tally

    def _tally_pod(self, job: Job, pod: Pod, policy: Document | None, tally: Tally, noted: set[str]) -> None:
        uid = pod.metadata.uid
        holds = self._holds(pod)
        if pod.status.phase == "Succeeded":
            if holds:
                tally.to_release.append(pod)
            if rules.indexed(job):
                index = rules.index_of(pod)
                if holds and index is not None and index < (job.spec.completions or 0):
                    tally.completed.add(index)
            elif holds and uid not in noted:
                tally.uncounted_succeeded.append(uid)
        elif rules.has_failed(job, pod):
            if not holds:
                return
            tally.to_release.append(pod)
            action, message = rules.matched_rule(policy, pod) if pod.status.phase == "Failed" else ("Count", "")
            if action == "FailJob" and not tally.policy_failure:
                tally.policy_failure = message
            if action != "Ignore" and uid not in noted:
                tally.uncounted_failed.append(uid)
        elif pod.terminating:
            tally.terminating.append(pod)
        else:
            tally.active.append(pod)

    def _holds(self, pod: Pod) -> bool:
        return rules.FINALIZER in pod.metadata.finalizers and pod.metadata.uid not in self._released

    def _counts(self, job: Job, tally: Tally) -> Document:
        counts: Document = {
            "active": len(tally.active),
            "ready": sum(pod.ready for pod in tally.active),
            "terminating": len(tally.terminating),
            "succeeded": tally.succeeded,
            "failed": tally.failed,
            "uncountedTerminatedPods": {
                "succeeded": tally.uncounted_succeeded or None,
                "failed": tally.uncounted_failed or None,
            },
        }
        noted = job.status.uncounted_terminated_pods
        before = (list(noted.succeeded), list(noted.failed)) if noted is not None else ([], [])
        if before == (tally.uncounted_succeeded, tally.uncounted_failed) and noted is not None:
            del counts["uncountedTerminatedPods"]
        elif noted is None and not tally.uncounted_succeeded and not tally.uncounted_failed:
            counts["uncountedTerminatedPods"] = {}
        if rules.indexed(job):
            counts["completedIndexes"] = rules.format_indexes(tally.completed)
        return counts

    # Ending

    def _ending(
        self, document: Document, job: Job, conditions: list[Document], tally: Tally, now: float
    ) -> rules.Ending | None:
        """How the job ends, once decided for good; None while it goes on."""
        for interim, final in (("FailureTarget", "Failed"), ("SuccessCriteriaMet", "Complete")):
            decided = condition_of(conditions, interim)
            if decided is not None and decided["status"] == "True":
                return final, decided.get("reason", ""), decided.get("message", "")
        if tally.policy_failure:
            return "Failed", "PodFailurePolicy", tally.policy_failure
        policy = ((document["spec"].get("template") or {}).get("spec") or {}).get("restartPolicy", "")
        if tally.all_failed > job.spec.backoff_limit or rules.past_backoff_on_failure(job, policy, tally.active):
            return "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        left = rules.deadline_left(job, now)
        if left is not None and left <= 0:
            return "Failed", "DeadlineExceeded", "Job was active longer than specified deadline"
        if rules.is_complete(job, tally.all_succeeded, len(tally.active) + len(tally.terminating)):
            return "Complete", "CompletionsReached", "Reached expected number of succeeded pods"
        return None

    @staticmethod
    def _all_settled(ending: rules.Ending, tally: Tally) -> bool:
        """The final condition waits until no pod runs and every finished one is counted."""
        return not (
            tally.active or tally.terminating or tally.to_release or tally.uncounted_succeeded or tally.uncounted_failed
        )

    def _tell_end(self, document: Document, ending: rules.Ending) -> None:
        if ending[0] == "Complete":
            self.event(document, "Normal", "Completed", "Job completed")
        else:
            self.event(document, "Warning", ending[1], ending[2])

    def _note_suspension(
        self, document: Document, job: Job, conditions: list[Document], status: Document, now: float
    ) -> list[Document]:
        current = condition_of(conditions, "Suspended")
        suspended = current is not None and current["status"] == "True"
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
        stamp = format_time(self.context.now())
        condition = {
            "type": type,
            "status": status,
            "lastProbeTime": stamp,
            "lastTransitionTime": stamp,
            "reason": reason,
            "message": message,
        }
        return with_condition(conditions, condition)

    # Pods

    async def _manage(
        self, key: Key, document: Document, job: Job, tally: Tally, pods: Sequence[Pod], now: float
    ) -> Exception | None:
        active = tally.active
        if rules.indexed(job):
            extra = rules.duplicates(job, active, tally.completed)
            if extra:
                return await self._delete(key, document, extra)
        wanted = max(0, rules.wanted_active(job, tally.all_succeeded, len(active)))
        if len(active) > wanted:
            ranks = {pod.metadata.uid: 0 for pod in active}
            return await self._delete(key, document, in_deletion_order(active, ranks, now)[: len(active) - wanted])
        missing = wanted - len(active)
        if job.spec.pod_replacement_policy == "Failed":
            missing -= len(tally.terminating)
        if missing <= 0:
            return None
        wait = rules.backoff_remaining(pods, now)
        if wait > 0:
            self.queue.add_after(key, wait)
            return None
        return await self._create(key, document, job, tally, min(missing, BURST))

    async def _create(self, key: Key, document: Document, job: Job, tally: Tally, count: int) -> Exception | None:
        indexes: list[int | None] = [None] * count
        if rules.indexed(job):
            busy = [*tally.active, *tally.terminating] if job.spec.pod_replacement_policy == "Failed" else tally.active
            indexes = list(rules.missing_indexes(job, tally.completed, busy, count))
        if not indexes:
            return None
        self.expectations.expect_creations(key, len(indexes), self.context.now())

        async def create(number: int) -> None:
            if await self.create_pod(document, self._pod(job, indexes[number])) is None:
                self.expectations.creation_observed(key)

        created, failure = await slow_start(len(indexes), create)
        self.expectations.creation_observed(key, len(indexes) - created)
        return failure

    def _pod(self, job: Job, index: int | None) -> Document:
        owner = controller_reference(JOBS, job.metadata)
        name = job.metadata.name
        pod = pod_from_template(job.spec.template, owner, prefix=generated_prefix(name))
        metadata = pod["metadata"]
        metadata["finalizers"] = [*metadata.get("finalizers", ()), rules.FINALIZER]
        if index is None:
            return pod
        metadata["generateName"] = f"{name}-{index}-"
        metadata["annotations"] = {**metadata.get("annotations", {}), rules.INDEX: str(index)}
        metadata["labels"] = {**metadata.get("labels", {}), rules.INDEX: str(index)}
        pod["spec"]["hostname"] = f"{name}-{index}"
        source = {"fieldRef": {"fieldPath": f"metadata.labels['{rules.INDEX}']"}}
        for container in (*pod["spec"].get("initContainers", ()), *pod["spec"].get("containers", ())):
            environment = container.setdefault("env", [])
            if not any(each.get("name") == "JOB_COMPLETION_INDEX" for each in environment):
                environment.append({"name": "JOB_COMPLETION_INDEX", "valueFrom": source})
        return pod

    async def _delete(self, key: Key, document: Document, pods: Sequence[Pod]) -> Exception | None:
        leaving = [pod for pod in pods if not pod.terminating]
        if not leaving:
            return None
        self.expectations.expect_deletions(key, (pod.metadata.name for pod in leaving), self.context.now())

        async def delete(pod: Pod) -> None:
            try:
                gone = not await self.delete_pod(document, pod)
            except ApiError:
                self.expectations.deletion_observed(key, pod.metadata.name)
                raise
            if gone:
                self.expectations.deletion_observed(key, pod.metadata.name)

        outcomes = await asyncio.gather(*(delete(pod) for pod in leaving), return_exceptions=True)
        return next((outcome for outcome in outcomes if isinstance(outcome, Exception)), None)

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

    async def _release_orphan(self, key: Key) -> None:
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
        for pod in self.pods_by_owner.get(document["metadata"]["uid"]):
            self._look_for_orphan(pod)

    async def prepare(self) -> None:
        for pod in self.pods:
            self._look_for_orphan(pod)

    def _wake_later(self, key: Key, job: Job, ending: rules.Ending | None, now: float) -> None:
        left = rules.deadline_left(job, now)
        if left is not None and ending is None:
            self.queue.add_after(key, max(left, 0.001), background=True)


def _interim(ending: rules.Ending) -> str:
    return "SuccessCriteriaMet" if ending[0] == "Complete" else "FailureTarget"
