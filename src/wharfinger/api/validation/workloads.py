"""Validation of workloads and disruption budgets, after pkg/apis/{apps,policy,scheduling}/validation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from wharfinger.api.fields import FieldError, forbidden, immutable, invalid, not_supported, required
from wharfinger.api.names import dns_subdomain
from wharfinger.api.registry import Document
from wharfinger.api.selectors import BadSelector, LabelSelector, compile_label_selector, matches
from wharfinger.api.validation.common import int_or_percent_faults, not_negative, one_of, percent_of
from wharfinger.api.validation.core import claim_spec_faults
from wharfinger.api.validation.pods import template_faults
from wharfinger.api.validation.selectors import each, label_selector_faults

HIGHEST_USER_PRIORITY = 1_000_000_000
SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def deployment_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    spec = document.get("spec") or {}
    yield from not_negative(spec.get("replicas"), "spec.replicas")
    yield from _selector_and_template_faults(spec, "deployment", "ReplicaSet")
    yield from _deployment_strategy_faults(spec.get("strategy") or {})
    for name in ("minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"):
        yield from not_negative(spec.get(name), f"spec.{name}")
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None and deadline <= (spec.get("minReadySeconds") or 0):
        yield invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds")
    yield from _same_selector(spec, old)


def replica_set_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    spec = document.get("spec") or {}
    for name in ("replicas", "minReadySeconds"):
        yield from not_negative(spec.get(name), f"spec.{name}")
    yield from _selector_and_template_faults(spec, "deployment", "ReplicaSet")
    yield from _same_selector(spec, old)


def daemon_set_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    spec = document.get("spec") or {}
    yield from _selector_and_template_faults(spec, "daemonset", "DaemonSet")
    for name in ("minReadySeconds", "revisionHistoryLimit"):
        yield from not_negative(spec.get(name), f"spec.{name}")
    strategy = spec.get("updateStrategy") or {}
    kind = strategy.get("type")
    if kind not in ("RollingUpdate", "OnDelete"):
        yield not_supported("spec.updateStrategy.type", kind, ("RollingUpdate", "OnDelete"))
    elif kind == "RollingUpdate":
        yield from _daemon_rolling_faults(strategy.get("rollingUpdate") or {})
    yield from _same_selector(spec, old)


def _daemon_rolling_faults(rolling: Mapping[str, Any]) -> Iterator[FieldError]:
    path = "spec.updateStrategy.rollingUpdate"
    unavailable, surge = rolling.get("maxUnavailable"), rolling.get("maxSurge")
    for name, value in (("maxUnavailable", unavailable), ("maxSurge", surge)):
        yield from int_or_percent_faults(value, f"{path}.{name}")
        yield from _at_most_all(value, f"{path}.{name}")
    if not _is_zero(unavailable) and not _is_zero(surge):
        yield invalid(f"{path}.maxSurge", surge, "may not be set when maxUnavailable is non-zero")
    elif _is_zero(unavailable) and _is_zero(surge):
        yield required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0")


def stateful_set_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    spec = document.get("spec") or {}
    policy = spec.get("podManagementPolicy")
    if policy not in ("OrderedReady", "Parallel"):
        yield invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'")
    strategy = spec.get("updateStrategy") or {}
    rolling = strategy.get("rollingUpdate")
    if strategy.get("type") not in ("RollingUpdate", "OnDelete"):
        yield invalid("spec.updateStrategy", strategy, "must be 'RollingUpdate' or 'OnDelete'")
    elif rolling is not None and strategy["type"] == "OnDelete":
        detail = "only allowed for updateStrategy 'RollingUpdate'"
        yield invalid("spec.updateStrategy.rollingUpdate", rolling, detail)
    elif rolling is not None:
        yield from not_negative(rolling.get("partition"), "spec.updateStrategy.rollingUpdate.partition")
        unavailable = rolling.get("maxUnavailable")
        yield from int_or_percent_faults(unavailable, "spec.updateStrategy.rollingUpdate.maxUnavailable")
    for name in ("replicas", "minReadySeconds"):
        yield from not_negative(spec.get(name), f"spec.{name}")
    yield from not_negative((spec.get("ordinals") or {}).get("start"), "spec.ordinals.start")
    for index, claim in each(spec, "volumeClaimTemplates"):
        yield from claim_spec_faults(claim.get("spec") or {}, f"spec.volumeClaimTemplates[{index}].spec")
    retention = spec.get("persistentVolumeClaimRetentionPolicy") or {}
    for name in ("whenDeleted", "whenScaled"):
        path = f"spec.persistentVolumeClaimRetentionPolicy.{name}"
        yield from one_of(retention.get(name), ("Retain", "Delete"), path, empty=True)
    yield from _selector_and_template_faults(_with_claims(spec), "statefulset", "StatefulSet")
    if old is not None:
        before = old.get("spec") or {}
        mutable = (
            "replicas",
            "ordinals",
            "template",
            "updateStrategy",
            "revisionHistoryLimit",
            "persistentVolumeClaimRetentionPolicy",
            "minReadySeconds",
        )
        if _without(spec, mutable) != _without(before, mutable):
            detail = (
                "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
                "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
            )
            yield forbidden("spec", detail)


def _with_claims(spec: Document) -> Document:
    """The pod spec with the volumes of the claim templates, which containers may mount."""
    names = [claim["metadata"]["name"] for _, claim in each(spec, "volumeClaimTemplates") if _is_named(claim)]
    template = spec.get("template") or {}
    pod = template.get("spec")
    if not names or not isinstance(pod, dict):
        return spec
    volumes = [volume for _, volume in each(pod, "volumes") if volume.get("name") not in names]
    volumes += [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]
    return {**spec, "template": {**template, "spec": {**pod, "volumes": volumes}}}


def _is_named(claim: Mapping[str, Any]) -> bool:
    return bool((claim.get("metadata") or {}).get("name"))


def _without(spec: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in spec.items() if name not in names and value is not None}


def replication_controller_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    spec = document.get("spec") or {}
    for name in ("replicas", "minReadySeconds"):
        yield from not_negative(spec.get(name), f"spec.{name}")
    selector = spec.get("selector") or {}
    if not selector:
        yield required("spec.selector")
    template = spec.get("template")
    if template is None:
        yield required("spec.template")
        return
    labels = (template.get("metadata") or {}).get("labels") or {}
    if any(labels.get(key) != value for key, value in selector.items()):
        yield invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
    yield from _template_for_controller_faults(template, "ReplicationController")


def _selector_and_template_faults(spec: Mapping[str, Any], word: str, owner: str) -> Iterator[FieldError]:
    selector, template = spec.get("selector"), spec.get("template") or {}
    labels = (template.get("metadata") or {}).get("labels")
    if selector is None:
        if owner != "DaemonSet":
            yield required("spec.selector")
        # An absent selector matches nothing; Kubernetes reports both faults.
        yield invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
    else:
        yield from label_selector_faults(selector, "spec.selector")
        if not selector.get("matchLabels") and not selector.get("matchExpressions"):
            yield invalid("spec.selector", selector, f"empty selector is invalid for {word}")
        elif not selects(selector, template):
            yield invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
    yield from _template_for_controller_faults(template, owner)


def _template_for_controller_faults(template: Mapping[str, Any], owner: str) -> Iterator[FieldError]:
    yield from template_faults(template, "spec.template")
    inner = template.get("spec") or {}
    policy = inner.get("restartPolicy")
    if policy in ("OnFailure", "Never"):
        yield not_supported("spec.template.spec.restartPolicy", policy, ("Always",))
    if inner.get("activeDeadlineSeconds") is not None:
        detail = f"activeDeadlineSeconds in {owner} is not Supported"
        yield forbidden("spec.template.spec.activeDeadlineSeconds", detail)


def selects(selector: Mapping[str, Any], template: Mapping[str, Any]) -> bool:
    """Whether the selector matches the labels of the template; true if it cannot be compiled, which is reported separately."""
    labels = (template.get("metadata") or {}).get("labels") or {}
    try:
        compiled = compile_label_selector(msgspec.convert(_plain(selector), LabelSelector))
    except (BadSelector, msgspec.ValidationError):
        return True
    return matches(compiled, labels)


def _plain(selector: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in selector.items() if value is not None}


def _same_selector(spec: Mapping[str, Any], old: Document | None) -> Iterator[FieldError]:
    if old is not None and spec.get("selector") != (old.get("spec") or {}).get("selector"):
        yield immutable("spec.selector", spec.get("selector"))


def _deployment_strategy_faults(strategy: Mapping[str, Any]) -> Iterator[FieldError]:
    path = "spec.strategy"
    rolling = strategy.get("rollingUpdate")
    kind = strategy.get("type")
    if kind == "Recreate":
        if rolling is not None:
            yield forbidden(f"{path}.rollingUpdate", "may not be specified when strategy `type` is 'Recreate'")
    elif kind == "RollingUpdate":
        unavailable, surge = (rolling or {}).get("maxUnavailable"), (rolling or {}).get("maxSurge")
        here = f"{path}.rollingUpdate"
        yield from int_or_percent_faults(unavailable, f"{here}.maxUnavailable")
        yield from int_or_percent_faults(surge, f"{here}.maxSurge")
        if _is_zero(unavailable) and _is_zero(surge):
            yield invalid(f"{here}.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0")
        yield from _at_most_all(unavailable, f"{here}.maxUnavailable")
    else:
        yield not_supported(path, strategy, ("Recreate", "RollingUpdate"))


def _is_zero(value: int | str | None) -> bool:
    percent = percent_of(value)
    return (percent if percent is not None else value if isinstance(value, int) else 0) == 0


def _at_most_all(value: int | str | None, path: str) -> Iterator[FieldError]:
    percent = percent_of(value)
    if percent is not None and percent > 100:
        yield invalid(path, value, "must not be greater than 100%")


def budget_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    spec = document.get("spec") or {}
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    if least is not None and most is not None:
        yield invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set")
    for name, value in (("minAvailable", least), ("maxUnavailable", most)):
        yield from int_or_percent_faults(value, f"spec.{name}")
        yield from _at_most_all(value, f"spec.{name}")
    yield from label_selector_faults(spec.get("selector"), "spec.selector")
    policy = spec.get("unhealthyPodEvictionPolicy")
    choices = ("AlwaysAllow", "IfHealthyBudget")
    yield from one_of(policy, choices, "spec.unhealthyPodEvictionPolicy", empty=True)


def priority_class_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    name = (document.get("metadata") or {}).get("name") or ""
    value = document.get("value") or 0
    if name.startswith("system-"):
        known = SYSTEM_CLASSES.get(name)
        error = ""
        if known is None:
            error = f"{name} is not a known system priority class"
        elif known != value:
            error = f"value of {name} PriorityClass must be {known}"
        elif document.get("globalDefault"):
            error = f"globalDefault of {name} PriorityClass must be false"
        if error:
            detail = f"priority class names with 'system-' prefix are reserved for system use only. error: {error}"
            yield forbidden("metadata.name", detail)
    elif value > HIGHEST_USER_PRIORITY:
        detail = f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"
        yield forbidden("value", detail)
    policy = document.get("preemptionPolicy")
    yield from one_of(policy, ("PreemptLowerPriority", "Never"), "preemptionPolicy", empty=True)
    if old is not None:
        if value != (old.get("value") or 0):
            yield forbidden("value", "may not be changed in an update.")
        if policy != old.get("preemptionPolicy"):
            yield immutable("preemptionPolicy", policy)


def controller_revision_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    yield from not_negative(document.get("revision"), "revision")
    if old is not None and document.get("data") != old.get("data"):
        yield immutable("data", document.get("data"))


def runtime_class_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    handler = document.get("handler") or ""
    for fault in dns_subdomain(handler):
        yield invalid("handler", handler, fault)
    if old is not None and handler != old.get("handler"):
        yield immutable("handler", handler)
