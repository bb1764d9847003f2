"""Columns of workloads, jobs, budgets and autoscalers."""

from __future__ import annotations

from collections.abc import Callable

from wharfinger.api.columns.cells import (
    AGE,
    NONE,
    UNSET,
    computed,
    has_condition,
    labels_text,
    selector_text,
    since,
    spec,
    status,
    template_columns,
)
from wharfinger.api.object_meta import controller_of
from wharfinger.api.registry import Column, Document
from wharfinger.api.times import BadTime, human_duration, parse_time


def _count(field: str) -> Callable[[Document], int]:
    return lambda document: status(document).get(field) or 0


def _template(document: Document) -> Document:
    return spec(document).get("template") or {}


def _selector(document: Document) -> str:
    return selector_text(spec(document).get("selector"))


def _ready(document: Document) -> str:
    return f"{status(document).get('readyReplicas') or 0}/{spec(document).get('replicas') or 0}"


_WIDE = template_columns(_template, _selector)

DEPLOYMENT_COLUMNS = (
    computed("Ready", _ready),
    computed("Up-to-date", _count("updatedReplicas")),
    computed("Available", _count("availableReplicas")),
    AGE,
    *_WIDE,
)
REPLICA_SET_COLUMNS = (
    Column("Desired", "spec.replicas", "integer"),
    computed("Current", _count("replicas"), type="integer"),
    computed("Ready", _count("readyReplicas"), type="integer"),
    AGE,
    *_WIDE,
)
DAEMON_SET_COLUMNS = (
    computed("Desired", _count("desiredNumberScheduled"), type="integer"),
    computed("Current", _count("currentNumberScheduled"), type="integer"),
    computed("Ready", _count("numberReady"), type="integer"),
    computed("Up-to-date", _count("updatedNumberScheduled"), type="integer"),
    computed("Available", _count("numberAvailable"), type="integer"),
    computed("Node Selector", lambda owner: labels_text(spec(_template(owner)).get("nodeSelector"))),
    AGE,
    *_WIDE,
)
STATEFUL_SET_COLUMNS = (computed("Ready", _ready), AGE, *template_columns(_template, None))


def _controller(document: Document) -> str:
    owner = controller_of(document)
    if owner is None:
        return NONE
    group = str(owner.get("apiVersion", "")).rpartition("/")[0]
    kind = str(owner.get("kind", "")).lower()
    return f"{kind}.{group}/{owner.get('name')}" if group else f"{kind}/{owner.get('name')}"


CONTROLLER_REVISION_COLUMNS = (
    computed("Controller", _controller),
    computed("Revision", lambda revision: str(revision.get("revision") or 0)),
    AGE,
)

_JOB_ENDS = (("Complete", "Complete"), ("Failed", "Failed"))
_JOB_STATES = (
    ("Suspended", "Suspended"),
    ("FailureTarget", "FailureTarget"),
    ("SuccessCriteriaMet", "SuccessCriteriaMet"),
)


def _job_status(job: Document) -> str:
    for kind, text in _JOB_ENDS:
        if has_condition(job, kind):
            return text
    if (job.get("metadata") or {}).get("deletionTimestamp"):
        return "Terminating"
    return next((text for kind, text in _JOB_STATES if has_condition(job, kind)), "Running")


def _completions(job: Document) -> str:
    done, wanted = status(job).get("succeeded") or 0, spec(job).get("completions")
    if wanted is not None:
        return f"{done}/{wanted}"
    parallel = spec(job).get("parallelism") or 0
    return f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"


def _duration(job: Document, now: float) -> str:
    start, end = status(job).get("startTime"), status(job).get("completionTime")
    if not start:
        return ""
    try:
        return human_duration((parse_time(end) if end else now) - parse_time(start))
    except BadTime:
        return ""


JOB_COLUMNS = (
    computed("Status", _job_status),
    computed("Completions", _completions),
    Column("Duration", cell=_duration),
    AGE,
    *_WIDE,
)


def _job_template(cron: Document) -> Document:
    return spec(spec(cron).get("jobTemplate") or {}).get("template") or {}


