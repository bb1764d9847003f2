"""Kinds of role-based access control."""

from __future__ import annotations

from wharfinger.api.names import path_segment
from wharfinger.api.registry import Kind

_GROUP = "rbac.authorization.k8s.io"

ROLES = Kind(_GROUP, "Role", "roles", generation=False, name_faults=path_segment)
ROLE_BINDINGS = Kind(_GROUP, "RoleBinding", "rolebindings", generation=False, name_faults=path_segment)
CLUSTER_ROLES = Kind(
    _GROUP, "ClusterRole", "clusterroles", namespaced=False, generation=False, name_faults=path_segment
)
CLUSTER_ROLE_BINDINGS = Kind(
    _GROUP, "ClusterRoleBinding", "clusterrolebindings", namespaced=False, generation=False, name_faults=path_segment
)

KINDS = (ROLES, ROLE_BINDINGS, CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS)
