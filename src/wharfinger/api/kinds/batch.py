"""Kinds of the batch group."""

from __future__ import annotations

from wharfinger.api.registry import Kind

JOBS = Kind("batch", "Job", "jobs", categories=("all",), status=True, selectable=("status.successful",))
CRON_JOBS = Kind("batch", "CronJob", "cronjobs", short_names=("cj",), categories=("all",), status=True)

KINDS = (JOBS, CRON_JOBS)
