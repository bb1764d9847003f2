"""Validation of FlowSchemas and PriorityLevelConfigurations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from wharfinger.api.fields import FieldError, duplicate, forbidden, invalid, not_supported, required
from wharfinger.api.flow_control import MANDATORY, flow_schemas, priority_levels
from wharfinger.api.names import dns_label, dns_subdomain
from wharfinger.api.registry import Document
from wharfinger.api.validation.common import name_faults
from wharfinger.api.validation.selectors import each

_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch")
_SUBJECTS = {"Group": "group", "ServiceAccount": "serviceAccount", "User": "user"}
_MOST_QUEUES = 10_000_000
_HASH_BITS = 60


def flow_schema_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    name, spec = _name(document), document.get("spec") or {}
    precedence = spec.get("matchingPrecedence") or 0
    path = "spec.matchingPrecedence"
    if precedence <= 0:
        yield invalid(path, precedence, "must be a positive value")
    if precedence > 10_000:
        yield invalid(path, precedence, "must not be greater than 10000")
    if precedence == 1 and name != "exempt":
        yield invalid(path, precedence, "only the schema named 'exempt' may have matchingPrecedence 1")
    method = spec.get("distinguisherMethod")
    if method is not None and method.get("type") not in ("ByNamespace", "ByUser"):
        yield not_supported("spec.distinguisherMethod.type", method, ("ByNamespace", "ByUser"))
    level = (spec.get("priorityLevelConfiguration") or {}).get("name")
    if level:
        yield from name_faults(dns_subdomain, level, "spec.priorityLevelConfiguration.name")
    else:
        yield required("spec.priorityLevelConfiguration.name", "must reference a priority level")
    for index, rule in each(spec, "rules"):
        yield from _rule_faults(rule, f"spec.rules[{index}]")
    wanted = _mandatory(flow_schemas(), name)
    if wanted is not None and spec != wanted:
        yield invalid("spec", spec, f"spec of '{name}' must equal the fixed value")
    yield from _condition_faults(document)


def _rule_faults(rule: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    if not rule.get("subjects"):
        yield required(f"{path}.subjects", "subjects must contain at least one value")
    for index, subject in each(rule, "subjects"):
        yield from _subject_faults(subject, f"{path}.subjects[{index}]")
    if not rule.get("resourceRules") and not rule.get("nonResourceRules"):
        yield required(path, "at least one of resourceRules and nonResourceRules has to be non-empty")
    for index, one in each(rule, "resourceRules"):
        yield from _resource_rule_faults(one, f"{path}.resourceRules[{index}]")
    for index, one in each(rule, "nonResourceRules"):
        here = f"{path}.nonResourceRules[{index}]"
        yield from _verb_faults(one, here)
        yield from _url_faults(one.get("nonResourceURLs") or (), f"{here}.nonResourceURLs")


def _subject_faults(subject: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    kind = subject.get("kind")
    if kind not in _SUBJECTS:
        yield not_supported(f"{path}.kind", kind or "", tuple(_SUBJECTS))
        return
    own = _SUBJECTS[kind]
    named = subject.get(own)
    if named is None:
        yield required(f"{path}.{own}", f"{own} is required when subject kind is '{kind}'")
    else:
        if not named.get("name"):
            yield required(f"{path}.{own}.name")
        if kind == "ServiceAccount":
            yield from _account_faults(named, f"{path}.{own}")
    for other, field in (("ServiceAccount", "serviceAccount"), ("User", "user"), ("Group", "group")):
        if field != own and subject.get(field) is not None:
            yield forbidden(f"{path}.{field}", f"{field} is forbidden when subject kind is not '{other}'")


def _account_faults(account: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    if account.get("name") and account["name"] != "*":
        yield from name_faults(dns_subdomain, account["name"], f"{path}.name")
    if account.get("namespace"):
        yield from name_faults(dns_label, account["namespace"], f"{path}.namespace")
    else:
        yield required(f"{path}.namespace", "must specify namespace for service account")


def _verb_faults(rule: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    verbs = rule.get("verbs") or []
    if not verbs:
        yield required(f"{path}.verbs", "verbs must contain at least one value")
    elif "*" in verbs:
        yield from _lonely(verbs, "verbs", f"{path}.verbs")
    elif not set(verbs) <= set(_VERBS):
        yield not_supported(f"{path}.verbs", verbs, _VERBS)


def _lonely(values: Sequence[str], what: str, path: str) -> Iterator[FieldError]:
    if len(values) > 1 and "*" in values:
        yield invalid(path, values, f"if '*' is present, must not specify other {what}")


def _resource_rule_faults(rule: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    yield from _verb_faults(rule, path)
    for name, one, many in (("apiGroups", "api group", "api groups"), ("resources", "resource", "resources")):
        values = rule.get(name) or []
        if not values:
            yield required(f"{path}.{name}", f"resource rules must supply at least one {one}")
        yield from _lonely(values, many, f"{path}.{name}")
    namespaces = rule.get("namespaces") or []
    if not namespaces and not rule.get("clusterScope"):
        why = "resource rules that are not cluster scoped must supply at least one namespace"
        yield required(f"{path}.namespaces", why)
    elif "*" in namespaces:
        yield from _lonely(namespaces, "namespaces", f"{path}.namespaces")
    else:
        intro = "each member of this list must be '*' or a DNS-1123 label; "
        for index, namespace in enumerate(namespaces):
            for fault in dns_label(namespace):
                yield invalid(f"{path}.namespaces[{index}]", namespace, intro + fault)


def _url_faults(urls: Sequence[str], path: str) -> Iterator[FieldError]:
    if not urls:
        yield required(path, "nonResourceURLs must contain at least one value")
    elif "*" in urls:
        yield from _lonely(urls, "non-resource URLs", path)
    else:
        for index, url in enumerate(urls):
            if why := _url_fault(url):
                yield invalid(f"{path}[{index}]", url, why)


def _url_fault(url: str) -> str:
    if not url:
        return "must not be empty"
    if not url.startswith("/"):
        return "must start with slash"
    if " " in url:
        return "must not contain white-space"
    if "//" in url:
        return "must not contain double slash"
    if url.count("*") > 1 or ("*" in url and not url.endswith("/*")):
        return "wildcard can only do suffix matching"
    return ""


def priority_level_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    name, spec = _name(document), document.get("spec") or {}
    kind, exempt, limited = spec.get("type") or "", spec.get("exempt"), spec.get("limited")
    if (name == "exempt") != (kind == "Exempt"):
        yield invalid("spec.type", kind, "must be 'Exempt' if and only if `name` is 'exempt'")
    if kind == "Exempt":
        if limited is not None:
            yield forbidden("spec.limited", "must be nil if the type is not Limited")
        if exempt is not None:
            yield from _share_faults(exempt, "spec.exempt")
    elif kind == "Limited":
        if exempt is not None:
            yield forbidden("spec.exempt", "must be nil if the type is Limited")
        if limited is None:
            yield required("spec.limited", "must not be empty when type is Limited")
        else:
            yield from _limited_faults(limited)
    elif not kind:
        yield required("spec.type")
    else:
        yield not_supported("spec.type", kind, ("Exempt", "Limited"))
    wanted = _mandatory(priority_levels(), name)
    if wanted is not None and name == "exempt":
        if {**spec, "exempt": None} != {**wanted, "exempt": None}:
            yield invalid("spec", spec, f"spec of '{name}' except the 'spec.exempt' field must equal the fixed value")
    elif wanted is not None and spec != wanted:
        yield invalid("spec", spec, f"spec of '{name}' must equal the fixed value")
    yield from _condition_faults(document)


def _share_faults(level: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    shares, lendable = level.get("nominalConcurrencyShares"), level.get("lendablePercent")
    if shares is not None and shares < 0:
        yield invalid(f"{path}.nominalConcurrencyShares", shares, "must be a non-negative integer")
    if lendable is not None and not 0 <= lendable <= 100:
        yield invalid(f"{path}.lendablePercent", lendable, "must be between 0 and 100, inclusive")


def _limited_faults(limited: Mapping[str, Any]) -> Iterator[FieldError]:
    path = "spec.limited.limitResponse"
    yield from _share_faults(limited, "spec.limited")
    response = limited.get("limitResponse") or {}
    kind, queuing = response.get("type") or "", response.get("queuing")
    if kind == "Reject":
        if queuing is not None:
            yield forbidden(f"{path}.queuing", "must be nil if limited.limitResponse.type is not Limited")
    elif kind == "Queue":
        if queuing is None:
            yield required(f"{path}.queuing", "must not be empty if limited.limitResponse.type is Limited")
        else:
            yield from _queuing_faults(queuing, f"{path}.queuing")
    elif not kind:
        yield required(f"{path}.type")
    else:
        yield not_supported(f"{path}.type", kind, ("Queue", "Reject"))
    borrowed = limited.get("borrowingLimitPercent")
    if borrowed is not None and borrowed < 0:
        yield invalid("spec.limited.borrowingLimitPercent", borrowed, "if specified, must be a non-negative integer")


def _queuing_faults(queuing: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    queues, hand, length = (queuing.get(name) or 0 for name in ("queues", "handSize", "queueLengthLimit"))
    if length <= 0:
        yield invalid(f"{path}.queueLengthLimit", length, "must be positive")
    if queues <= 0:
        yield invalid(f"{path}.queues", queues, "must be positive")
    elif queues > _MOST_QUEUES:
        yield invalid(f"{path}.queues", queues, f"must not be greater than {_MOST_QUEUES}")
    if hand <= 0:
        yield invalid(f"{path}.handSize", hand, "must be positive")
    elif hand > queues:
        yield invalid(f"{path}.handSize", hand, f"should not be greater than queues ({queues})")
    elif math.ceil(math.log2(queues) * hand) > _HASH_BITS:
        why = f"required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {_HASH_BITS}"
        yield invalid(f"{path}.handSize", hand, why)


def status_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    yield from _condition_faults(document)


def _condition_faults(document: Document) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, condition in each(document.get("status") or {}, "conditions"):
        kind = condition.get("type") or ""
        if kind in seen:
            yield duplicate(f"status.conditions[{index}].type", kind)
        seen.add(kind)
        if not kind:
            yield required(f"status.conditions[{index}].type")


def _name(document: Document) -> str:
    return str((document.get("metadata") or {}).get("name") or "")


def _mandatory(objects: Sequence[Document], name: str) -> Document | None:
    if name not in MANDATORY:
        return None
    spec: Document = next(one["spec"] for one in objects if one["metadata"]["name"] == name)
    return spec
