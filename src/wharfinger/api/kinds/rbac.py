"""Kinds of role-based access control."""

from __future__ import annotations

from wharfinger.api.columns import rbac as columns
from wharfinger.api.defaults import rbac as defaults
from wharfinger.api.defaults.walk import typed
from wharfinger.api.names import path_segment
from wharfinger.api.registry import Column, DefaultFn, Kind
from wharfinger.api.validation import rbac as rules
from wharfinger.api.validation.common import Rules, checked

_GROUP = "rbac.authorization.k8s.io"


def _rbac_kind(
    kind: str,
    plural: str,
    faults: Rules,
    columns: tuple[Column, ...],
    default: DefaultFn | None = None,
    *,
    namespaced: bool = True,
) -> Kind:
    return Kind(
        _GROUP,
        kind,
        plural,
        namespaced=namespaced,
        generation=False,
        name_faults=path_segment,
        default=typed(default),
        validate=checked(f"{_GROUP}/v1", kind, faults),
        columns=columns,
        create_on_update=True,
    )


ROLE = _rbac_kind("Role", "roles", rules.role_faults, columns.ROLE_COLUMNS)
ROLE_BINDING = _rbac_kind(
    "RoleBinding", "rolebindings", rules.role_binding_faults, columns.BINDING_COLUMNS, defaults.default_binding
)
CLUSTER_ROLE = _rbac_kind(
    "ClusterRole", "clusterroles", rules.cluster_role_faults, columns.ROLE_COLUMNS, namespaced=False
)
CLUSTER_ROLE_BINDING = _rbac_kind(
    "ClusterRoleBinding",
    "clusterrolebindings",
    rules.cluster_role_binding_faults,
    columns.BINDING_COLUMNS,
    defaults.default_binding,
    namespaced=False,
)

KINDS = (ROLE, ROLE_BINDING, CLUSTER_ROLE, CLUSTER_ROLE_BINDING)
