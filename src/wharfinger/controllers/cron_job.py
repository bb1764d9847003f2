"""CronJobs: a job at every time of a schedule, within the limits of concurrency and history."""

from __future__ import annotations

import copy

from wharfinger.api.cron import MISSED_LIMIT, BadSchedule, Schedule, latest_missed, parse_schedule
from wharfinger.api.errors import AlreadyExists, ApiError, NotFound
from wharfinger.api.kinds.builtin import CRON_JOBS, JOBS
from wharfinger.api.registry import Document
from wharfinger.api.times import format_time, parse_time
from wharfinger.api.views import CronJob, Job, view
from wharfinger.client.controller import Controller
from wharfinger.client.events import EventKind
from wharfinger.client.informer import Key
from wharfinger.controllers.context import ControllerContext
from wharfinger.controllers.job_rules import finished
from wharfinger.controllers.parts.base import is_terminating_namespace
from wharfinger.controllers.parts.ownership import document_owner_index
from wharfinger.controllers.parts.pods import controller_reference, created_at
from wharfinger.controllers.parts.statuses import patch_status

SCHEDULED_AT = "batch.kubernetes.io/cronjob-scheduled-timestamp"
DELTA = 0.1  # seconds after the moment itself, so that a clock that is a little behind has it past


class CronJobController(Controller[Key]):
    name = "cronjob"
    workers = 2

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(observer=context.observer)
        self.context = context
        self.client = context.client
        self.cron_jobs = context.documents(CRON_JOBS)
        self.jobs = context.documents(JOBS)
        self.jobs_by_owner = document_owner_index(self.jobs)
        self.cron_jobs.add_handler(self._enqueue, lambda old, new: self._enqueue(new))
        self.jobs.add_handler(self._job_changed, lambda old, new: self._job_changed(new), self._job_changed)

    async def reconcile(self, key: Key) -> None:
        document = self.cron_jobs.get(key[1], key[0])
        if document is None or document["metadata"].get("deletionTimestamp"):
            return
        cron = view(document, CronJob)
        owned = self.jobs_by_owner.get(cron.metadata.uid)
        jobs = [(each, view(each, Job)) for each in owned]
        await self._limit_history(document, cron, [job for _, job in jobs])
        status = self._status(document, [job for _, job in jobs])
        if not cron.spec.suspend:
            try:
                schedule = parse_schedule(cron.spec.schedule, cron.spec.time_zone)
            except BadSchedule as error:
                reason = "UnknownTimeZone" if "time zone" in str(error) else "UnparseableSchedule"
                self._event(document, "Warning", reason, f"unparseable schedule: {cron.spec.schedule} : {error}")
            else:
                await self._schedule(key, document, cron, schedule, status)
        await patch_status(self.client, CRON_JOBS, document, status, locked=True)

    def _status(self, document: Document, jobs: list[Job]) -> Document:
        """The jobs that run, and when one last succeeded."""
        old = document.get("status") or {}
        active = sorted((job for job in jobs if not finished(job)), key=lambda job: job.metadata.name)
        succeeded = [job.status.completion_time for job in jobs if job.status.completion_time]
        status: Document = {"active": [_reference(job) for job in active]}
        latest = max([*succeeded, old.get("lastSuccessfulTime") or ""], default="")
        if latest:
            status["lastSuccessfulTime"] = latest
        return status

    async def _schedule(
        self, key: Key, document: Document, cron: CronJob, schedule: Schedule, status: Document
    ) -> None:
        now = self.context.now()
        last = (document.get("status") or {}).get("lastScheduleTime")
        after = parse_time(last) if last else created_at(cron.metadata)
        deadline = cron.spec.starting_deadline_seconds
        if deadline is not None:
            after = max(after, now - deadline)
        moment, missed = latest_missed(schedule, after, now)
        if missed > MISSED_LIMIT:
            self._event(
                document,
                "Warning",
                "TooManyMissedTimes",
                "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew",
            )
        if moment is not None:
            await self._start(document, cron, moment, now, status)
        following = schedule.next(now)
        if following is not None:
            self.queue.add_after(key, following - now + DELTA, background=True)

    async def _start(self, document: Document, cron: CronJob, moment: float, now: float, status: Document) -> None:
        deadline = cron.spec.starting_deadline_seconds
        if deadline is not None and now > moment + deadline:
            message = f"Missed scheduled time to start a job: {format_time(moment)}"
            self._event(document, "Warning", "MissSchedule", message)
            return
        if status["active"] and cron.spec.concurrency_policy == "Forbid":
            message = "Not starting job because prior execution is running and concurrency policy is Forbid"
            self._event(document, "Normal", "JobAlreadyActive", message)
            return
        if cron.spec.concurrency_policy == "Replace":
            for running in status["active"]:
                await self._delete(document, running["name"], cron.metadata.namespace)
            status["active"] = []
        job = _job(cron, moment)
        try:
            created = await self.client.create(JOBS, job, cron.metadata.namespace)
            self._event(document, "Normal", "SuccessfulCreate", f"Created job {created['metadata']['name']}")
        except AlreadyExists:
            created = await self.client.get(JOBS, job["metadata"]["name"], cron.metadata.namespace)
        except ApiError as error:
            if is_terminating_namespace(error):
                return
            self._event(document, "Warning", "FailedCreate", f"Error creating job: {error}")
            raise
        if not any(each["uid"] == created["metadata"]["uid"] for each in status["active"]):
            if not finished(view(created, Job)):
                status["active"].append(_reference(view(created, Job)))
        status["lastScheduleTime"] = format_time(moment)

    async def _limit_history(self, document: Document, cron: CronJob, jobs: list[Job]) -> None:
        for kind, limit in (
            ("Complete", cron.spec.successful_jobs_history_limit),
            ("Failed", cron.spec.failed_jobs_history_limit),
        ):
            ended = [job for job in jobs if any(c.type == kind and c.status == "True" for c in job.status.conditions)]
            ended.sort(key=lambda job: (job.status.start_time, job.metadata.name))
            for job in ended[: max(0, len(ended) - limit)]:
                if not job.metadata.deletion_timestamp:
                    await self._delete(document, job.metadata.name, job.metadata.namespace)

    async def _delete(self, document: Document, name: str, namespace: str) -> None:
        try:
            await self.client.delete(JOBS, name, namespace, propagation="Background")
        except NotFound:
            return
        self._event(document, "Normal", "SuccessfulDelete", f"Deleted job {name}")

    # Events of informers

    def _event(self, document: Document, type: EventKind, reason: str, message: str) -> None:
        self.context.recorder.event(CRON_JOBS, document, type, reason, message)

    def _enqueue(self, document: Document) -> None:
        metadata = document["metadata"]
        self.queue.add((metadata.get("namespace") or "", metadata["name"]))

    def _job_changed(self, document: Document) -> None:
        for owner in document["metadata"].get("ownerReferences") or ():
            if owner.get("controller") and owner["kind"] == "CronJob":
                self.queue.add((document["metadata"].get("namespace") or "", owner["name"]))


def _job(cron: CronJob, moment: float) -> Document:
    """The job of one moment. Its name follows from the moment, so that two tries make one job."""
    template = cron.spec.job_template
    metadata = template.get("metadata") or {}
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {
            "name": f"{cron.metadata.name}-{int(moment) // 60}",
            "namespace": cron.metadata.namespace,
            "labels": dict(metadata.get("labels") or {}),
            "annotations": {**(metadata.get("annotations") or {}), SCHEDULED_AT: format_time(moment)},
            "ownerReferences": [controller_reference(CRON_JOBS, cron.metadata)],
        },
        "spec": copy.deepcopy(template.get("spec") or {}),
    }


def _reference(job: Job) -> Document:
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "name": job.metadata.name,
        "namespace": job.metadata.namespace,
        "uid": job.metadata.uid,
    }
