"""Validation of HorizontalPodAutoscalers."""

from __future__ import annotations

from collections.abc import Iterator

from wharfinger.api.fields import FieldError, forbidden, invalid, not_supported, required
from wharfinger.api.names import dns_label, path_segment
from wharfinger.api.quantity import parse_nano
from wharfinger.api.registry import Document
from wharfinger.api.validation.common import not_negative
from wharfinger.api.validation.resources import container_resource_name_faults
from wharfinger.api.validation.selectors import each

_MAX_PERIOD, _MAX_WINDOW = 1800, 3600
_SOURCES = ("ContainerResource", "External", "Object", "Pods", "Resource")
_PRESENT = ("object", "external", "pods", "resource", "containerResource")  # upstream's order
_TARGET_TYPES = ("Utilization", "Value", "AverageValue")


def autoscaler_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    spec, before = document.get("spec") or {}, (old or {}).get("spec") or {}
    least, most = spec.get("minReplicas"), spec.get("maxReplicas") or 0
    bound = 0 if old is not None and before.get("minReplicas") == 0 else 1
    if least is not None and least < bound:
        yield invalid("spec.minReplicas", least, f"must be greater than or equal to {bound}")
    if most == 0:
        yield required("spec.maxReplicas", "must be set and greater than 0")
    elif most < 0:
        yield invalid("spec.maxReplicas", most, "must be greater than or equal to 1")
    if least is not None and most < least:
        yield invalid("spec.maxReplicas", most, "must be greater than or equal to `minReplicas`")
    target, old_target = spec.get("scaleTargetRef") or {}, before.get("scaleTargetRef") or {}
    same = old is not None and all(target.get(key) == old_target.get(key) for key in ("apiVersion", "kind"))
    core = target.get("kind") == "ReplicationController"
    yield from _reference_faults(target, "spec.scaleTargetRef", check_version=not same, core_group=core)
    yield from _metrics_faults(spec, before)
    behavior = spec.get("behavior") or {}
    for name in ("scaleUp", "scaleDown"):
        if behavior.get(name) is not None:
            yield from _rules_faults(behavior[name], f"spec.behavior.{name}")


def autoscaler_status_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    status = document.get("status") or {}
    for name in ("currentReplicas", "desiredReplicas"):
        yield from not_negative(status.get(name), f"status.{name}")


def _reference_faults(
    reference: Document, path: str, *, check_version: bool = True, core_group: bool = False
) -> Iterator[FieldError]:
    for name in ("kind", "name"):
        value = reference.get(name) or ""
        if not value:
            yield required(f"{path}.{name}")
        for fault in path_segment(value):
            yield invalid(f"{path}.{name}", value, fault)
    if check_version and (fault := _version_fault(reference.get("apiVersion") or "", core_group)):
        yield invalid(f"{path}.apiVersion", reference.get("apiVersion") or "", fault)


def _version_fault(api_version: str, core_group: bool) -> str:
    if api_version.count("/") > 1:
        return f"unexpected GroupVersion string: {api_version}"
    group = api_version.partition("/")[0] if "/" in api_version else ""
    return "" if group or core_group else "apiVersion must specify API group"


def _metrics_faults(spec: Document, before: Document) -> Iterator[FieldError]:
    old_objects = [metric.get("object") for metric in before.get("metrics") or () if metric.get("type") == "Object"]
    tolerated = any(
        _version_fault((found.get("describedObject") or {}).get("apiVersion") or "", True)
        for found in old_objects
        if found
    )
    types = set()
    for index, metric in each(spec, "metrics"):
        types.add(metric.get("type"))
        yield from _metric_faults(metric, f"spec.metrics[{index}]", check_version=not tolerated)
    if spec.get("minReplicas") == 0 and not types & {"Object", "External"}:
        text = "must specify at least one Object or External metric to support scaling to zero replicas"
        yield forbidden("spec.metrics", text)


def _metric_faults(metric: Document, path: str, *, check_version: bool) -> Iterator[FieldError]:
    type = metric.get("type") or ""
    if not type:
        yield required(f"{path}.type", "must specify a metric source type")
    if type not in _SOURCES:
        yield not_supported(f"{path}.type", type, _SOURCES)
    present = [name for name in _PRESENT if metric.get(name) is not None]
    if present:
        yield from _source_faults(present[0], metric[present[0]], f"{path}.{present[0]}", check_version)
    expected = type[:1].lower() + type[1:]
    if type not in _SOURCES:
        yield not_supported(f"{path}.type", type, _SOURCES)
    elif metric.get(expected) is None:
        yield required(f"{path}.{expected}", "must populate information for the given metric source")
    if len(present) != 1:
        for name in present:
            if name != expected:
                yield forbidden(f"{path}.{name}", "must populate the given metric source only")


