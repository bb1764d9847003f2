"""Which requests a webhook or an admission policy applies to: rules, selectors and match conditions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from wharfinger.admission.request import Request
from wharfinger.api.kinds.builtin import MUTATING_WEBHOOKS, NAMESPACES
from wharfinger.api.registry import Document, Registry, Resource
from wharfinger.api.selectors import BadSelector, LabelSelector, Requirements, compile_label_selector, matches
from wharfinger.apiserver.expressions import BOOL, typed_expression
from wharfinger.cel import Bindings, EvaluationError, InvalidExpression


class RequestMatcher:
    """Rules and selectors of one webhook, policy or binding."""

    def __init__(self, document: Document, *, rules: str = "resourceRules") -> None:
        self._rules: list[Document] = document.get(rules) or []
        self._excluded: list[Document] = document.get("excludeResourceRules") or []
        self._equivalent = document.get("matchPolicy", "Equivalent") == "Equivalent"
        self._namespaces = selector(document.get("namespaceSelector"))
        self._objects = selector(document.get("objectSelector"))

    def find(
        self,
        request: Request,
        registry: Registry,
        namespace_labels: dict[str, str] | None,
        *,
        all_without_rules: bool = False,
    ) -> Resource | None:
        """The resource as which the request matches: its own, or an equivalent one of another group or version."""
        if self._namespaces and namespace_labels is not None and not matches(self._namespaces, namespace_labels):
            return None
        if self._objects and not any(
            matches(self._objects, labels_of(one)) for one in (request.object, request.old) if one is not None
        ):
            return None
        if self._excluded and self._by_rules(self._excluded, request, registry) is not None:
            return None
        if not self._rules and all_without_rules:
            return request.resource
        return self._by_rules(self._rules, request, registry)

    def _by_rules(self, rules: Sequence[Document], request: Request, registry: Registry) -> Resource | None:
        if any(_rule_matches(rule, request, request.resource) for rule in rules):
            return request.resource
        if not self._equivalent:
            return None
        for rule in rules:
            for resource in _equivalents(request.resource, registry):
                if _rule_matches(rule, request, resource):
                    return resource
        return None


def _equivalents(resource: Resource, registry: Registry) -> Iterable[Resource]:
    kind = registry.of_plural(resource.group, resource.plural)
    if kind is None:
        return
    for group in (kind.group, *kind.alias_groups):
        for version in kind.versions:
            if (group, version) != (resource.group, resource.version):
                yield replace(resource, group=group, version=version)


def selector(document: Document | None) -> Requirements:
    try:
        return compile_label_selector(msgspec.convert(document or {}, LabelSelector))
    except (BadSelector, msgspec.ValidationError):
        return ()  # cannot be stored: validation rejects it


def labels_of(document: Document) -> dict[str, str]:
    labels = (document.get("metadata") or {}).get("labels")
    return labels if isinstance(labels, dict) else {}


def is_namespace(resource: Resource) -> bool:
    return resource.plural == NAMESPACES.plural and not resource.group


def exempt(resource: Resource) -> bool:
    """Webhooks and policies never apply to the objects that configure them, so that a mistake can be corrected."""
    return resource.group == MUTATING_WEBHOOKS.group


def _rule_matches(rule: Document, request: Request, resource: Resource) -> bool:
    scope = rule.get("scope") or "*"
    if scope != "*" and (scope == "Namespaced") != resource.namespaced:
        return False
    names = rule.get("resourceNames")
    return (
        _listed(rule.get("operations"), request.operation)
        and _listed(rule.get("apiGroups"), resource.group)
        and _listed(rule.get("apiVersions"), resource.version)
        and any(_resource_matches(entry, resource.plural, request.subresource) for entry in rule.get("resources") or [])
        and (not names or request.name in names)
    )


def _listed(entries: Iterable[str] | None, wanted: str) -> bool:
    listed = tuple(entries or ())
    return "*" in listed or wanted in listed


def _resource_matches(entry: str, plural: str, subresource: str) -> bool:
    name, slash, part = entry.partition("/")
    if name not in ("*", plural):
        return False
    return part in ("*", subresource) if slash else not subresource


class MatchConditionError(Exception):
    """Match conditions that could not be evaluated, under the failure policy Fail."""


def conditions_hold(conditions: Iterable[Document], bindings: Bindings, *, fails: bool) -> bool:
    """Whether all match conditions are true. A condition that is false takes precedence over errors in others."""
    errors = []
    for condition in conditions:
        text = str(condition.get("expression") or "").strip()
        try:
            if typed_expression(text, bindings.environment.variables, BOOL).evaluate(bindings) is False:
                return False
        except EvaluationError as error:
            errors.append(f"expression '{text}' resulted in error: {error}")
        except InvalidExpression as error:
            errors.append(f"compilation error: {error}")
    if errors and fails:
        unique = list(dict.fromkeys(errors))
        raise MatchConditionError(unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]")
    return not errors
