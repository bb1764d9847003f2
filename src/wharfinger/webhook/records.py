"""Only schedulers may write the annotations that record what was allocated to a pod."""

from __future__ import annotations

from wharfinger.admission.scheduler_records import SchedulerRecordReviewer, scheduler_records, schedulers
from wharfinger.webhook.handler import ReviewerHandler, Rule, WebhookContext, WebhookHandler


def handlers(context: WebhookContext) -> list[WebhookHandler]:
    reviewer = SchedulerRecordReviewer(schedulers(context.configuration), scheduler_records())
    return [ReviewerHandler("scheduler-records", (Rule("", ("pods",)),), validating=reviewer)]
