"""The CronJob controller: creates a job at every scheduled time and limits the history of finished jobs."""

from __future__ import annotations

import copy
from datetime import UTC, datetime

from wharfinger.api.cron import MISSED_LIMIT, BadSchedule, Schedule, latest_missed, parse_schedule, zone_of
from wharfinger.api.errors import AlreadyExists, ApiError, NotFound, is_terminating_namespace
from wharfinger.api.keys import ObjectKey
from wharfinger.api.kinds.builtin import CRON_JOBS, JOBS
from wharfinger.api.object_meta import controller_of, controller_reference, created_at
from wharfinger.api.registry import Document
from wharfinger.api.times import format_time, parse_time
from wharfinger.api.views import CronJob, Job, view
from wharfinger.client.events import EventKind
from wharfinger.controllers.context import ControllerContext, DocumentController
from wharfinger.controllers.job.rules import COMPLETE, FAILED, finished
from wharfinger.controllers.ownership import document_owner_index
from wharfinger.controllers.status_patches import patch_status

SCHEDULED_AT = "batch.kubernetes.io/cronjob-scheduled-timestamp"
DELTA = 0.1  # seconds after the scheduled time, to be safe against small clock differences


class CronJobController(DocumentController):
    name = "cronjob"
    workers = 2

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self.cron_jobs = self.reconciled(CRON_JOBS)
        self.jobs = context.documents(JOBS)
        self.jobs_by_owner = document_owner_index(self.jobs)
        self.jobs.add_handler(self._job_changed, lambda old, new: self._job_changed(new), self._job_changed)

    async def reconcile(self, key: ObjectKey) -> None:
        document = self.cron_jobs.get(key[1], key[0])
        if document is None:
            return
        jobs = [view(each, Job) for each in self.jobs_by_owner.get(document["metadata"]["uid"])]
        listed = _listed(document)
        if any(not finished(job) and job.metadata.uid not in listed for job in jobs):
            # Most likely we have just created it, and the status in the cache is stale.
            fresh = await self._fresh(document)
            if fresh is None:
                return
            document = fresh
        cron = view(document, CronJob)
        removed = await self._limit_history(document, cron, jobs)
        status = await self._status(document, jobs, removed)
        if not cron.metadata.deletion_timestamp and not cron.spec.suspend:
            schedule = self._parse(document, cron)
            if schedule is not None:
                await self._schedule(key, document, cron, schedule, status)
        await patch_status(self.client, CRON_JOBS, document, status, locked=True)

    async def _fresh(self, document: Document) -> Document | None:
        metadata = document["metadata"]
        try:
            found = await self.client.get(CRON_JOBS, metadata["name"], metadata["namespace"])
        except NotFound:
            return None
        return found if found["metadata"]["uid"] == metadata["uid"] else None

    async def _status(self, document: Document, jobs: list[Job], removed: set[str]) -> Document:
        """The active jobs in order of creation, and when a job last succeeded. Jobs that we did not create are reported by
        an event, but not listed."""
        old = document.get("status") or {}
        by_uid = {job.metadata.uid: job for job in jobs}
        listed = _listed(document)
        for job in jobs:
            if not finished(job) and job.metadata.uid not in listed:
                message = f"Saw a job that the controller did not create or forgot: {job.metadata.name}"
                self._event(document, "Warning", "UnexpectedJob", message)
        active: list[Document] = []
        for reference in old.get("active") or ():
            listed_job = by_uid.get(reference.get("uid", ""))
            if reference.get("uid") in removed:
                continue
            if listed_job is None:
                if await self._exists(reference, document["metadata"].get("namespace") or ""):
                    active.append(reference)
                else:
                    self._event(document, "Normal", "MissingJob", f"Active job went missing: {reference.get('name')}")
            elif finished(listed_job):
                message = f"Saw completed job: {reference['name']}, condition: {_ending(listed_job)}"
                self._event(document, "Normal", "SawCompletedJob", message)
            else:
                active.append(reference)
        status: Document = {"active": active}
        succeeded = [job.status.completion_time for job in jobs if _ending(job) == COMPLETE]
        latest = max([*filter(None, succeeded), old.get("lastSuccessfulTime") or ""])
        if latest:
            status["lastSuccessfulTime"] = latest
        return status

    async def _exists(self, reference: Document, namespace: str) -> bool:
        """Whether a job that the cache lacks exists."""
        try:
            await self.client.get(JOBS, str(reference.get("name")), namespace)
        except NotFound:
            return False
        return True

    def _parse(self, document: Document, cron: CronJob) -> Schedule | None:
        """The schedule; None if it is invalid, which an event reports."""
        text, zone = cron.spec.schedule, cron.spec.time_zone
        try:
            zone_of(zone)
        except BadSchedule as error:
            self._event(document, "Warning", "UnknownTimeZone", f'invalid timeZone: "{zone}": {error}')
            return None
        if "TZ" in text:
            message = (
                f'CRON_TZ or TZ used in schedule "{text}" is not officially supported, see '
                "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
            )
            self._event(document, "Warning", "UnsupportedSchedule", message)
        try:
            return parse_schedule(text, zone)
        except BadSchedule as error:
            self._event(document, "Warning", "UnparseableSchedule", f'unparseable schedule: "{text}" : {error}')
            return None

    async def _schedule(
        self, key: ObjectKey, document: Document, cron: CronJob, schedule: Schedule, status: Document
    ) -> None:
        now = self.context.now()
        last = (document.get("status") or {}).get("lastScheduleTime")
        after = parse_time(last) if last else created_at(cron.metadata)
        deadline = cron.spec.starting_deadline_seconds
        if deadline is not None:
            after = max(after, now - deadline)
        scheduled, missed = latest_missed(schedule, after, now)
        if missed > MISSED_LIMIT:
            self._event(
                document,
                "Warning",
                "TooManyMissedTimes",
                "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew",
            )
        if scheduled is not None:
            await self._start(document, cron, scheduled, now, status)
        following = schedule.next(now)
        if following is not None:
            self.queue.add_after(key, following - now + DELTA, background=True)

    async def _start(self, document: Document, cron: CronJob, scheduled: float, now: float, status: Document) -> None:
        deadline = cron.spec.starting_deadline_seconds
        if deadline is not None and now > scheduled + deadline:
            from email.utils import format_datetime  # expensive to load, and rarely needed

            message = f"Missed scheduled time to start a job: {format_datetime(datetime.fromtimestamp(scheduled, UTC))}"
            self._event(document, "Warning", "MissSchedule", message)
            return
        if any(each.get("name") == _job_name(cron, scheduled) for each in status["active"]):
            return
        if status["active"] and cron.spec.concurrency_policy == "Forbid":
            message = "Not starting job because prior execution is running and concurrency policy is Forbid"
            self._event(document, "Normal", "JobAlreadyActive", message)
            return
        if cron.spec.concurrency_policy == "Replace":
            for running in status["active"]:
                await self._delete(document, running["name"], cron.metadata.namespace)
            status["active"] = []
        job = _job(cron, scheduled)
        try:
            created = await self.client.create(JOBS, job, cron.metadata.namespace)
            self._event(document, "Normal", "SuccessfulCreate", f"Created job {created['metadata']['name']}")
        except AlreadyExists:
            # Created by us before a crash, and the status was not written; or not ours.
            created = await self.client.get(JOBS, job["metadata"]["name"], cron.metadata.namespace)
            controller = view(created, Job).metadata.controller
            if controller is None or controller.uid != cron.metadata.uid:
                return
        except ApiError as error:
            if is_terminating_namespace(error):
                return
            self._event(document, "Warning", "FailedCreate", f"Error creating job: {error}")
            raise
        status["active"].append(_reference(created))
        status["lastScheduleTime"] = format_time(scheduled)

    async def _limit_history(self, document: Document, cron: CronJob, jobs: list[Job]) -> set[str]:
        """Deletes the oldest jobs beyond the limits; returns their uids."""
        removed: set[str] = set()
        for kind, limit in (
            (COMPLETE, cron.spec.successful_jobs_history_limit),
            (FAILED, cron.spec.failed_jobs_history_limit),
        ):
            ended = [job for job in jobs if _ending(job) == kind]
            ended.sort(key=lambda job: (not job.status.start_time, job.status.start_time or "", job.metadata.name))
            for job in ended[: max(0, len(ended) - limit)]:
                if not job.metadata.deletion_timestamp:
                    await self._delete(document, job.metadata.name, job.metadata.namespace)
                    removed.add(job.metadata.uid)
        return removed

    async def _delete(self, document: Document, name: str, namespace: str) -> None:
        try:
            await self.client.delete(JOBS, name, namespace, propagation="Background")
        except NotFound:
            return
        self._event(document, "Normal", "SuccessfulDelete", f"Deleted job {name}")

    # Informer events

    def _event(self, document: Document, type: EventKind, reason: str, message: str) -> None:
        self.context.recorder.event(CRON_JOBS, document, type, reason, message)

    def _job_changed(self, document: Document) -> None:
        owner = controller_of(document)
        if owner is not None and owner["kind"] == "CronJob":
            self.queue.add((document["metadata"].get("namespace") or "", owner["name"]))


