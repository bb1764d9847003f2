"""Builds the reservation for a migrated pod from the pod and the PodMigrationJob. Pure."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from wharfinger.admission.requesters import REQUESTER
from wharfinger.api.object_meta import controller_of, controller_reference
from wharfinger.api.registry import Document
from wharfinger.api.times import parse_time
from wharfinger.systems.reservation.kinds.names import POD_MIGRATION_JOBS, RESERVATIONS
from wharfinger.systems.reservation.kinds.views import PodMigrationJob
from wharfinger.systems.reservation.rules.reservations import MOVED_POD, ORDER, ttl_seconds

LOWEST_ORDER = "1"  # the lowest valid value of the order label
ABORT = "wharfinger.dev/abort"
JOB_LABEL = "wharfinger.dev/pod-migration-job"
NO_POD, NO_RESERVATION, TIMEOUT = "MissingPod", "MissingReservation", "Timeout"
MIRROR = "kubernetes.io/config.mirror"  # set on the mirror pods of static pods
UNMOVABLE = "UnmovablePod"
EXPIRED, TAKEN, EVICTED = "ReservationExpired", "ReservationTaken", "EvictComplete"

_NOT_COPIED = ("nodeName", "hostname", "subdomain", "ephemeralContainers", "priority", "preemptionPolicy")


def deadline(job: PodMigrationJob) -> float | None:
    ttl = ttl_seconds(job.spec.ttl)
    return parse_time(job.metadata.creation_timestamp) + ttl if ttl else None


def reservation_name(job: PodMigrationJob) -> str:
    options = job.spec.reservation_options or {}
    reference = options.get("reservationRef") or {}
    named = (options.get("template") or {}).get("metadata") or {}
    return str(reference.get("name") or named.get("name") or f"migration-{job.metadata.uid}")


def uses_given(job: PodMigrationJob) -> bool:
    """Whether the job names an existing reservation, which the controller neither creates nor deletes."""
    return bool(((job.spec.reservation_options or {}).get("reservationRef") or {}).get("name"))


def reservation_for(job: PodMigrationJob, pod: Document) -> Document:
    """The reservation for the replacement of a pod. Its template is the pod without its node name and with node
    affinity that excludes the current node; its owner is the controller that creates the replacement."""
    given = deepcopy((job.spec.reservation_options or {}).get("template") or {})
    spec: Document = given.get("spec") or {}
    metadata: Document = given.get("metadata") or {}
    template: Document = spec.setdefault("template", {})
    pod_metadata = pod["metadata"]
    template["metadata"] = {
        "namespace": pod_metadata["namespace"],
        "labels": dict(pod_metadata.get("labels") or {}),
        **(template.get("metadata") or {}),
    }
    pinned = (template.get("spec") or {}).get("nodeName")
    body = {name: deepcopy(value) for name, value in pod["spec"].items() if name not in _NOT_COPIED}
    body |= template.get("spec") or {}
    if not pinned:
        _keep_off(body, pod["spec"]["nodeName"])
    template["spec"] = body
    spec.setdefault("owners", owners_of(pod))
    spec.setdefault("allocateOnce", True)
    if not spec.get("expires"):
        # The reservation outlives the job, so that the job times out first and reports the reason.
        spec.setdefault("ttl", "0s" if ttl_seconds(job.spec.ttl) == 0 else f"{int(ttl_seconds(job.spec.ttl)) + 60}s")
    return {
        "apiVersion": RESERVATIONS.api_version,
        "kind": RESERVATIONS.kind,
        "metadata": {
            **metadata,
            "name": reservation_name(job),
            # The replacement may match other reservations as well; the order label makes it prefer this one.
            "labels": {
                ORDER: LOWEST_ORDER,
                **(metadata.get("labels") or {}),
                JOB_LABEL: label_value(job.metadata.name),
            },
            "annotations": {**_annotations(job, metadata), MOVED_POD: pod_metadata.get("uid", "")},
            "ownerReferences": [controller_reference(POD_MIGRATION_JOBS, job.metadata)],
        },
        "spec": spec,
    }


def label_value(name: str) -> str:
    """The beginning of a name that is a valid label value."""
    return name[:63].rstrip("-._")


def _annotations(job: PodMigrationJob, given: Document) -> Document:
    """Those of the job's template; the requester is that of the job."""
    annotations = {name: text for name, text in (given.get("annotations") or {}).items() if name != REQUESTER}
    requester = job.metadata.annotations.get(REQUESTER)
    return annotations if requester is None else {**annotations, REQUESTER: requester}


def unmovable(pod: Document) -> str:
    """Why the pod cannot be migrated; empty if it can be."""
    controller = controller_of(pod)
    if controller is not None and controller["kind"] == "DaemonSet":
        return f"belongs to DaemonSet {controller['name']}, which would recreate it on the same node"
    if MIRROR in (pod["metadata"].get("annotations") or {}):
        return "is a static pod, which only the kubelet of its node starts and stops"
    return ""


def owners_of(pod: Document) -> list[Document]:
    """The owners of the reservation: the pod's controller or, without one, a pod with the same name."""
    metadata, controller = pod["metadata"], controller_of(pod)
    if controller is None:
        return [{"object": {"namespace": metadata["namespace"], "name": metadata["name"]}}]
    named = {name: controller[name] for name in ("apiVersion", "kind", "name", "uid")}
    return [{"controller": {**named, "controller": True, "namespace": metadata["namespace"]}}]


def _keep_off(spec: Document, node: str) -> None:
    """Exclude the node in every term of the required node affinity."""
    other = {"key": "metadata.name", "operator": "NotIn", "values": [node]}
    affinity = spec.setdefault("affinity", {})
    node_affinity = affinity.setdefault("nodeAffinity", {})
    required = node_affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
    terms: list[dict[str, Any]] = required.setdefault("nodeSelectorTerms", [])
    if not terms:
        terms.append({})
    for term in terms:
        term["matchFields"] = [*(term.get("matchFields") or ()), other]
