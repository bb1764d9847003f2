"""What a recording keeps of an object: what decisions depend on, and nothing that a colleague should not see. Pure.

Environment variables, commands and arguments of containers, volumes with secrets and configuration, messages, managed
fields, and annotations that decide nothing are left out. Secrets and ConfigMaps are not recorded at all.
"""

from __future__ import annotations

from typing import Any

from wharfinger.api.registry import Document
from wharfinger.node import annotations as simulated

_METADATA = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "ownerReferences",
)
_DECIDING = (  # domains of annotations that decisions depend on
    "wharfinger.dev",
    "koordinator.sh",
    "sigs.x-k8s.io",
    "controller.kubernetes.io",
    "resource.kubernetes.io",
    "storageclass.kubernetes.io",
    "storageclass.beta.kubernetes.io",
    "volume.kubernetes.io",
    "volume.beta.kubernetes.io",
    "pv.kubernetes.io",
)
_NOT_DECIDING = frozenset(  # how simulated pods and nodes behave is recorded as what they did
    {
        simulated.START_AFTER,
        simulated.READY_AFTER,
        simulated.RUN_FOR,
        simulated.EXIT_CODE,
        simulated.SHUTDOWN_AFTER,
        simulated.USAGE,
        simulated.DOWN,
        simulated.SIMULATED,
    }
)
_MIRROR = "kubernetes.io/config.mirror"
_CONTAINER = ("name", "image", "resources", "ports", "restartPolicy", "resizePolicy")
_VOLUMES_LEFT_OUT = ("secret", "configMap", "projected", "downwardAPI", "emptyDir", "hostPath")
_POD_SPEC_LEFT_OUT = ("imagePullSecrets", "dnsConfig", "hostAliases", "ephemeralContainers")
_POD_CONDITIONS = ("PodScheduled", "DisruptionTarget")
_WITHOUT_STATUS = frozenset(  # kinds whose status changes often and decides nothing that a replay does not find out
    {
        "CronJob",
        "DaemonSet",
        "Deployment",
        "HorizontalPodAutoscaler",
        "Job",
        "Namespace",
        "PodDisruptionBudget",
        "ReplicaSet",
        "ReplicationController",
        "ResourceQuota",
        "StatefulSet",
    }
)
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")


def reduced(document: Document) -> Document:
    """A copy with only what is recorded."""
    made: Document = {key: value for key, value in document.items() if key not in ("metadata", "spec", "status")}
    made["metadata"] = _metadata(document.get("metadata") or {})
    kind = document.get("kind")
    spec, status = document.get("spec"), document.get("status")
    if kind == "Pod":
        made["spec"], made["status"] = _pod_spec(spec or {}), _pod_status(status or {})
    elif kind == "Node":
        made["spec"] = {key: value for key, value in (spec or {}).items() if key in ("taints", "unschedulable")}
        made["status"] = _node_status(status or {})
    else:
        if spec is not None:
            made["spec"] = _stripped(spec)
        if status is not None and kind not in _WITHOUT_STATUS:
            made["status"] = _stripped(status)
        for part in ("template", "data"):
            if part in made:
                made[part] = _stripped(made[part])
    return made


def _metadata(metadata: Document) -> Document:
    made = {key: metadata[key] for key in _METADATA if metadata.get(key)}
    kept = {key: value for key, value in (metadata.get("annotations") or {}).items() if decides(key)}
    return {**made, "annotations": kept} if kept else made


def decides(annotation: str) -> bool:
    """Whether decisions depend on annotations of this name."""
    domain, _, _ = annotation.partition("/")
    if annotation in _NOT_DECIDING:
        return False
    return annotation == _MIRROR or any(domain == each or domain.endswith(f".{each}") for each in _DECIDING)


def _pod_spec(spec: Document) -> Document:
    made = {key: value for key, value in spec.items() if key not in _POD_SPEC_LEFT_OUT}
    for part in ("containers", "initContainers"):
        if made.get(part):
            made[part] = [{key: each[key] for key in _CONTAINER if key in each} for each in made[part]]
    volumes = [
        each for each in made.pop("volumes", None) or () if not any(source in each for source in _VOLUMES_LEFT_OUT)
    ]
    return {**made, "volumes": volumes} if volumes else made


def _pod_status(status: Document) -> Document:
    made = {key: status[key] for key in ("phase", "reason", "startTime") if status.get(key)}
    conditions = [
        {key: each[key] for key in ("type", "status", "reason", "lastTransitionTime") if each.get(key)}
        for each in status.get("conditions") or ()
        if each.get("type") in _POD_CONDITIONS
    ]
    return {**made, "conditions": conditions} if conditions else made


def _node_status(status: Document) -> Document:
    made = {key: status[key] for key in ("allocatable", "capacity", "images") if status.get(key)}
    ready = [
        {"type": "Ready", "status": each.get("status")}
        for each in status.get("conditions") or ()
        if each.get("type") == "Ready"
    ]
    return {**made, "conditions": ready} if ready else made


def _stripped(value: Any) -> Any:
    """Without what containers run and how, wherever there is a pod template."""
    if isinstance(value, list):
        return [_stripped(item) for item in value]
    if not isinstance(value, dict):
        return value
    made: Document = {}
    for key, item in value.items():
        if key in _CONTAINERS and isinstance(item, list):
            made[key] = [
                {name: each[name] for name in _CONTAINER if name in each} for each in item if isinstance(each, dict)
            ]
        elif key == "managedFields":
            continue
        elif key == "volumes" and isinstance(item, list):
            made[key] = [each for each in item if not (isinstance(each, dict) and set(each) & set(_VOLUMES_LEFT_OUT))]
        elif key == "annotations" and isinstance(item, dict):
            made[key] = {name: text for name, text in item.items() if decides(name)}
        else:
            made[key] = _stripped(item)
    return made
