"""Privilege escalation prevention: users may grant only permissions that they have, by roles or by bindings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from wharfinger.admission.rbac import FULL_AUTHORITY, MASTERS, Attributes, RbacIndex, as_view, url_matches
from wharfinger.admission.request import PASS, Request, Review, User
from wharfinger.api.errors import forbidden, not_found
from wharfinger.api.fields import show
from wharfinger.api.object_meta import only_for_collection
from wharfinger.api.views.rbac import ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding

GROUP = "rbac.authorization.k8s.io"


def uncovered(held: Iterable[PolicyRule], wanted: Iterable[PolicyRule]) -> list[PolicyRule]:
    """The parts of `wanted` that no single rule of `held` covers, with one verb, resource and name each."""
    owned = list(held)
    return [part for rule in wanted for part in breakdown(rule) if not any(_covers(owner, part) for owner in owned)]


def breakdown(rule: PolicyRule) -> Iterator[PolicyRule]:
    each_name: list[tuple[str, ...]] = [(name,) for name in rule.resource_names] or [()]
    for group in rule.api_groups:
        for resource in rule.resources:
            for verb in rule.verbs:
                for names in each_name:
                    yield PolicyRule((verb,), (group,), (resource,), names)
    for url in rule.non_resource_urls:
        for verb in rule.verbs:
            yield PolicyRule((verb,), non_resource_urls=(url,))


def _covers(owner: PolicyRule, part: PolicyRule) -> bool:
    return (
        _has(owner.verbs, part.verbs)
        and _has(owner.api_groups, part.api_groups)
        and all(_covers_resource(owner.resources, resource) for resource in part.resources)
        and (
            not owner.resource_names
            or (bool(part.resource_names) and set(part.resource_names) <= set(owner.resource_names))
        )
        and all(any(url_matches(mine, url) for mine in owner.non_resource_urls) for url in part.non_resource_urls)
    )


def _has(mine: Sequence[str], wanted: Sequence[str]) -> bool:
    return "*" in mine or set(wanted) <= set(mine)


def _covers_resource(mine: Sequence[str], resource: str) -> bool:
    if "*" in mine or resource in mine:
        return True
    _, slash, subresource = resource.partition("/")
    return bool(slash) and f"*/{subresource}" in mine


def compact(rules: Iterable[PolicyRule]) -> list[PolicyRule]:
    """Merges rules that differ only in their verb, for messages."""
    urls = []
    verbs: dict[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]], tuple[str, ...]] = {}
    for rule in rules:
        if rule.non_resource_urls:
            urls.append(rule)
            continue
        key = (rule.api_groups, rule.resources, rule.resource_names)
        verbs[key] = verbs.get(key, ()) + rule.verbs
    return urls + [PolicyRule(found, *key) for key, found in verbs.items()]


def describe(rule: PolicyRule) -> str:
    parts = (
        ("APIGroups", rule.api_groups),
        ("Resources", rule.resources),
        ("NonResourceURLs", rule.non_resource_urls),
        ("ResourceNames", rule.resource_names),
        ("Verbs", rule.verbs),
    )
    return "{" + ", ".join(f"{name}:{_quoted(values)}" for name, values in parts if values) + "}"


def _quoted(values: Sequence[str]) -> str:
    return "[" + " ".join(show(value) for value in values) + "]"


def escalation(index: RbacIndex, user: User, namespace: str, wanted: Iterable[PolicyRule]) -> str:
    """Why the user may not grant these rules; empty if they may."""
    missing = uncovered(index.rules_for(user, namespace), wanted)
    if not missing:
        return ""
    lines = "\n".join(sorted({describe(rule) for rule in compact(missing)}))
    return (
        f'user "{user.name}" (groups={_quoted(user.groups)}) is attempting to grant RBAC permissions not currently '
        f"held:\n{lines}"
    )


class EscalationReviewer:
    """Validating: creates and updates of the four RBAC kinds."""

    def __init__(self, index: RbacIndex) -> None:
        self._index = index

    def concerns(self, group: str, plural: str, subresource: str) -> bool:
        return group == GROUP and not subresource

    def review(self, request: Request) -> Review:
        if (
            request.resource.group != GROUP
            or request.subresource
            or request.operation not in ("CREATE", "UPDATE")
            or request.object is None
            or MASTERS in request.user.groups
            or (request.old is not None and only_for_collection(request.object, request.old))
        ):
            return PASS
        new = as_view({"kind": request.resource.kind, **request.object})
        if isinstance(new, Role | ClusterRole):
            return self._role(request, new)
        return self._binding(request, new)

    def _role(self, request: Request, role: Role | ClusterRole) -> Review:
        name, plural = role.metadata.name or request.name, request.resource.plural
        asked = Attributes(request.user, "escalate", GROUP, plural, name=name, namespace=request.namespace)
        if self._index.allowed(asked).allowed:
            return PASS
        if why := escalation(self._index, request.user, request.namespace, role.rules):
            return Review(forbidden(GROUP, plural, name, why))
        if _aggregates(role) or (
            request.old is not None and _aggregates(as_view({**request.old, "kind": "ClusterRole"}))
        ):
            if escalation(self._index, request.user, request.namespace, FULL_AUTHORITY):
                why = "must have cluster-admin privileges to use the aggregationRule"
                return Review(forbidden(GROUP, plural, name, why))
        return PASS

    def _binding(self, request: Request, binding: RoleBinding | ClusterRoleBinding) -> Review:
        name, reference = binding.metadata.name or request.name, binding.role_ref
        plural = {"ClusterRole": "clusterroles", "Role": "roles"}.get(reference.kind)
        if plural is None:
            return PASS  # validation refuses it
        group = reference.api_group or GROUP
        asked = Attributes(request.user, "bind", group, plural, name=reference.name, namespace=request.namespace)
        if self._index.allowed(asked).allowed:
            return PASS
        rules = self._index.rules_of(reference, request.namespace)
        if rules is None:
            return Review(not_found(GROUP, plural, reference.name))
        if why := escalation(self._index, request.user, request.namespace, rules):
            return Review(forbidden(GROUP, request.resource.plural, name, why))
        return PASS


def _aggregates(role: object) -> bool:
    return (
        isinstance(role, ClusterRole)
        and role.aggregation_rule is not None
        and bool(role.aggregation_rule.cluster_role_selectors)
    )
