"""HorizontalPodAutoscalers in `autoscaling/v1` and `v2`.

The older version knows one metric only, the utilization of CPU. As in Kubernetes, everything else travels in annotations,
so that a client that reads and writes the older version loses nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from wharfinger.api.registry import Document

_PREFIX = "autoscaling.alpha.kubernetes.io/"
METRICS, CURRENT_METRICS = _PREFIX + "metrics", _PREFIX + "current-metrics"
CONDITIONS, BEHAVIOR = _PREFIX + "conditions", _PREFIX + "behavior"
_ROUND_TRIP = (
    METRICS,
    CURRENT_METRICS,
    CONDITIONS,
    BEHAVIOR,
    _PREFIX + "scale-down-tolerance",
    _PREFIX + "scale-up-tolerance",
)
_DEFAULT_UTILIZATION = 80
_RULE_FIELDS = ("stabilizationWindowSeconds", "selectPolicy", "policies", "tolerance")
_POLICY_FIELDS = ("type", "value", "periodSeconds")


def convert_autoscaler(document: Document, version: str) -> Document:
    return _to_v1(document) if version == "v1" else _to_v2(document)


def _is_cpu_utilization(metric: Document) -> bool:
    resource = metric.get("resource") or {}
    utilization = (resource.get("target") or {}).get("averageUtilization")
    return metric.get("type") == "Resource" and resource.get("name") == "cpu" and utilization is not None


def _to_v1(document: Document) -> Document:
    spec, status = document.get("spec") or {}, document.get("status") or {}
    metrics = spec.get("metrics") or []
    made = {key: spec[key] for key in ("scaleTargetRef", "minReplicas", "maxReplicas") if key in spec}
    cpu = next((metric for metric in metrics if _is_cpu_utilization(metric)), None)
    if cpu is not None:
        made["targetCPUUtilizationPercentage"] = cpu["resource"]["target"]["averageUtilization"]
    annotations: dict[str, str] = {}
    others = [_converted(metric, _old_metric) for metric in metrics if not _is_cpu_utilization(metric)]
    if others:
        annotations[METRICS] = _text(others)
    current = status.get("currentMetrics") or []
    if current:
        annotations[CURRENT_METRICS] = _text([_converted(metric, _old_status) for metric in current])
    if spec.get("behavior") is not None:
        annotations[BEHAVIOR] = _text(_old_behavior(spec["behavior"]))
    if status.get("conditions"):
        annotations[CONDITIONS] = _text([_ordered(condition, _CONDITION_FIELDS) for condition in status["conditions"]])
    shown = ("observedGeneration", "lastScaleTime", "currentReplicas", "desiredReplicas")
    old_status = {"currentReplicas": 0, "desiredReplicas": 0, **{key: status[key] for key in shown if key in status}}
    for metric in current:
        resource = metric.get("resource") or {}
        used = (resource.get("current") or {}).get("averageUtilization")
        if metric.get("type") == "Resource" and resource.get("name") == "cpu" and used is not None:
            old_status["currentCPUUtilizationPercentage"] = used
    return _with(document, "v1", made, old_status, annotations)


def _to_v2(document: Document) -> Document:
    spec, status = document.get("spec") or {}, document.get("status") or {}
    annotations = (document.get("metadata") or {}).get("annotations") or {}
    made = {key: spec[key] for key in ("scaleTargetRef", "minReplicas", "maxReplicas") if key in spec}
    metrics: list[Document] = []
    others = _parsed(annotations.get(METRICS), list)
    if others is not None:
        metrics += [_converted(metric, _new_metric) for metric in others if isinstance(metric, dict)]
    target = spec.get("targetCPUUtilizationPercentage")
    if target is not None or not metrics:
        utilization = {"type": "Utilization", "averageUtilization": _DEFAULT_UTILIZATION if target is None else target}
        metrics.append({"type": "Resource", "resource": {"name": "cpu", "target": utilization}})
    made["metrics"] = metrics
    behavior = _parsed(annotations.get(BEHAVIOR), dict)
    if behavior:
        made["behavior"] = _new_behavior(behavior)
    shown = ("observedGeneration", "lastScaleTime", "currentReplicas", "desiredReplicas")
    new_status = {key: status[key] for key in shown if key in status}
    current = _parsed(annotations.get(CURRENT_METRICS), list)
    if current is not None:
        new_status["currentMetrics"] = [
            _converted(metric, _new_status) for metric in current if isinstance(metric, dict)
        ]
    elif status.get("currentCPUUtilizationPercentage") is not None:
        used = {"averageUtilization": status["currentCPUUtilizationPercentage"]}
        new_status["currentMetrics"] = [{"type": "Resource", "resource": {"name": "cpu", "current": used}}]
    conditions = _parsed(annotations.get(CONDITIONS), list)
    if conditions is not None:
        new_status["conditions"] = conditions
    return _with(document, "v2", made, new_status, {})


def _with(document: Document, version: str, spec: Document, status: Document, more: dict[str, str]) -> Document:
    metadata = dict(document.get("metadata") or {})
    kept = {key: text for key, text in (metadata.get("annotations") or {}).items() if key not in _ROUND_TRIP}
    if kept or more:
        metadata["annotations"] = {**kept, **more}
    else:
        metadata.pop("annotations", None)
    made = {**document, "apiVersion": f"autoscaling/{version}", "metadata": metadata}
    if "spec" in document:
        made["spec"] = spec
    if "status" in document or status:
        made["status"] = status
    return made


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _parsed(text: Any, type: type[list[Any]] | type[dict[str, Any]]) -> Any:
    """The value of an annotation; None if it is absent or has another form, which Kubernetes ignores."""
    if not isinstance(text, str):
        return None
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    return value if isinstance(value, type) else None


_CONDITION_FIELDS = ("type", "status", "lastTransitionTime", "reason", "message")
_REFERENCE_FIELDS = ("kind", "name", "apiVersion")


def _ordered(document: Document, fields: tuple[str, ...]) -> Document:
    """The same fields in the order in which Go writes them."""
    return {field: document[field] for field in fields if field in document}


def _set(pairs: dict[str, Any]) -> Document:
    return {key: value for key, value in pairs.items() if value is not None}


# Metrics. Old forms have the names of autoscaling/v1.


def _converted(metric: Document, convert: Callable[[str, Document], Document | None]) -> Document:
    """A metric with its source in the other form. `convert` gets the type and the source; None: an unknown type."""
    type = str(metric.get("type") or "")
    field = type[:1].lower() + type[1:]
    source = metric.get(field)
    made = convert(type, source) if isinstance(source, dict) else None
    return {"type": type} if made is None else {"type": type, field: made}


def _old_metric(type: str, source: Document) -> Document | None:
    return _old(type, source, "target", absent=None)


def _old_status(type: str, source: Document) -> Document | None:
    return _old(type, source, "current", absent="0")


def _old(type: str, source: Document, part: str, *, absent: str | None) -> Document | None:
    """`part` is what the metric has: a target, or a current value. Some values become `absent` if there is none."""
    has, identifier = source.get(part) or {}, source.get("metric") or {}
    match type:
        case "Object":
            return _set(
                {
                    "target": _ordered(source.get("describedObject") or {}, _REFERENCE_FIELDS),
                    "metricName": identifier.get("name"),
                    f"{part}Value": has.get("value", "0"),
                    "selector": identifier.get("selector"),
                    "averageValue": has.get("averageValue"),
                }
            )
        case "Pods":
            return _set(
                {
                    "metricName": identifier.get("name"),
                    f"{part}AverageValue": has.get("averageValue", "0"),
                    "selector": identifier.get("selector"),
                }
            )
        case "Resource" | "ContainerResource":
            return _set(
                {
                    "name": source.get("name"),
                    f"{part}AverageUtilization": has.get("averageUtilization"),
                    f"{part}AverageValue": has.get("averageValue", absent),
                    "container": source.get("container"),
                }
            )
        case "External":
            return _set(
                {
                    "metricName": identifier.get("name"),
                    "metricSelector": identifier.get("selector"),
                    f"{part}Value": has.get("value", absent),
                    f"{part}AverageValue": has.get("averageValue"),
                }
            )
    return None


def _new_metric(type: str, source: Document) -> Document | None:
    identifier = _set({"name": source.get("metricName"), "selector": source.get("selector")})
    match type:
        case "Object":
            average, value = source.get("averageValue"), source.get("targetValue")
            if average is not None and value in ("0", 0):
                value = None  # the older version cannot leave it out
            kind = "Value" if average is None else "AverageValue"
            return {
                "describedObject": source.get("target") or {},
                "metric": identifier,
                "target": _set({"type": kind, "value": value, "averageValue": average}),
            }
        case "Pods":
            target = _set({"type": "AverageValue", "averageValue": source.get("targetAverageValue")})
            return {"metric": identifier, "target": target}
        case "Resource" | "ContainerResource":
            utilization = source.get("targetAverageUtilization")
            target = _set(
                {
                    "type": "AverageValue" if utilization is None else "Utilization",
                    "averageValue": source.get("targetAverageValue"),
                    "averageUtilization": utilization,
                }
            )
            return _set({"name": source.get("name"), "container": source.get("container"), "target": target})
        case "External":
            value = source.get("targetValue")
            kind = "AverageValue" if value is None else "Value"
            return {
                "metric": _set({"name": source.get("metricName"), "selector": source.get("metricSelector")}),
                "target": _set({"type": kind, "value": value, "averageValue": source.get("targetAverageValue")}),
            }
    return None


def _new_status(type: str, source: Document) -> Document | None:
    identifier = _set({"name": source.get("metricName"), "selector": source.get("selector")})
    match type:
        case "Object":
            current = _set({"value": source.get("currentValue"), "averageValue": source.get("averageValue")})
            return {"describedObject": source.get("target") or {}, "metric": identifier, "current": current}
        case "Pods":
            return {"metric": identifier, "current": _set({"averageValue": source.get("currentAverageValue")})}
        case "Resource" | "ContainerResource":
            current = _set(
                {
                    "averageValue": source.get("currentAverageValue"),
                    "averageUtilization": source.get("currentAverageUtilization"),
                }
            )
            return _set({"name": source.get("name"), "container": source.get("container"), "current": current})
        case "External":
            current = _set({"value": source.get("currentValue"), "averageValue": source.get("currentAverageValue")})
            identifier = _set({"name": source.get("metricName"), "selector": source.get("metricSelector")})
            return {"metric": identifier, "current": current}
    return None


# The behaviour is in the annotation in Kubernetes' internal form, with the names of Go fields.


def _old_behavior(behavior: Document) -> Document:
    def rules(name: str) -> Document | None:
        found = behavior.get(name)
        if found is None:
            return None
        policies = found.get("policies")
        return {
            "StabilizationWindowSeconds": found.get("stabilizationWindowSeconds"),
            "SelectPolicy": found.get("selectPolicy"),
            "Policies": None
            if policies is None
            else [
                {field[:1].upper() + field[1:]: policy.get(field) for field in _POLICY_FIELDS} for policy in policies
            ],
            "Tolerance": found.get("tolerance"),
        }

    return {"ScaleUp": rules("scaleUp"), "ScaleDown": rules("scaleDown")}


def _new_behavior(behavior: Document) -> Document:
    """As Go reads it: names match whatever their case."""
    made: Document = {}
    for name in ("scaleUp", "scaleDown"):
        found = _any_case(behavior, name)
        if not isinstance(found, dict):
            continue
        rules = _set({field: _any_case(found, field) for field in _RULE_FIELDS})
        if isinstance(rules.get("policies"), list):
            rules["policies"] = [
                _set({field: _any_case(policy, field) for field in _POLICY_FIELDS})
                for policy in rules["policies"]
                if isinstance(policy, dict)
            ]
        made[name] = rules
    return made


def _any_case(document: Document, name: str) -> Any:
    return next((value for key, value in document.items() if key.lower() == name.lower()), None)
