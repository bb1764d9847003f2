"""HorizontalPodAutoscalers in both versions: nothing is lost on the way."""

from __future__ import annotations

import json
from typing import Any

import pytest

from wharfinger.api.autoscaler_versions import BEHAVIOR, CONDITIONS, CURRENT_METRICS, METRICS, convert_autoscaler
from wharfinger.api.kinds import registry
from wharfinger.api.registry import Document
from wharfinger.api.validation import object_faults

KIND = registry().of_plural("autoscaling", "horizontalpodautoscalers")
TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
MEMORY = {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}}
CONTAINER = {
    "type": "ContainerResource",
    "containerResource": {
        "name": "cpu",
        "container": "main",
        "target": {"type": "Utilization", "averageUtilization": 60},
    },
}
PODS = {
    "type": "Pods",
    "pods": {"metric": {"name": "hits"}, "target": {"type": "AverageValue", "averageValue": "1k"}},
}
OBJECT = {
    "type": "Object",
    "object": {
        "describedObject": {"kind": "Ingress", "name": "main", "apiVersion": "networking.k8s.io/v1"},
        "metric": {"name": "rps", "selector": {"matchLabels": {"a": "b"}}},
        "target": {"type": "Value", "value": "2k"},
    },
}
AVERAGE_OBJECT = {
    "type": "Object",
    "object": {**OBJECT["object"], "target": {"type": "AverageValue", "averageValue": "10"}},  # type: ignore[dict-item]
}
EXTERNAL = {
    "type": "External",
    "external": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "30"}},
}
BEHAVIOUR = {
    "scaleUp": {
        "stabilizationWindowSeconds": 0,
        "selectPolicy": "Max",
        "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}],
    },
    "scaleDown": {"selectPolicy": "Min", "policies": [{"type": "Percent", "value": 10, "periodSeconds": 60}]},
}
STATUS = {
    "currentReplicas": 3,
    "desiredReplicas": 4,
    "lastScaleTime": "2026-01-01T00:00:00Z",
    "currentMetrics": [
        {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 70, "averageValue": "70m"}}}
    ],
    "conditions": [{"type": "AbleToScale", "status": "True", "reason": "R", "message": "m"}],
}


def autoscaler(*metrics: Any, **more: Any) -> Document:
    spec = {"scaleTargetRef": TARGET, "minReplicas": 2, "maxReplicas": 9, "metrics": list(metrics)}
    metadata = {"name": "web", "namespace": "default", "annotations": {"mine": "kept"}}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata,
        "spec": {**spec, **more},
        "status": STATUS,
    }


@pytest.mark.parametrize("metric", [CPU, MEMORY, CONTAINER, PODS, OBJECT, AVERAGE_OBJECT, EXTERNAL])
@pytest.mark.parametrize("behavior", [None, BEHAVIOUR])
def test_a_round_trip_loses_nothing(metric: Document, behavior: Document | None) -> None:
    more = {} if behavior is None else {"behavior": behavior}
    document = autoscaler(metric, **more)
    old = convert_autoscaler(document, "v1")
    assert old["apiVersion"] == "autoscaling/v1"
    assert "metrics" not in old["spec"] and "conditions" not in old["status"]
    assert convert_autoscaler(old, "v2") == document


def test_the_older_version_shows_the_utilization_of_cpu() -> None:
    old = convert_autoscaler(autoscaler(MEMORY, CPU, behavior=BEHAVIOUR), "v1")
    assert old["spec"] == {
        "scaleTargetRef": TARGET,
        "minReplicas": 2,
        "maxReplicas": 9,
        "targetCPUUtilizationPercentage": 50,
    }
    assert old["status"]["currentCPUUtilizationPercentage"] == 70
    annotations = old["metadata"]["annotations"]
    assert set(annotations) == {"mine", METRICS, CURRENT_METRICS, CONDITIONS, BEHAVIOR}
    assert json.loads(annotations[METRICS]) == [
        {"type": "Resource", "resource": {"name": "memory", "targetAverageValue": "1Gi"}}
    ]
    assert json.loads(annotations[BEHAVIOR])["ScaleDown"]["Policies"] == [
        {"Type": "Percent", "Value": 10, "PeriodSeconds": 60}
    ]


@pytest.mark.parametrize("text", ["", "{", "null", "5", "[5]", '{"a": 1}'])
def test_annotations_that_cannot_be_read_are_ignored(text: str) -> None:
    annotations = dict.fromkeys((METRICS, CURRENT_METRICS, CONDITIONS, BEHAVIOR), text)
    old: Document = {
        "apiVersion": "autoscaling/v1",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "annotations": annotations},
        "spec": {"scaleTargetRef": TARGET, "maxReplicas": 3},
    }
    made = convert_autoscaler(old, "v2")
    assert made["spec"]["metrics"][-1]["resource"]["target"] == {"type": "Utilization", "averageUtilization": 80}
    assert "annotations" not in made["metadata"]


@pytest.mark.parametrize(
    ("spec", "faults"),
    [
        (
            {"maxReplicas": 0},
            [
                "spec.maxReplicas: Required value: must be set and greater than 0",
                "spec.maxReplicas: Invalid value: 0: must be greater than or equal to `minReplicas`",
            ],
        ),
        (
            {"maxReplicas": 1},
            ["spec.maxReplicas: Invalid value: 1: must be greater than or equal to `minReplicas`"],
        ),
        (
            {"scaleTargetRef": {"apiVersion": "v1", "kind": "Pod", "name": "x"}},
            ['spec.scaleTargetRef.apiVersion: Invalid value: "v1": apiVersion must specify API group'],
        ),
        ({"scaleTargetRef": {"apiVersion": "v1", "kind": "ReplicationController", "name": "x"}}, []),
        (
            {"metrics": [{"type": "Resource"}]},
            ["spec.metrics[0].resource: Required value: must populate information for the given metric source"],
        ),
        (
            {"metrics": [{**PODS, "resource": CPU["resource"]}]},
            ["spec.metrics[0].resource: Forbidden: must populate the given metric source only"],
        ),
        (
            {"behavior": {"scaleUp": {"stabilizationWindowSeconds": 4000, "policies": []}}},
            [
                "spec.behavior.scaleUp.stabilizationWindowSeconds: Invalid value: 4000: must be less than or equal to 3600",
                "spec.behavior.scaleUp.policies: Required value: must specify at least one Policy",
            ],
        ),
    ],
)
def test_invalid_autoscalers(spec: Document, faults: list[str]) -> None:
    assert KIND is not None
    document = autoscaler(CPU, **spec)
    assert [str(fault) for fault in object_faults(KIND, document)] == faults
