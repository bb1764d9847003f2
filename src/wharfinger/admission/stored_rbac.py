"""An RBAC index that follows the roles and bindings of a store."""

from __future__ import annotations

from collections.abc import Sequence

from wharfinger.admission.rbac import RbacIndex, RbacObject, aggregated
from wharfinger.admission.reads import Changes, ObjectVersion, Reads
from wharfinger.api.kinds.builtin import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES
from wharfinger.api.views import decode
from wharfinger.api.views.rbac import ClusterRole, ClusterRoleBinding, Role, RoleBinding

_RBAC = (
    (ROLES, Role),
    (CLUSTER_ROLES, ClusterRole),
    (ROLE_BINDINGS, RoleBinding),
    (CLUSTER_ROLE_BINDINGS, ClusterRoleBinding),
)


class StoredRbac:
    """Updated on every read. Aggregated cluster roles take effect at once, without a controller that writes their rules."""

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

    def _aggregate(self, changed: Sequence[ObjectVersion], gone: Sequence[ObjectVersion]) -> None:
        for stored in gone:
            del self._cluster_roles[stored.name]
        self._cluster_roles |= {stored.name: decode(stored.data, ClusterRole) for stored in changed}
        for role in aggregated(self._cluster_roles.values()):
            self._index.upsert(role)
