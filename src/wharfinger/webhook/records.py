"""Keeps others than schedulers from writing the records of what a pod was given."""

from __future__ import annotations

from wharfinger.admission.scheduler_records import SchedulerRecordReviewer, scheduler_records, schedulers
from wharfinger.webhook.handler import Context, Handler, ReviewerHandler, Rule


def handlers(context: Context) -> list[Handler]:
    reviewer = SchedulerRecordReviewer(schedulers(context.configuration), scheduler_records())
    return [ReviewerHandler("scheduler-records", (Rule("", ("pods",)),), validating=reviewer)]
