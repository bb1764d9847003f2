"""Rules about single claims and volumes: classes, binding, ephemeral claims, node affinity.

They follow upstream's component-helpers (storage/volume, storage/ephemeral). Also used by the volume controllers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

import numpy as np

from wharfinger.api.node_affinity import NodeTerm, NodeTerms, node_terms
from wharfinger.api.quantity import NANO, parse_nano
from wharfinger.api.selectors import NodeSelector, Operator, Requirement, matches
from wharfinger.api.views import PersistentVolume, PersistentVolumeClaim, Pod, StorageClass
from wharfinger.api.views.core import ObjectReference
from wharfinger.api.views.pods import Volume
from wharfinger.framework.columns import Bools, Rows
from wharfinger.framework.shapes import Shape
from wharfinger.framework.tables import Tables

T = TypeVar("T")

SELECTED_NODE = "volume.kubernetes.io/selected-node"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
WAIT_FOR_CONSUMER = "WaitForFirstConsumer"
READ_WRITE_ONCE_POD = "ReadWriteOncePod"


def key_of(shape: Shape, wanted: type[T]) -> T | None:
    """What a plugin added to the shape's key, recognized by its type."""
    keys = shape.extra if isinstance(shape.extra, tuple) else ()
    return next((key for key in keys if isinstance(key, wanted)), None)


def claim_name(pod: Pod, volume: Volume) -> str | None:
    """The name of the claim of a pod's volume; None for volumes without a claim. The claim of an ephemeral volume is named
    after the pod and the volume."""
    if volume.persistent_volume_claim is not None:
        return volume.persistent_volume_claim.claim_name
    return f"{pod.metadata.name}-{volume.name}" if volume.ephemeral is not None else None


def claim_names(pod: Pod) -> Iterator[str]:
    return (name for volume in pod.spec.volumes if (name := claim_name(pod, volume)) is not None)


def named_claims(pod: Pod) -> list[str]:
    """The claims that a pod names, without ephemeral ones, which belong to the pod alone."""
    return [
        volume.persistent_volume_claim.claim_name
        for volume in pod.spec.volumes
        if volume.persistent_volume_claim is not None
    ]


def not_created_for(pod: Pod, claim: PersistentVolumeClaim) -> str:
    """Why the claim is not the ephemeral claim of this pod; empty if it is."""
    controller, own = claim.metadata.controller, pod.metadata
    if claim.metadata.namespace == own.namespace and controller is not None and controller.uid == own.uid:
        return ""
    return (
        f"PVC {claim.metadata.namespace}/{claim.metadata.name} was not created for pod {own.namespace}/{own.name} "
        "(pod is not owner)"
    )


def class_of_claim(claim: PersistentVolumeClaim) -> str:
    return claim.metadata.annotations.get(BETA_CLASS, claim.spec.storage_class_name or "")


def class_of_volume(volume: PersistentVolume) -> str:
    return volume.metadata.annotations.get(BETA_CLASS, volume.spec.storage_class_name)


def fully_bound(claim: PersistentVolumeClaim) -> bool:
    return bool(claim.spec.volume_name) and BIND_COMPLETED in claim.metadata.annotations


def waits_for_consumer(storage_class: StorageClass | None) -> bool:
    return storage_class is not None and storage_class.volume_binding_mode == WAIT_FOR_CONSUMER


def refers_to(reference: ObjectReference, claim: PersistentVolumeClaim) -> bool:
    """Whether a claimRef refers to this claim; one without uid refers to any claim of that name."""
    own = claim.metadata
    return (reference.namespace, reference.name) == own.key and reference.uid in ("", own.uid)


def size_of(claim: PersistentVolumeClaim) -> int:
    """The storage that a claim requests, in nano-bytes, so that comparisons are as exact as upstream's."""
    return parse_nano(claim.spec.resources.requests.get("storage", 0))


def capacity_of(volume: PersistentVolume) -> int:
    return parse_nano(volume.spec.capacity.get("storage", 0))


def capacity_bytes(volume: PersistentVolume) -> int:
    """Rounded up, like upstream's Value()."""
    return -(-capacity_of(volume) // NANO)


# -- node affinity of volumes


def affinity_terms(selector: NodeSelector | None) -> NodeTerms | None:
    """The terms of a volume's node affinity; None if there is none. As upstream, only labels are compared; the fields of
    a term are ignored."""
    return None if selector is None else tuple(NodeTerm(term.labels, ()) for term in node_terms(selector))


def on_labels(terms: NodeTerms | None, labels: Mapping[str, str]) -> bool:
    return terms is None or any(matches(term.labels, labels) for term in terms)


def on_rows(tables: Tables, terms: NodeTerms | None, rows: Rows) -> Bools:
    if terms is None:
        return np.ones(len(rows), dtype=np.bool_)
    found = np.zeros(len(rows), dtype=np.bool_)
    for term in terms:
        found |= tables.labelled(term.labels, rows)
    return found


def topologies(storage_class: StorageClass) -> NodeTerms | None:
    """The allowed topologies of a class as terms; None if it has none. Empty terms, which match nothing, are left out."""
    if not storage_class.allowed_topologies:
        return None
    terms = []
    for term in storage_class.allowed_topologies:
        expressions = term.match_label_expressions
        if expressions and all(expression.values for expression in expressions):
            labels = tuple(Requirement(each.key, Operator.IN, frozenset(each.values)) for each in expressions)
            terms.append(NodeTerm(labels, ()))
    return tuple(terms)
