"""Kinds of role-based access control."""

from __future__ import annotations

from wharfinger.api.columns import rbac as columns
from wharfinger.api.defaults import rbac as defaults
from wharfinger.api.defaults.walk import typed
from wharfinger.api.names import path_segment
from wharfinger.api.registry import Kind
from wharfinger.api.validation import rbac as rules
from wharfinger.api.validation.common import checked

_GROUP = "rbac.authorization.k8s.io"

ROLE = Kind(
    _GROUP, "Role", "roles", generation=False, name_faults=path_segment, default=typed(),
    validate=checked("rbac.authorization.k8s.io/v1", "Role", rules.role_faults), columns=columns.ROLE_COLUMNS,
    create_on_update=True,
)  # fmt: skip
ROLE_BINDING = Kind(
    _GROUP, "RoleBinding", "rolebindings", generation=False, name_faults=path_segment,
    default=typed(defaults.default_binding),
    validate=checked("rbac.authorization.k8s.io/v1", "RoleBinding", rules.role_binding_faults),
    columns=columns.BINDING_COLUMNS, create_on_update=True,
)  # fmt: skip
CLUSTER_ROLE = Kind(
    _GROUP, "ClusterRole", "clusterroles", namespaced=False, generation=False, name_faults=path_segment,
    default=typed(), validate=checked("rbac.authorization.k8s.io/v1", "ClusterRole", rules.cluster_role_faults),
    columns=columns.ROLE_COLUMNS, create_on_update=True,
)  # fmt: skip
CLUSTER_ROLE_BINDING = Kind(
    _GROUP, "ClusterRoleBinding", "clusterrolebindings", namespaced=False, generation=False,
    name_faults=path_segment, default=typed(defaults.default_binding),
    validate=checked("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", rules.cluster_role_binding_faults),
    columns=columns.BINDING_COLUMNS, create_on_update=True,
)  # fmt: skip

KINDS = (ROLE, ROLE_BINDING, CLUSTER_ROLE, CLUSTER_ROLE_BINDING)