def _listed(document: Document) -> set[str]:
    return {each.get("uid", "") for each in (document.get("status") or {}).get("active") or ()}


def _ending(job: Job) -> str:
    """The type of the final condition; empty for an unfinished job."""
    return next((c.type for c in job.status.conditions if c.type in (COMPLETE, FAILED) and c.status == "True"), "")


def _job_name(cron: CronJob, scheduled: float) -> str:
    """The name is derived from the scheduled time, so that a retry does not create a second job."""
    return f"{cron.metadata.name}-{int(scheduled) // 60}"


def _job(cron: CronJob, scheduled: float) -> Document:
    """The job for a scheduled time."""
    template = cron.spec.job_template
    metadata = template.get("metadata") or {}
    local = datetime.fromtimestamp(scheduled, zone_of(cron.spec.time_zone)).isoformat().replace("+00:00", "Z")
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {
            "name": _job_name(cron, scheduled),
            "namespace": cron.metadata.namespace,
            "labels": dict(metadata.get("labels") or {}),
            "annotations": {**(metadata.get("annotations") or {}), SCHEDULED_AT: local},
            "ownerReferences": [controller_reference(CRON_JOBS, cron.metadata)],
        },
        "spec": copy.deepcopy(template.get("spec") or {}),
    }


def _reference(job: Document) -> Document:
    metadata = job["metadata"]
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "resourceVersion": metadata["resourceVersion"],
        "uid": metadata["uid"],
    }
