"""Which ResourceClaims a pod uses, and which claims belong to a pod. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.object_meta import controller_reference
from wharfinger.api.registry import Document
from wharfinger.api.views import Pod
from wharfinger.api.views.pods import PodResourceClaim

POD_CLAIM = "resource.kubernetes.io/pod-claim-name"
"""Annotation of a claim that was made from a template: the name by which the pod refers to it."""
_LONGEST_PREFIX = 57  # of a name with 63 characters, after a hyphen and five random ones
_MOST_CONSUMERS = 256

NOT_NEEDED = ""


def claim_name(pod: Pod, entry: PodResourceClaim) -> str | None:
    """The claim for an entry of `spec.resourceClaims`; NOT_NEEDED if there is to be none, None as long as it is not made."""
    if entry.resource_claim_name is not None:
        return entry.resource_claim_name
    for status in pod.status.resource_claim_statuses:
        if status.name == entry.name:
            return NOT_NEEDED if status.resource_claim_name is None else status.resource_claim_name
    return None


def used_claims(pod: Pod) -> Iterator[tuple[PodResourceClaim, str]]:
    """The entries of a pod whose claims are known, with their names."""
    for entry in pod.spec.resource_claims:
        if name := claim_name(pod, entry):
            yield entry, name


def claim_keys(pod: Pod) -> Iterator[tuple[str, str]]:
    """Namespaces and names of the claims that a pod uses, its extended resources included."""
    for _, name in used_claims(pod):
        yield pod.metadata.namespace, name
    extended = pod.status.extended_resource_claim_status
    if extended is not None and extended.resource_claim_name:
        yield pod.metadata.namespace, extended.resource_claim_name


def has_claims(pod: Pod) -> bool:
    return bool(pod.spec.resource_claims) or pod.status.extended_resource_claim_status is not None


def is_made_for(claim: Document, pod: Pod) -> bool:
    """Whether the pod is the controller of the claim."""
    return owner_pod(claim) == (pod.metadata.name, pod.metadata.uid)


def owner_pod(claim: Document) -> tuple[str, str] | None:
    """The name and UID of the pod that controls a claim."""
    for owner in claim["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            is_pod = (owner.get("apiVersion"), owner.get("kind")) == ("v1", "Pod")
            return (owner.get("name") or "", owner.get("uid") or "") if is_pod else None
    return None


def consumers(claim: Document) -> list[Document]:
    return (claim.get("status") or {}).get("reservedFor") or []


def is_reserved_for(claim: Document, pod: Pod) -> bool:
    return any(each.get("uid") == pod.metadata.uid for each in consumers(claim))


def needs_reservation(claim: Document, pod: Pod) -> bool:
    """Whether a pod that is bound already must be added to those that use an allocated claim."""
    allocated = (claim.get("status") or {}).get("allocation") is not None
    return allocated and not is_reserved_for(claim, pod) and len(consumers(claim)) < _MOST_CONSUMERS


def consumer(pod: Pod) -> Document:
    return {"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid}


def is_done(pod: Pod) -> bool:
    """Whether a pod will not use its claims any more, though it may still exist."""
    return pod.terminal or (pod.terminating and not pod.spec.node_name)


def claim_from_template(pod: Pod, entry: PodResourceClaim, template: Document) -> Document:
    """The claim to create for a pod, with a generated name."""
    spec = template.get("spec") or {}
    metadata = spec.get("metadata") or {}
    owner = controller_reference(PODS, pod.metadata)
    del owner["blockOwnerDeletion"]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "generateName": name_prefix(pod.metadata.name, entry.name),
            "namespace": pod.metadata.namespace,
            "labels": metadata.get("labels") or {},
            "annotations": {**(metadata.get("annotations") or {}), POD_CLAIM: entry.name},
            "ownerReferences": [owner],
        },
        "spec": spec.get("spec") or {},
    }


def name_prefix(pod: str, entry: str) -> str:
    """`POD-ENTRY-`; where that is too long, both are shortened in proportion."""
    prefix = f"{pod}-{entry}-"
    if len(prefix) <= _LONGEST_PREFIX:
        return prefix
    length = len(prefix)
    return f"{pod[: len(pod) * _LONGEST_PREFIX // length]}-{entry[: len(entry) * _LONGEST_PREFIX // length]}"
