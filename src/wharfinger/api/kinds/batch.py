"""Kinds of the batch group."""

from __future__ import annotations

from wharfinger.api.columns import workloads as columns
from wharfinger.api.defaults import workloads as defaults
from wharfinger.api.defaults.walk import typed, with_status
from wharfinger.api.registry import Kind
from wharfinger.api.validation import jobs as rules
from wharfinger.api.validation.common import checked
from wharfinger.api.warnings import workloads as warnings

JOB = Kind(
    "batch", "Job", "jobs", pod_template="spec.template", categories=("all",), status=True,
    selectable=("status.successful",), default=typed(defaults.default_job),
    validate=checked("batch/v1", "Job", rules.job_faults), prepare_create=defaults.prepare_job,
    columns=columns.JOB_COLUMNS, warn=warnings.job_warnings, orphans=True,
    orphaning_warning="child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to "
    "remove them or set propagationPolicy=Orphan to suppress this warning",
)  # fmt: skip
CRON_JOB = Kind(
    "batch", "CronJob", "cronjobs", pod_template="spec.jobTemplate.spec.template", short_names=("cj",),
    categories=("all",), status=True, default=typed(defaults.default_cron_job),
    validate=checked("batch/v1", "CronJob", rules.cron_job_faults), columns=columns.CRON_JOB_COLUMNS,
    prepare_create=with_status(), warn=warnings.cron_job_warnings,
)  # fmt: skip

KINDS = (JOB, CRON_JOB)
