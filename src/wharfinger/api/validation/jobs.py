"""Validation of jobs and cron jobs, after pkg/apis/batch/validation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from wharfinger.api.conditions import is_true
from wharfinger.api.cron import BadSchedule, parse_schedule
from wharfinger.api.fields import (
    FieldError,
    duplicate,
    immutable,
    invalid,
    invalid_whole,
    not_supported,
    required,
    show,
    too_long,
    too_many,
)
from wharfinger.api.names import dns_label, dns_subdomain, qualified_name
from wharfinger.api.numbers import parse_int64
from wharfinger.api.registry import Document
from wharfinger.api.validation.common import not_negative, one_of
from wharfinger.api.validation.pods import template_faults
from wharfinger.api.validation.selectors import each, label_selector_faults
from wharfinger.api.validation.workloads import selects

_COUNTS = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)
_MANY = 100_000  # completions above which failed indexes must be limited
_FEW = 10_000
_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_PATH = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"


def job_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    spec, metadata = document.get("spec") or {}, document.get("metadata") or {}
    yield from _generated_faults(spec, metadata)
    yield from job_spec_faults(spec, "spec")
    selector = spec.get("selector")
    if selector is None:
        yield required("spec.selector")
        yield invalid(
            "spec.template.metadata.labels", _labels(spec) or None, "`selector` does not match template `labels`"
        )
    else:
        yield from label_selector_faults(selector, "spec.selector")
        if not selects(selector, spec.get("template") or {}):
            yield invalid("spec.template.metadata.labels", _labels(spec), "`selector` does not match template `labels`")
    completions = spec.get("completions") or 0
    if spec.get("completionMode") == "Indexed" and completions > 0:
        hostname = f"{metadata.get('name') or ''}-{completions - 1}"
        if dns_label(hostname):
            detail = f"will not able to create pod with invalid DNS label: {hostname}"
            yield invalid("metadata.name", metadata.get("name") or "", detail)
    if old is not None:
        yield from _update_faults(spec, old)


def _labels(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    labels: Mapping[str, Any] = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    return labels


def _generated_faults(spec: Mapping[str, Any], metadata: Mapping[str, Any]) -> Iterator[FieldError]:
    """If the server generates the selector, labels of the template must not contradict it."""
    if spec.get("manualSelector") or spec.get("selector") is None:
        return
    uid, name = metadata.get("uid") or "", metadata.get("name") or ""
    expected = {
        "controller-uid": uid,
        "job-name": name,
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": name,
    }
    if not uid:
        yield required("metadata.uid")
    labels = _labels(spec)
    for key, value in expected.items():
        path = f"spec.template.metadata.labels[{key}]"
        if key not in labels:
            yield required(path, f"must be '{value}'")
        elif labels[key] != value:
            yield invalid(path, labels, f"must be '{value}'")
    if not selects(spec["selector"], {"metadata": {"labels": expected}}):
        yield invalid("spec.selector", spec["selector"], "`selector` not auto-generated")


def job_spec_faults(spec: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    for name in _COUNTS:
        yield from not_negative(spec.get(name), f"{path}.{name}")
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        yield required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified")
    if spec.get("managedBy") is not None:
        yield from _domain_path_faults(spec["managedBy"], f"{path}.managedBy")
        if len(spec["managedBy"]) > 63:
            yield too_long(f"{path}.managedBy", 63)
    mode = spec.get("completionMode") or "NonIndexed"
    if mode not in ("NonIndexed", "Indexed"):
        yield not_supported(f"{path}.completionMode", mode, ("NonIndexed", "Indexed"))
    if mode == "Indexed":
        yield from _indexed_faults(spec, path)
    elif mode == "NonIndexed":
        for name in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if spec.get(name) is not None:
                yield invalid(f"{path}.{name}", spec[name], "requires indexed completion mode")
    if spec.get("podFailurePolicy") is not None:
        yield from _failure_policy_faults(spec, f"{path}.podFailurePolicy")
    if spec.get("successPolicy") is not None:
        if mode != "Indexed":
            yield invalid(f"{path}.successPolicy", spec["successPolicy"], "requires indexed completion mode")
        else:
            yield from _success_policy_faults(spec, f"{path}.successPolicy")
    choices = ("Failed",) if spec.get("podFailurePolicy") is not None else ("Failed", "TerminatingOrFailed")
    yield from one_of(spec.get("podReplacementPolicy"), choices, f"{path}.podReplacementPolicy", empty=True)
    template = spec.get("template") or {}
    yield from template_faults(template, f"{path}.template")
    yield from _restart_faults(spec, (template.get("spec") or {}).get("restartPolicy"), f"{path}.template.spec")


def _restart_faults(spec: Mapping[str, Any], restart: str | None, path: str) -> Iterator[FieldError]:
    here = f"{path}.restartPolicy"
    if restart in (None, "", "Always"):
        yield required(here, 'valid values: "OnFailure", "Never"')
    elif restart not in ("OnFailure", "Never"):
        yield not_supported(here, restart, ("OnFailure", "Never"))
    elif restart == "OnFailure" and spec.get("podFailurePolicy") is not None:
        yield invalid(here, restart, 'only "Never" is supported when podFailurePolicy is specified')


def _domain_path_faults(text: str, path: str) -> Iterator[FieldError]:
    host, slash, rest = text.partition("/")
    if not text:
        yield required(path)
    elif not slash or not host or not rest:
        yield invalid(path, text, 'must be a domain-prefixed path (such as "acme.io/foo")')
    else:
        for fault in dns_subdomain(host):
            yield invalid(path, host, fault)
        if not re.fullmatch(_PATH, rest):
            yield invalid(path, rest, f"Invalid path (regex used for validation is '{_PATH}')")


def _indexed_faults(spec: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    completions, parallelism = spec.get("completions"), spec.get("parallelism") or 0
    most_failed = spec.get("maxFailedIndexes")
    if completions is None:
        yield required(f"{path}.completions", "when completion mode is Indexed")
    if parallelism > _MANY:
        detail = f"must be less than or equal to {_MANY} when completion mode is Indexed"
        yield invalid(f"{path}.parallelism", parallelism, detail)
    if most_failed is not None:
        if completions is not None and most_failed > completions:
            yield invalid(f"{path}.maxFailedIndexes", most_failed, "must be less than or equal to completions")
        if most_failed > _MANY:
            yield invalid(f"{path}.maxFailedIndexes", most_failed, f"must be less than or equal to {_MANY}")
    if (completions or 0) <= _MANY or spec.get("backoffLimitPerIndex") is None:
        return
    above = f"when completions are above {_MANY} and used with backoff limit per index"
    if most_failed is None:
        yield required(f"{path}.maxFailedIndexes", f"must be specified when completions is above {_MANY}")
    if parallelism > _FEW:
        yield invalid(f"{path}.parallelism", parallelism, f"must be less than or equal to {_FEW} {above}")
    if most_failed is not None and most_failed > _FEW:
        yield invalid(f"{path}.maxFailedIndexes", most_failed, f"must be less than or equal to {_FEW} {above}")


# Policies


def _failure_policy_faults(spec: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    rules = spec["podFailurePolicy"].get("rules") or ()
    if len(rules) > 20:
        yield too_many(f"{path}.rules", len(rules), 20)
    pod = (spec.get("template") or {}).get("spec") or {}
    names = {c.get("name") for kind in ("containers", "initContainers") for c in pod.get(kind) or ()}
    for index, rule in enumerate(rules):
        here = f"{path}.rules[{index}]"
        yield from _action_faults(rule.get("action") or "", spec, f"{here}.action")
        codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions") or ()
        if codes is not None:
            yield from _exit_code_faults(codes, f"{here}.onExitCodes", names)
        if conditions:
            yield from _pattern_faults(conditions, f"{here}.onPodConditions")
        if codes is not None and conditions:
            yield invalid_whole(here, "specifying both OnExitCodes and OnPodConditions is not supported")
        if codes is None and not conditions:
            yield invalid_whole(here, "specifying one of OnExitCodes and OnPodConditions is required")


def _choices(values: Sequence[str]) -> str:
    return f"valid values: [{' '.join(show(value) for value in values)}]"


def _action_faults(action: str, spec: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    if not action:
        yield required(path, _choices(_ACTIONS))
    elif action == "FailIndex":
        if spec.get("backoffLimitPerIndex") is None:
            yield invalid(path, action, "requires the backoffLimitPerIndex to be set")
    elif action not in _ACTIONS:
        yield not_supported(path, action, _ACTIONS)


def _pattern_faults(patterns: Sequence[Mapping[str, Any]], path: str) -> Iterator[FieldError]:
    if len(patterns) > 20:
        yield too_many(path, len(patterns), 20)
    statuses = ("False", "True", "Unknown")
    for index, pattern in enumerate(patterns):
        here = f"{path}[{index}]"
        for fault in qualified_name(pattern.get("type") or ""):
            yield invalid(f"{here}.type", pattern.get("type") or "", fault)
        status = pattern.get("status") or ""
        if not status:
            yield required(f"{here}.status", _choices(statuses))
        elif status not in statuses:
            yield not_supported(f"{here}.status", status, statuses)


def _exit_code_faults(codes: Mapping[str, Any], path: str, names: set[Any]) -> Iterator[FieldError]:
    operator, operators = codes.get("operator") or "", ("In", "NotIn")
    if not operator:
        yield required(f"{path}.operator", _choices(operators))
    elif operator not in operators:
        yield not_supported(f"{path}.operator", operator, operators)
    name = codes.get("containerName")
    if name is not None and name not in names:
        detail = "must be one of the container or initContainer names in the pod template"
        yield invalid(f"{path}.containerName", name, detail)
    values = codes.get("values") or []
    if not values:
        yield invalid(f"{path}.values", codes.get("values"), "at least one value is required")
    elif len(values) > 255:
        yield too_many(f"{path}.values", len(values), 255)
    seen: set[int] = set()
    for index, value in enumerate(values):
        if operator == "In" and value == 0:
            yield invalid(f"{path}.values[{index}]", value, "must not be 0 for the In operator")
        if value in seen:
            yield duplicate(f"{path}.values[{index}]", value)
        seen.add(value)
    if list(values) != sorted(values):
        yield invalid(f"{path}.values", values, "must be ordered")


def _success_policy_faults(spec: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    rules, completions = spec["successPolicy"].get("rules") or (), spec.get("completions") or 0
    if not rules:
        yield required(f"{path}.rules", "at least one rules must be specified when the successPolicy is specified")
    if len(rules) > 20:
        yield too_many(f"{path}.rules", len(rules), 20)
    for index, rule in each(spec["successPolicy"], "rules"):
        here = f"{path}.rules[{index}]"
        text, count, total = rule.get("succeededIndexes"), rule.get("succeededCount"), 0
        if text is None and count is None:
            yield required(here, "at least one of succeededCount or succeededIndexes must be specified")
        if text is not None:
            if len(text) > 64 * 1024:
                yield too_long(f"{here}.succeededIndexes", 64 * 1024)
            try:
                total = _count_indexes(text, completions)
            except ValueError as error:
                yield invalid(f"{here}.succeededIndexes", text, f"error parsing succeededIndexes: {error}")
        if count is not None:
            yield from not_negative(count, f"{here}.succeededCount")
            most = "must be less than or equal to"
            if count > completions:
                detail = f"{most} {completions} (the number of specified completions)"
                yield invalid(f"{here}.succeededCount", count, detail)
            if text is not None and count > total:
                detail = f"{most} {total} (the number of indexes in the specified succeededIndexes field)"
                yield invalid(f"{here}.succeededCount", count, detail)


def _count_indexes(text: str, completions: int) -> int:
    """The number of indexes in a list such as `0,2-4`. Raises ValueError with the fault."""
    total, previous = 0, -1
    for part in text.split(",") if text else ():
        limits = part.split("-")
        if len(limits) > 2:
            detail = "violates the requirement that an index interval can have at most two parts separated by '-'"
            raise ValueError(f"the fragment {show(part)} {detail}")
        numbers = []
        for limit in limits:
            number = parse_int64(limit) if not limit.startswith("-") else None
            if number is None:
                raise ValueError(f"cannot convert string to integer for index: {show(limit)}")
            if number >= completions:
                raise ValueError(f"too large index: {show(limit)}")
            numbers.append(number)
        for number in numbers:
            if previous >= number:
                raise ValueError(f"non-increasing order, previous: {previous}, current: {number}")
            previous = number
        total += numbers[-1] - numbers[0] + 1
    return total


# Updates

_FIXED = ("completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy")
_DIRECTIVES = ("nodeSelector", "tolerations", "schedulingGates")


def _update_faults(spec: Mapping[str, Any], old: Document) -> Iterator[FieldError]:
    before = old.get("spec") or {}
    completions = spec.get("completions")
    if completions != before.get("completions"):
        if spec.get("completionMode") != "Indexed":
            yield immutable("spec.completions", completions)
        elif completions is not None and completions != spec.get("parallelism"):
            yield invalid("spec.completions", completions, "can only be modified in tandem with spec.parallelism")
    if spec.get("selector") != before.get("selector"):
        yield immutable("spec.selector", spec.get("selector"))
    adjustable = _template_is_adjustable(old)
    if _template(spec, adjustable) != _template(before, adjustable):
        if adjustable:
            yield immutable("spec.template.spec", (spec.get("template") or {}).get("spec"))
        else:
            yield immutable("spec.template", spec.get("template"))
    for name in _FIXED:
        if spec.get(name) != before.get(name):
            yield immutable(f"spec.{name}", spec.get(name))


def _template_is_adjustable(old: Document) -> bool:
    """Scheduling directives and resources may change while a job is suspended and has no pods."""
    status = old.get("status") or {}
    suspended = is_true(status.get("conditions") or (), "Suspended")
    waits = not status.get("startTime") or suspended
    return (old.get("spec") or {}).get("suspend") is True and waits and not status.get("active")


def _template(spec: Mapping[str, Any], adjustable: bool) -> Any:
    """The immutable part of the template."""
    template = spec.get("template") or {}
    if not adjustable:
        return template
    inner = {name: value for name, value in (template.get("spec") or {}).items() if name not in _DIRECTIVES}
    affinity = {k: v for k, v in (inner.pop("affinity", None) or {}).items() if k != "nodeAffinity"}
    for kind in ("containers", "initContainers"):
        if inner.get(kind):
            inner[kind] = [{k: v for k, v in one.items() if k != "resources"} for one in inner[kind]]
    return {"spec": inner, "affinity": affinity}


# Cron jobs


def cron_job_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    spec = document.get("spec") or {}
    before = (old.get("spec") or {}) if old is not None else None
    yield from _schedule_faults(spec, before)
    yield from not_negative(spec.get("startingDeadlineSeconds"), "spec.startingDeadlineSeconds")
    zone = spec.get("timeZone")
    if zone is not None and (before is None or before.get("timeZone") != zone):
        yield from _zone_faults(zone)
    yield from one_of(spec.get("concurrencyPolicy"), ("Allow", "Forbid", "Replace"), "spec.concurrencyPolicy")
    template = (spec.get("jobTemplate") or {}).get("spec") or {}
    yield from job_spec_faults(template, "spec.jobTemplate.spec")
    if template.get("selector") is not None:
        yield invalid("spec.jobTemplate.spec.selector", template["selector"], "`selector` will be auto-generated")
    if template.get("manualSelector"):
        yield not_supported("spec.jobTemplate.spec.manualSelector", True, ("false", "nil"))
    for name in ("successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
        yield from not_negative(spec.get(name), f"spec.{name}")
    name = (document.get("metadata") or {}).get("name") or ""
    if old is None and len(name) > 52:
        yield invalid("metadata.name", name, "must be no more than 52 characters")


def _schedule_faults(spec: Mapping[str, Any], before: Mapping[str, Any] | None) -> Iterator[FieldError]:
    path, schedule = "spec.schedule", spec.get("schedule") or ""
    if not schedule:
        yield required(path)
        return
    try:
        parse_schedule(schedule)
    except BadSchedule as error:
        yield invalid(path, schedule, str(error))
    if "TZ" not in schedule:
        return
    if "TZ" not in ((before or {}).get("schedule") or ""):
        yield invalid(path, schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead")
    elif spec.get("timeZone") is not None:
        yield invalid(path, schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule")


def _zone_faults(zone: str) -> Iterator[FieldError]:
    path = "spec.timeZone"
    if not zone:
        yield invalid(path, zone, "timeZone must be nil or non-empty string")
        return
    for part in zone.split("/"):
        if part in (".", "..") or not re.fullmatch(r"[A-Za-z._0-9+][A-Za-z.\-_0-9+]{0,13}", part):
            yield invalid(path, zone, f"unknown time zone {zone}")
            return
    if zone.lower() == "local":
        detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        yield invalid(path, zone, detail)
    try:
        parse_schedule("@hourly", zone)
    except BadSchedule as error:
        yield invalid(path, zone, str(error))