def _last_schedule(cron: Document, now: float) -> str:
    last = status(cron).get("lastScheduleTime")
    return since(last, now) if last else NONE


CRON_JOB_COLUMNS = (
    Column("Schedule", "spec.schedule"),
    computed("Timezone", lambda cron: spec(cron).get("timeZone") or NONE),
    computed("Suspend", lambda cron: "True" if spec(cron).get("suspend") else "False"),
    computed("Active", lambda cron: len(status(cron).get("active") or ()), type="integer"),
    Column("Last Schedule", cell=_last_schedule),
    AGE,
    *template_columns(
        _job_template, lambda cron: selector_text(spec(spec(cron).get("jobTemplate") or {}).get("selector"))
    ),
)


def _bound(field: str) -> Callable[[Document], str]:
    def of(budget: Document) -> str:
        value = spec(budget).get(field)
        return "N/A" if value is None else str(value)

    return of


BUDGET_COLUMNS = (
    computed("Min Available", _bound("minAvailable")),
    computed("Max Unavailable", _bound("maxUnavailable")),
    computed("Allowed Disruptions", _count("disruptionsAllowed"), type="integer"),
    AGE,
)
PRIORITY_CLASS_COLUMNS = (
    computed("Value", lambda document: document.get("value") or 0, type="integer"),
    computed("Global-Default", lambda document: bool(document.get("globalDefault")), type="boolean"),
    AGE,
    Column("PreemptionPolicy", "preemptionPolicy"),
)


def _reference(scaler: Document) -> str:
    target = spec(scaler).get("scaleTargetRef") or {}
    return f"{target.get('kind', '')}/{target.get('name', '')}"


def _metrics(scaler: Document) -> str:
    """Current values and targets of the first two metrics."""
    specs, current = spec(scaler).get("metrics") or [], status(scaler).get("currentMetrics") or []
    if not specs:
        return NONE
    texts = [_metric(metric, current[index] if index < len(current) else {}) for index, metric in enumerate(specs)]
    shown = ", ".join(texts[:_SHOWN_METRICS])
    return f"{shown} + {len(texts) - _SHOWN_METRICS} more..." if len(texts) > _SHOWN_METRICS else shown


_SHOWN_METRICS = 2


def _metric(metric: Document, seen: Document) -> str:
    type = metric.get("type") or ""
    field = type[:1].lower() + type[1:]
    if type not in ("External", "Pods", "Object", "Resource", "ContainerResource"):
        return "<unknown type>"
    source = metric.get(field) or {}
    target, current = source.get("target") or {}, (seen.get(field) or {}).get("current") or {}
    if type in ("Resource", "ContainerResource"):
        name = source.get("name")
        if target.get("averageValue") is not None:
            return f"{name}: {current.get('averageValue', UNKNOWN_METRIC)}/{target['averageValue']}"
        used, wanted = current.get("averageUtilization"), target.get("averageUtilization")
        shown = UNKNOWN_METRIC if used is None else f"{used}%"
        return f"{name}: {shown}/{'<auto>' if wanted is None else f'{wanted}%'}"
    if type == "Pods":
        return f"{current.get('averageValue', UNKNOWN_METRIC)}/{target.get('averageValue', '0')}"
    if target.get("averageValue") is not None:
        return f"{current.get('averageValue', UNKNOWN_METRIC)}/{target['averageValue']} (avg)"
    return f"{current.get('value', UNKNOWN_METRIC)}/{target.get('value', '0')}"


UNKNOWN_METRIC = "<unknown>"

AUTOSCALER_COLUMNS = (
    computed("Reference", _reference),
    computed("Targets", _metrics),
    computed("MinPods", lambda scaler: str(spec(scaler).get("minReplicas") or UNSET)),
    computed("MaxPods", lambda scaler: str(spec(scaler).get("maxReplicas") or 0)),
    computed("Replicas", lambda scaler: str(status(scaler).get("currentReplicas") or 0)),
    AGE,
)
RUNTIME_CLASS_COLUMNS = (Column("Handler", "handler"), AGE)
