"""RBAC authorization over roles and bindings that are fed in as they change.

`RbacIndex` keeps one table of grants for each subject and namespace, so that a check costs a few look-ups, however many
bindings there are. `rbac_escalation` decides who may grant permissions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from wharfinger.admission.request import User
from wharfinger.api.errors import Forbidden, forbidden
from wharfinger.api.keys import ObjectKey
from wharfinger.api.selectors import FieldRequirement, compile_label_selector, matches
from wharfinger.api.views import view
from wharfinger.api.views.rbac import (
    ClusterRole,
    ClusterRoleBinding,
    PolicyRule,
    Role,
    RoleBinding,
    RoleRef,
    Subject,
)

MASTERS = "system:masters"
"""The group that may do everything, regardless of roles."""

FULL_AUTHORITY = (
    PolicyRule(verbs=("*",), api_groups=("*",), resources=("*",)),
    PolicyRule(verbs=("*",), non_resource_urls=("*",)),
)

RbacObject = Role | ClusterRole | RoleBinding | ClusterRoleBinding
_VIEWS: dict[str, type[RbacObject]] = {
    "Role": Role,
    "ClusterRole": ClusterRole,
    "RoleBinding": RoleBinding,
    "ClusterRoleBinding": ClusterRoleBinding,
}


class Attributes(msgspec.Struct, frozen=True):
    """An authorization request: may `user` do `verb`? With a `path` it is about a URL, otherwise about a resource."""

    user: User
    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    namespace: str = ""
    path: str = ""
    fields: tuple[FieldRequirement, ...] = ()  # the field selector; RBAC ignores it

    def denial(self) -> str:
        """The text of an API server that denies the request."""
        if self.path:
            return f'User "{self.user.name}" cannot {self.verb} path "{self.path}"'
        resource = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        scope = f'in the namespace "{self.namespace}"' if self.namespace else "at the cluster scope"
        return f'User "{self.user.name}" cannot {self.verb} resource "{resource}" in API group "{self.group}" {scope}'

    def forbidden(self, reason: str = "") -> Forbidden:
        why = self.denial().replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        return forbidden(self.group, self.resource, self.name, f"{why}: {reason}" if reason else why)


class RbacDecision(msgspec.Struct, frozen=True):
    allowed: bool
    reason: str = ""


_MASTER = RbacDecision(True)


class _Grants(msgspec.Struct):
    """What one subject is granted in one scope. Strings name the granting binding."""

    resources: dict[tuple[str, str, str], tuple[dict[str, str], str]] = msgspec.field(default_factory=dict)
    """(verb, group, resource) to the bindings by object name, and the binding that grants all names or an empty string."""
    urls: list[tuple[frozenset[str], str, str]] = msgspec.field(default_factory=list)  # verbs, pattern, binding

    def add(self, rules: Iterable[PolicyRule], source: str) -> None:
        for rule in rules:
            for verb in rule.verbs:
                for group in rule.api_groups:
                    for resource in rule.resources:
                        by_name, for_all = self.resources.get((verb, group, resource)) or ({}, "")
                        if not rule.resource_names:
                            for_all = for_all or source
                        for name in rule.resource_names:
                            by_name.setdefault(name, source)
                        self.resources[verb, group, resource] = (by_name, for_all)
            for url in rule.non_resource_urls:
                self.urls.append((frozenset(rule.verbs), url, source))

    def resource_source(self, asked: Attributes) -> str:
        for by_name, for_all in self._entries(asked):
            if source := for_all or by_name.get(asked.name, ""):
                return source
        return ""

    def url_source(self, asked: Attributes) -> str:
        for verbs, pattern, source in self.urls:
            if (asked.verb in verbs or "*" in verbs) and url_matches(pattern, asked.path):
                return source
        return ""

    def names(self, asked: Attributes) -> frozenset[str] | None:
        """The object names granted; None for all names."""
        found: set[str] = set()
        for by_name, for_all in self._entries(asked):
            if for_all:
                return None
            found.update(by_name)
        return frozenset(found)

    def _entries(self, asked: Attributes) -> Iterator[tuple[dict[str, str], str]]:
        # `pods/*` is not a wildcard in RBAC: only `*` and `*/status` are (rbac/v1/evaluation_helpers.go).
        if asked.subresource:
            wanted: tuple[str, ...] = (f"{asked.resource}/{asked.subresource}", "*", f"*/{asked.subresource}")
        else:
            wanted = (asked.resource, "*")
        get = self.resources.get
        for verb in (asked.verb, "*"):
            for group in (asked.group, "*"):
                for resource in wanted:
                    if entry := get((verb, group, resource)):
                        yield entry


_Scope = tuple[str, str, str]
"""Namespace (empty for the whole cluster), `User` or `Group`, and name. Service accounts are users."""


class RbacIndex:
    """Roles and bindings, indexed by subject. Not thread-safe."""

    def __init__(self, objects: Iterable[RbacObject | dict[str, Any]] = ()) -> None:
        self._roles: dict[ObjectKey, tuple[PolicyRule, ...]] = {}  # (namespace or "", name)
        self._bindings: dict[ObjectKey, RoleBinding | ClusterRoleBinding] = {}
        self._by_role: dict[ObjectKey, dict[ObjectKey, None]] = {}  # role to its bindings
        self._by_scope: dict[_Scope, dict[ObjectKey, Subject]] = {}  # subject to its bindings
        self.revision = 0  # incremented by every change; callers cache decisions by it
        self._grants: dict[_Scope, _Grants] = {}  # computed on first use, dropped when a role or binding changes
        for item in objects:
            self.upsert(item)

    # Updates

    def upsert(self, item: RbacObject | dict[str, Any]) -> None:
        """Adds or replaces an object, given as a view or a document."""
        item = as_view(item)
        self.revision += 1
        if isinstance(item, Role | ClusterRole):
            key = _key(item)
            self._roles[key] = item.rules
            self._forget_role(key)
            return
        self.remove(item)
        key = _key(item)
        self._bindings[key] = item
        self._by_role.setdefault(_role_key(item), {})[key] = None
        for subject in item.subjects:
            if (scope := _scope(subject, key[0])) is not None:
                self._by_scope.setdefault(scope, {}).setdefault(key, subject)
                self._grants.pop(scope, None)

    def remove(self, item: RbacObject | dict[str, Any]) -> None:
        item = as_view(item)
        self.revision += 1
        key = _key(item)
        if isinstance(item, Role | ClusterRole):
            self._roles.pop(key, None)
            self._forget_role(key)
            return
        old = self._bindings.pop(key, None)
        if old is None:
            return
        self._by_role[_role_key(old)].pop(key, None)
        for subject in old.subjects:
            if (scope := _scope(subject, key[0])) is not None and scope in self._by_scope:
                self._by_scope[scope].pop(key, None)
                if not self._by_scope[scope]:
                    del self._by_scope[scope]
                self._grants.pop(scope, None)

    def _forget_role(self, role: ObjectKey) -> None:
        for key in self._by_role.get(role, ()):
            for subject in self._bindings[key].subjects:
                if (scope := _scope(subject, key[0])) is not None:
                    self._grants.pop(scope, None)

    # Queries

    def allowed(self, asked: Attributes) -> RbacDecision:
        if MASTERS in asked.user.groups:
            return _MASTER
        for grants in self._grants_of(asked.user, asked.namespace):
            source = grants.url_source(asked) if asked.path else grants.resource_source(asked)
            if source:
                return RbacDecision(True, f"RBAC: allowed by {source}")
        return RbacDecision(False)

    def names_allowed(self, asked: Attributes) -> frozenset[str] | None:
        """The names of objects for which this is allowed, whatever `asked.name` is; None for all."""
        if MASTERS in asked.user.groups:
            return None
        found: frozenset[str] = frozenset()
        for grants in self._grants_of(asked.user, asked.namespace):
            names = grants.names(asked)
            if names is None:
                return None
            found |= names
        return found

    def rules_for(self, user: User, namespace: str = "") -> list[PolicyRule]:
        """All rules that apply to the user: cluster-wide ones, and those bound in the namespace if one is given."""
        rules = list(FULL_AUTHORITY) if MASTERS in user.groups else []
        seen: set[ObjectKey] = set()
        for scope in _scopes(user, namespace):
            for key in self._by_scope.get(scope, ()):
                if key not in seen:
                    seen.add(key)
                    rules += self._roles.get(_role_key(self._bindings[key]), ())
        return rules

    def rules_of(self, reference: RoleRef, namespace: str) -> tuple[PolicyRule, ...] | None:
        """The rules of the role that a binding in `namespace` refers to; None if it does not exist."""
        return self._roles.get(("" if reference.kind == "ClusterRole" else namespace, reference.name))

    def _grants_of(self, user: User, namespace: str) -> Iterator[_Grants]:
        for scope in _scopes(user, namespace):
            if scope in self._by_scope:
                yield self._granted(scope)

    def _granted(self, scope: _Scope) -> _Grants:
        grants = self._grants.get(scope)
        if grants is None:
            grants = self._grants[scope] = _Grants()
            for key, subject in self._by_scope[scope].items():
                binding = self._bindings[key]
                grants.add(self._roles.get(_role_key(binding), ()), _describe(binding, subject))
        return grants


def as_view(item: RbacObject | dict[str, Any]) -> RbacObject:
    if isinstance(item, dict):
        kind = item.get("kind")
        if kind not in _VIEWS:
            raise ValueError(f"{kind} is not an RBAC kind")
        return view(item, _VIEWS[kind])
    return item


def url_matches(pattern: str, path: str) -> bool:
    return pattern == path or (pattern.endswith("*") and path.startswith(pattern.rstrip("*")))


def aggregated_rules(role: ClusterRole, all_roles: Iterable[ClusterRole]) -> tuple[PolicyRule, ...]:
    """The rules of an aggregated ClusterRole: those of all roles that its selectors match, without duplicates."""
    if role.aggregation_rule is None:
        return role.rules
    others = sorted((other for other in all_roles if other.metadata.name != role.metadata.name), key=_name)
    found: dict[PolicyRule, None] = {}
    for selector in role.aggregation_rule.cluster_role_selectors:
        wanted = compile_label_selector(selector)
        for other in others:
            if matches(wanted, other.metadata.labels):
                found.update(dict.fromkeys(other.rules))
    return tuple(found)


def aggregated(roles: Iterable[ClusterRole]) -> list[ClusterRole]:
    """The roles with an aggregation rule, with their aggregated rules. They may aggregate one another (admin includes edit,
    edit includes view), so this is repeated until nothing changes."""
    found = {role.metadata.name: role for role in roles}
    wholes = [name for name, role in found.items() if role.aggregation_rule is not None]
    for _ in wholes:
        before = [found[name] for name in wholes]
        for name in wholes:
            found[name] = msgspec.structs.replace(found[name], rules=aggregated_rules(found[name], found.values()))
        if before == [found[name] for name in wholes]:
            break
    return [found[name] for name in wholes]


def _name(role: ClusterRole) -> str:
    return role.metadata.name


def _key(item: RbacObject) -> ObjectKey:
    namespaced = isinstance(item, Role | RoleBinding)
    return (item.metadata.namespace if namespaced else "", item.metadata.name)


def _role_key(binding: RoleBinding | ClusterRoleBinding) -> ObjectKey:
    local = binding.role_ref.kind == "Role"
    # A ClusterRoleBinding cannot refer to a Role: no role has the key with "-".
    return (binding.metadata.namespace or "-" if local else "", binding.role_ref.name)


def _scope(subject: Subject, namespace: str) -> _Scope | None:
    if subject.kind == "ServiceAccount":
        account_namespace = subject.namespace or namespace
        if not account_namespace:
            return None
        return (namespace, "User", f"system:serviceaccount:{account_namespace}:{subject.name}")
    return (namespace, subject.kind, subject.name) if subject.kind in ("User", "Group") else None


def _scopes(user: User, namespace: str) -> Iterator[_Scope]:
    for where in ("", namespace) if namespace else ("",):
        yield (where, "User", user.name)
        for group in user.groups:
            yield (where, "Group", group)


def _describe(binding: RoleBinding | ClusterRoleBinding, subject: Subject) -> str:
    namespace = binding.metadata.namespace
    if isinstance(binding, ClusterRoleBinding):
        kind, name, namespace = "ClusterRoleBinding", binding.metadata.name, ""
    else:
        kind, name = "RoleBinding", f"{binding.metadata.name}/{namespace}"
    who = subject.name
    if subject.kind == "ServiceAccount":
        who = f"{who}/{subject.namespace or namespace}"
    return f'{kind} "{name}" of {binding.role_ref.kind} "{binding.role_ref.name}" to {subject.kind} "{who}"'
