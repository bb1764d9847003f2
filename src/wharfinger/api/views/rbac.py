"""Views of the RBAC kinds."""

from __future__ import annotations

from msgspec import field

from wharfinger.api.selectors import LabelSelector
from wharfinger.api.views.base import View
from wharfinger.api.views.meta import ObjectView


class PolicyRule(View, frozen=True):
    """Verbs that a role grants on resources (of some names) or on URL paths."""

    verbs: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()
    non_resource_urls: tuple[str, ...] = field(name="nonResourceURLs", default=())


class Subject(View, frozen=True):
    kind: str = ""
    name: str = ""
    namespace: str = ""
    api_group: str = ""


class RoleRef(View, frozen=True):
    kind: str = ""
    name: str = ""
    api_group: str = ""


class AggregationRule(View, frozen=True):
    cluster_role_selectors: tuple[LabelSelector, ...] = ()


class Role(ObjectView, frozen=True):
    rules: tuple[PolicyRule, ...] = ()


class ClusterRole(ObjectView, frozen=True):
    rules: tuple[PolicyRule, ...] = ()
    aggregation_rule: AggregationRule | None = None


class RoleBinding(ObjectView, frozen=True):
    role_ref: RoleRef = field(default_factory=RoleRef)
    subjects: tuple[Subject, ...] = ()


class ClusterRoleBinding(ObjectView, frozen=True):
    role_ref: RoleRef = field(default_factory=RoleRef)
    subjects: tuple[Subject, ...] = ()
