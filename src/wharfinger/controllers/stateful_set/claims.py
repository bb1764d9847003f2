"""The owner of a StatefulSet's claims according to its retention policy: none, the set, or a condemned pod. Pure.

The rules are those of upstream's stateful_set_utils.go. Claims that another controller owns, or that belong to a former set
or pod of the same name, are left alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from wharfinger.api.kinds.builtin import PODS, STATEFUL_SETS
from wharfinger.api.object_meta import controller_reference, reference_document
from wharfinger.api.registry import Document, Resource
from wharfinger.api.views import ObjectMeta, StatefulSet
from wharfinger.api.views.meta import OwnerReference

CONFLICT = (
    "PersistentVolumeClaim {} has a conflicting OwnerReference that acts as a manging controller, "
    "the retention policy is ignored for this claim"
)


def is_stale(references: Sequence[OwnerReference], resource: Resource, name: str, uid: str = "") -> bool:
    """Whether the first owner of that kind and name has another uid."""
    mine = next((each for each in references if _names(each, resource, name)), None)
    return mine is not None and mine.uid != uid


def has_conflict(spec: StatefulSet, references: Sequence[OwnerReference], pod: ObjectMeta) -> bool:
    """Whether the retention policy conflicts with another controller that owns the claim."""
    if not (_deletes(spec, scaled=True) or _deletes(spec, scaled=False)):
        return False
    for each in references:
        for resource, mine in ((STATEFUL_SETS, spec.metadata), (PODS, pod)):
            if _names(each, resource, mine.name):
                if each.uid != mine.uid:
                    return True
                break
        else:
            if each.controller:
                return True
    return False


def owners(
    spec: StatefulSet, references: Sequence[OwnerReference], pod: ObjectMeta, *, leaving: bool
) -> list[Document] | None:
    """The owner references that a pod's claim should have; None if it has them. `leaving`: the pod is condemned, beyond the
    size of the set."""
    if is_stale(references, STATEFUL_SETS, spec.metadata.name, spec.metadata.uid):
        return None
    if is_stale(references, PODS, pod.name, pod.uid):
        return None
    own = {spec.metadata.uid, pod.uid}
    kept = [
        each
        for each in references
        if not _names(each, STATEFUL_SETS, spec.metadata.name) and not _names(each, PODS, pod.name)
    ]
    wanted: list[Document] = []
    if not has_conflict(spec, references, pod):
        if leaving and _deletes(spec, scaled=True):
            wanted = [controller_reference(PODS, pod)]
        elif _deletes(spec, scaled=False):
            wanted = [controller_reference(STATEFUL_SETS, spec.metadata)]
    having = {each.uid for each in references if each.uid in own}
    not_controller = any(each.uid in own and not each.controller for each in references)
    if having == {each["uid"] for each in wanted} and not not_controller:
        return None
    return [*map(reference_document, kept), *wanted]


def _deletes(spec: StatefulSet, *, scaled: bool) -> bool:
    policy = spec.spec.persistent_volume_claim_retention_policy
    return (policy.when_scaled if scaled else policy.when_deleted) == "Delete"


def _names(reference: OwnerReference, resource: Resource, name: str) -> bool:
    return (reference.api_version, reference.kind, reference.name) == (resource.api_version, resource.kind, name)
