"""The reviewers over a store in process, and what they read from it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from wharfinger.admission.extension import AdmissionContext, SystemReviewers
from wharfinger.admission.rbac import RbacIndex
from wharfinger.admission.reads import Derived, ObjectVersion, Reads
from wharfinger.admission.request import User
from wharfinger.admission.requesters import CONTROLLERS, RequesterReviewer
from wharfinger.api.kinds.builtin import (
    NAMESPACES,
    PRIORITY_CLASSES,
)
from wharfinger.api.views import decode
from wharfinger.api.views.meta import Metadata
from wharfinger.api.views.workloads import PriorityClass
from wharfinger.systems.scheduling_policy.admission.reviewer import SchedulingPolicyReviewer
from wharfinger.systems.scheduling_policy.admission.violation_counts import ViolationCounts
from wharfinger.systems.scheduling_policy.kinds.names import SCHEDULING_POLICIES
from wharfinger.systems.scheduling_policy.rules.lookup import PolicySet, usable_by
from wharfinger.systems.scheduling_policy.settings import SchedulingPolicySettings


class StoredPolicies:
    """The policies, rights and namespaces that a review needs, read from a store."""

    def __init__(self, reads: Reads, rbac: Callable[[], RbacIndex]) -> None:
        self._reads = reads
        self._rbac = rbac
        self._set = PolicySet(())
        self._policies = Derived(reads, SCHEDULING_POLICIES, self._read_policies)
        self._global_class = Derived(reads, PRIORITY_CLASSES, _global_class)

    def _read_policies(self, found: Sequence[ObjectVersion]) -> PolicySet:
        self._set = PolicySet(found, self._set, document=lambda stored: stored.document())
        return self._set

    def policies(self) -> PolicySet:
        return self._policies.get()

    def usable(self, user: User, namespace: str, names: Collection[str]) -> frozenset[str]:
        return usable_by(self._rbac(), user, namespace, names)

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        found = self._reads.peek(NAMESPACES, name)
        return {} if found is None else decode(found.data, Metadata).metadata.labels

    def global_priority_class(self) -> str:
        return self._global_class.get()

    def priority_of(self, priority_class: str) -> int | None:
        found = self._reads.peek(PRIORITY_CLASSES, priority_class)
        return None if found is None else decode(found.data, PriorityClass).value


def _global_class(classes: Sequence[ObjectVersion]) -> str:
    """Of several classes that claim to be the global default the one with the lowest value counts, as in the Priority
    plugin."""
    defaults = [found for stored in classes if (found := decode(stored.data, PriorityClass)).global_default]
    return min(defaults, key=lambda found: found.value).metadata.name if defaults else ""


def reviewers(
    reads: Reads,
    rbac: Callable[[], RbacIndex],
    settings: SchedulingPolicySettings | None = None,
    counts: ViolationCounts | None = None,
) -> SystemReviewers:
    """The injecting reviewer runs before priority classes are resolved, the checking one looks at the final object."""
    noted = None if counts is None else counts.note
    world = StoredPolicies(reads, rbac)
    return SystemReviewers(
        before_stock=[
            RequesterReviewer(CONTROLLERS, mutating=True),
            SchedulingPolicyReviewer(world, settings, mutating=True),
        ],
        validating=[
            RequesterReviewer(CONTROLLERS, mutating=False),
            SchedulingPolicyReviewer(world, settings, mutating=False, on_violation=noted),
        ],
        upkeep=None if counts is None else counts.write,
    )


def stored_reviewers(context: AdmissionContext) -> SystemReviewers:
    """The reviewers over a store in process."""
    counts = None if context.metrics is None else ViolationCounts(context.metrics, context.now)
    return reviewers(context.objects, context.rbac, context.configuration.of(SchedulingPolicySettings), counts)
