"""The world of a review over a store in process, and the reviewers that a chain takes from here."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from wharfinger.admission.rbac import RbacIndex, RbacObject, aggregated
from wharfinger.admission.reads import Changes, Derived, Reads, Stored
from wharfinger.admission.request import Reviewer, User
from wharfinger.api.configuration import SchedulingPolicySettings
from wharfinger.api.kinds.builtin import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    NAMESPACES,
    PRIORITY_CLASSES,
    ROLE_BINDINGS,
    ROLES,
)
from wharfinger.api.views import decode
from wharfinger.api.views.meta import Metadata
from wharfinger.api.views.rbac import ClusterRole, ClusterRoleBinding, Role, RoleBinding
from wharfinger.api.views.workloads import PriorityClass
from wharfinger.systems.scheduling_policy.admission.reviewer import SchedulingPolicyReviewer
from wharfinger.systems.scheduling_policy.kinds.names import SCHEDULING_POLICIES
from wharfinger.systems.scheduling_policy.rules.world import PolicySet, usable_by

_RBAC = (
    (ROLES, Role),
    (CLUSTER_ROLES, ClusterRole),
    (ROLE_BINDINGS, RoleBinding),
    (CLUSTER_ROLE_BINDINGS, ClusterRoleBinding),
)


class StoredRbac:
    """An RBAC index that follows a store: brought up to date whenever it is asked for. What a controller would write into
    aggregated cluster roles counts at once."""

    def __init__(self, reads: Reads) -> None:
        self._index = RbacIndex()
        self._cluster_roles: dict[str, ClusterRole] = {}
        self._sources: list[tuple[Changes, type[RbacObject]]] = [
            (Changes(reads, resource), as_type) for resource, as_type in _RBAC
        ]

    def index(self) -> RbacIndex:
        for changes, as_type in self._sources:
            changed, gone = changes.take()
            for stored in gone:
                self._index.remove(decode(stored.data, as_type))
            for stored in changed:
                self._index.upsert(decode(stored.data, as_type))
            if as_type is ClusterRole and (changed or gone):
                self._aggregate(changed, gone)
        return self._index

    def _aggregate(self, changed: Sequence[Stored], gone: Sequence[Stored]) -> None:
        for stored in gone:
            del self._cluster_roles[stored.name]
        self._cluster_roles |= {stored.name: decode(stored.data, ClusterRole) for stored in changed}
        for role in aggregated(self._cluster_roles.values()):
            self._index.upsert(role)


class StoredWorld:
    """`index` may be given where another part follows the roles and bindings already."""

    def __init__(self, reads: Reads, *, index: RbacIndex | None = None) -> None:
        self._reads = reads
        self._rbac = StoredRbac(reads) if index is None else None
        self._index = index
        self._set = PolicySet(())
        self._policies = Derived(reads, SCHEDULING_POLICIES, self._read_policies)
        self._global_class = Derived(reads, PRIORITY_CLASSES, _global_class)

    def _read_policies(self, found: Sequence[Stored]) -> PolicySet:
        self._set = PolicySet(found, self._set, document=lambda stored: stored.document())
        return self._set

    def policies(self) -> PolicySet:
        return self._policies.get()

    def usable(self, user: User, namespace: str, names: Collection[str]) -> frozenset[str]:
        index = self._rbac.index() if self._rbac is not None else self._index
        assert index is not None
        return usable_by(index, user, namespace, names)

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        found = self._reads.peek(NAMESPACES, name)
        return {} if found is None else decode(found.data, Metadata).metadata.labels

    def global_priority_class(self) -> str:
        return self._global_class.get()


def _global_class(classes: Sequence[Stored]) -> str:
    """Where several claim to be the default, the lowest is it, as for the Priority plugin."""
    defaults = [found for stored in classes if (found := decode(stored.data, PriorityClass)).global_default]
    return min(defaults, key=lambda found: found.value).metadata.name if defaults else ""


def reviewers(
    reads: Reads, settings: SchedulingPolicySettings | None = None, *, index: RbacIndex | None = None
) -> tuple[Reviewer, Reviewer]:
    """The mutating and the validating reviewer. The mutating one goes before what resolves priority classes."""
    world = StoredWorld(reads, index=index)
    return (
        SchedulingPolicyReviewer(world, settings, mutating=True),
        SchedulingPolicyReviewer(world, settings, mutating=False),
    )
