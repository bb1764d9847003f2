"""Annotations that only schedulers write: what a pod was given, such as devices or a reservation.

Whoever could write such a record on a pod of their own would take what belongs to others.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from wharfinger.admission.request import PASS, Request, Review
from wharfinger.api.configuration import Configuration
from wharfinger.api.errors import forbidden
from wharfinger.api.registry import Document
from wharfinger.system import systems

SCHEDULERS = frozenset(
    (
        "system:kube-scheduler",
        "system:serviceaccount:kube-system:kube-scheduler",
        "system:serviceaccount:kube-system:wharfinger-scheduler",
        "system:serviceaccount:wharfinger-system:wharfinger-scheduler",
    )
)
"""The users under which schedulers run, besides those that settings name."""


@dataclass(frozen=True, slots=True)
class SchedulerRecord:
    """An annotation that only schedulers write. `with_node` tells whether a pod that is created with a node may bring
    it along; administrators always may, since they restore whole clusters."""

    annotation: str
    with_node: bool = False


def schedulers(configuration: Configuration) -> frozenset[str]:
    """All users that count as schedulers."""
    named = (name for system in systems() for name in system.scheduler_identities(configuration))
    return SCHEDULERS.union(named)


def scheduler_records() -> tuple[SchedulerRecord, ...]:
    """The records of all systems."""
    return tuple(record for system in systems() for record in system.scheduler_records())


class SchedulerRecordReviewer:
    """A new pod may bring a record along, which schedulers then replace. Afterwards only schedulers write it, on the
    pod or with its Binding, whose annotations become the pod's."""

    def __init__(self, schedulers: Collection[str], records: Sequence[SchedulerRecord]) -> None:
        self._schedulers = schedulers
        self._records = records

    def concerns(self, group: str, plural: str, subresource: str) -> bool:
        return (group, plural) in (("", "pods"), ("", "bindings"))

    def review(self, request: Request) -> Review:
        resource = (request.resource.group, request.resource.plural)
        if request.object is None or request.user.name in self._schedulers:
            return PASS
        old: Document | None = None
        if resource == ("", "pods") and request.operation == "UPDATE":
            old = request.old
        elif resource == ("", "pods") and not request.subresource and _has_node(request.object):
            # No scheduler handles this pod, so none would replace the annotation.
            for record in self._records:
                name = record.annotation
                privileged = record.with_node or "system:masters" in request.user.groups
                if _value(request.object, name) and not privileged:
                    why = f"only schedulers may give annotation {name} to a pod with a node"
                    return Review(denied=forbidden("", "pods", request.name, why))
        elif resource == ("", "bindings") or (resource == ("", "pods") and request.subresource == "binding"):
            old = {}
        if old is None:
            return PASS
        for record in self._records:
            if _value(request.object, record.annotation) != _value(old, record.annotation):
                why = f"only schedulers may change annotation {record.annotation}"
                return Review(denied=forbidden("", "pods", request.name, why))
        return PASS


def _has_node(document: Document) -> bool:
    return bool((document.get("spec") or {}).get("nodeName"))


def _value(document: Document, annotation: str) -> object:
    return ((document.get("metadata") or {}).get("annotations") or {}).get(annotation)