def _source_faults(name: str, source: Document, path: str, check_version: bool) -> Iterator[FieldError]:
    target = source.get("target") or {}
    value, average = target.get("value"), target.get("averageValue")
    utilization = target.get("averageUtilization")
    if name in ("object", "external", "pods"):
        if name == "object":
            described = source.get("describedObject") or {}
            yield from _reference_faults(
                described, f"{path}.describedObject", check_version=check_version, core_group=True
            )
        metric = (source.get("metric") or {}).get("name") or ""
        if not metric:
            yield required(f"{path}.metric.name", "must specify a metric name")
        for fault in path_segment(metric):
            yield invalid(f"{path}.metric.name", metric, fault)
        yield from _target_faults(target, f"{path}.target")
        if name == "pods":
            if average is None:
                yield required(f"{path}.target.averageValue", "must specify a positive target averageValue")
        elif value is None and average is None:
            text = {
                "object": "must set either a target value or averageValue",
                "external": "must set either a target value for metric or a per-pod target",
            }[name]
            yield required(f"{path}.target.averageValue", text)
        if name == "external" and value is not None and average is not None:
            text = "may not set both a target value for metric and a per-pod target"
            yield forbidden(f"{path}.target.value", text)
        return
    resource = source.get("name") or ""
    if not resource:
        yield required(f"{path}.name", "must specify a resource name")
    elif name == "containerResource":
        yield from container_resource_name_faults(resource, f"{path}.name")
    if name == "containerResource":
        container = source.get("container") or ""
        if not container:
            yield required(f"{path}.container", "must specify a container")
        else:
            yield from (invalid(f"{path}.container", container, fault) for fault in dns_label(container))
    yield from _target_faults(target, f"{path}.target")
    if utilization is None and average is None:
        text = "must set either a target raw value or a target utilization"
        yield required(f"{path}.target.averageUtilization", text)
    if utilization is not None and average is not None:
        text = "may not set both a target raw value and a target utilization"
        yield forbidden(f"{path}.target.averageValue", text)


def _target_faults(target: Document, path: str) -> Iterator[FieldError]:
    type = target.get("type") or ""
    if not type:
        yield required(f"{path}.type", "must specify a metric target type")
    if type not in _TARGET_TYPES:
        yield invalid(f"{path}.type", type, "must be either Utilization, Value, or AverageValue")
    for name in ("value", "averageValue"):
        quantity = target.get(name)
        if quantity is not None and parse_nano(quantity) <= 0:
            yield invalid(f"{path}.{name}", quantity, "must be positive")
    utilization = target.get("averageUtilization")
    if utilization is not None and utilization < 1:
        yield invalid(f"{path}.averageUtilization", utilization, "must be greater than 0")


def _rules_faults(rules: Document, path: str) -> Iterator[FieldError]:
    window = rules.get("stabilizationWindowSeconds")
    if window is not None and window < 0:
        yield invalid(f"{path}.stabilizationWindowSeconds", window, "must be greater than or equal to zero")
    if window is not None and window > _MAX_WINDOW:
        yield invalid(f"{path}.stabilizationWindowSeconds", window, f"must be less than or equal to {_MAX_WINDOW}")
    chosen = rules.get("selectPolicy")
    if chosen is not None and chosen not in ("Disabled", "Max", "Min"):
        yield not_supported(f"{path}.selectPolicy", chosen, ("Disabled", "Max", "Min"))
    if not rules.get("policies"):
        yield required(f"{path}.policies", "must specify at least one Policy")
    for index, policy in each(rules, "policies"):
        here, type = f"{path}.policies[{index}]", policy.get("type") or ""
        if type not in ("Percent", "Pods"):
            yield not_supported(f"{here}.type", type, ("Percent", "Pods"))
        value, period = policy.get("value") or 0, policy.get("periodSeconds") or 0
        if value <= 0:
            yield invalid(f"{here}.value", value, "must be greater than zero")
        if period <= 0:
            yield invalid(f"{here}.periodSeconds", period, "must be greater than zero")
        if period > _MAX_PERIOD:
            yield invalid(f"{here}.periodSeconds", period, f"must be less than or equal to {_MAX_PERIOD}")
    tolerance = rules.get("tolerance")
    if tolerance is not None and parse_nano(tolerance) < 0:
        yield invalid(f"{path}.tolerance", tolerance, "must be greater than or equal to 0")
