"""Defaults of workloads, jobs and autoscalers."""

from __future__ import annotations

from typing import Any

from wharfinger.api.defaults.core import default_claim_spec
from wharfinger.api.defaults.pods import default_template_of
from wharfinger.api.defaults.walk import (
    canonical_quantity,
    child,
    children,
    fill,
    fill_text,
    made_child,
    restore,
    with_status,
)
from wharfinger.api.numbers import parse_uint64
from wharfinger.api.registry import Document


def default_deployment(document: Document) -> None:
    spec = made_child(document, "spec")
    fill(spec, replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600)
    strategy = made_child(spec, "strategy")
    fill_text(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        fill(made_child(strategy, "rollingUpdate"), maxUnavailable="25%", maxSurge="25%")
    default_template_of(spec)


def default_replica_set(document: Document) -> None:
    spec = made_child(document, "spec")
    fill(spec, replicas=1)
    default_template_of(spec)


def default_daemon_set(document: Document) -> None:
    spec = made_child(document, "spec")
    fill(spec, revisionHistoryLimit=10)
    strategy = made_child(spec, "updateStrategy")
    fill_text(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        fill(made_child(strategy, "rollingUpdate"), maxUnavailable=1, maxSurge=0)
    default_template_of(spec)


TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
_set_daemon_set_status = with_status(
    currentNumberScheduled=0, numberMisscheduled=0, desiredNumberScheduled=0, numberReady=0
)


def prepare_daemon_set(document: Document) -> None:
    _set_daemon_set_status(document)
    count_templates(document, None)


def count_templates(new: Document, old: Document | None) -> None:
    """Counts changes of a daemon set's template in the annotation that replaced `spec.templateGeneration`."""
    generation = 1
    if old is not None:
        given = child(child(old, "metadata"), "annotations").get(TEMPLATE_GENERATION)
        generation = (parse_uint64(given) if isinstance(given, str) else None) or 1
        if child(new, "spec").get("template") != child(old, "spec").get("template"):
            generation += 1
    metadata = made_child(new, "metadata")
    annotations = metadata.get("annotations")
    if annotations is None or isinstance(annotations, dict):  # validation reports any other type
        metadata["annotations"] = {**(annotations or {}), TEMPLATE_GENERATION: str(generation)}


def keep_labels(new: Document, old: Document) -> None:
    """Writes to the status of a deployment do not change its labels."""
    restore(new, old, "metadata", "labels")


def default_stateful_set(document: Document) -> None:
    spec = made_child(document, "spec")
    fill_text(spec, podManagementPolicy="OrderedReady")
    fill(spec, serviceName="")
    strategy = made_child(spec, "updateStrategy")
    if strategy.get("type") in (None, ""):
        strategy["type"] = "RollingUpdate"
        made_child(strategy, "rollingUpdate")
    if strategy["type"] == "RollingUpdate" and isinstance(strategy.get("rollingUpdate"), dict):
        fill(strategy["rollingUpdate"], partition=0, maxUnavailable=1)
    fill_text(made_child(spec, "persistentVolumeClaimRetentionPolicy"), whenDeleted="Retain", whenScaled="Retain")
    fill(spec, replicas=1, revisionHistoryLimit=10)
    default_template_of(spec)
    for claim in children(spec, "volumeClaimTemplates"):
        fill_text(claim, apiVersion="v1", kind="PersistentVolumeClaim")
        default_claim_spec(made_child(claim, "spec"))
        fill_text(made_child(claim, "status"), phase="Pending")


def default_job(document: Document) -> None:
    spec = made_child(document, "spec")
    _job_spec(spec)
    labels = child(child(child(spec, "template"), "metadata"), "labels")
    metadata = child(document, "metadata")
    if labels and not metadata.get("labels"):
        # The same object, as upstream: labels that the server adds to the template are then labels of the job.
        metadata["labels"] = labels


def _job_spec(spec: Document) -> None:
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = spec["parallelism"] = 1
    indexed = spec.get("backoffLimitPerIndex") is not None
    fill(
        spec,
        parallelism=1,
        backoffLimit=2147483647 if indexed else 6,
        completionMode="NonIndexed",
        suspend=False,
        podReplacementPolicy="Failed" if spec.get("podFailurePolicy") is not None else "TerminatingOrFailed",
        manualSelector=False,
    )
    for rule in children(child(spec, "podFailurePolicy"), "rules"):
        for pattern in children(rule, "onPodConditions"):
            fill_text(pattern, status="True")
    default_template_of(spec)


def prepare_job(document: Document) -> None:
    """Selects the pods of a job by its uid, which becomes a label of the template."""
    document["status"] = {}
    metadata, spec = child(document, "metadata"), child(document, "spec")
    uid, name = metadata.get("uid"), metadata.get("name")
    if not uid or not name or spec.get("manualSelector") is True or not isinstance(spec.get("template"), dict):
        return
    labels = made_child(made_child(spec["template"], "metadata"), "labels")
    # Labels that the user set stay; validation refuses contradictions.
    for key in ("controller-uid", "batch.kubernetes.io/controller-uid"):
        labels.setdefault(key, uid)
    for key in ("job-name", "batch.kubernetes.io/job-name"):
        labels.setdefault(key, name)
    if metadata.get("labels") is labels:
        metadata["labels"] = dict(labels)
    selector = made_child(spec, "selector")
    made_child(selector, "matchLabels").setdefault("batch.kubernetes.io/controller-uid", uid)


def default_cron_job(document: Document) -> None:
    spec = made_child(document, "spec")
    fill_text(spec, concurrencyPolicy="Allow")
    fill(spec, suspend=False, successfulJobsHistoryLimit=3, failedJobsHistoryLimit=1)
    template = child(spec, "jobTemplate")
    if template:
        # Of a job template only the pod template is defaulted; jobs are defaulted when they are created.
        made_child(template, "metadata")
        default_template_of(made_child(template, "spec"))


def default_autoscaler(document: Document) -> None:
    spec = made_child(document, "spec")
    fill(spec, minReplicas=1)
    if not spec.get("metrics"):
        target = {"type": "Utilization", "averageUtilization": 80}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    behavior = spec.get("behavior")
    if isinstance(behavior, dict):
        percent: dict[str, Any] = {"type": "Percent", "value": 100, "periodSeconds": 15}
        fill(
            made_child(behavior, "scaleUp"),
            stabilizationWindowSeconds=0,
            selectPolicy="Max",
            policies=[{"type": "Pods", "value": 4, "periodSeconds": 15}, dict(percent)],
        )
        fill(made_child(behavior, "scaleDown"), selectPolicy="Max", policies=[dict(percent)])
        for name in ("scaleUp", "scaleDown"):
            canonical_quantity(child(behavior, name), "tolerance")
    for metric in children(spec, "metrics"):
        for name in _METRIC_SOURCES:
            canonical_quantity(child(child(metric, name), "target"), "value", "averageValue")
    status = document.get("status")
    if isinstance(status, dict):
        for metric in children(status, "currentMetrics"):
            for name in _METRIC_SOURCES:
                canonical_quantity(child(child(metric, name), "current"), "value", "averageValue")
        if not status.get("currentMetrics"):
            status["currentMetrics"] = None  # how Go writes an empty list here
        if status.get("currentReplicas") == 0:
            del status["currentReplicas"]


_METRIC_SOURCES = ("object", "pods", "resource", "containerResource", "external")


def prepare_autoscaler(document: Document) -> None:
    document["status"] = {"desiredReplicas": 0, "currentMetrics": None}
