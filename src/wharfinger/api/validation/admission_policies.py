"""Validation of admission policies and their bindings; the API server checks that expressions compile."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from wharfinger.api.fields import FieldError, duplicate, forbidden, invalid, not_supported, required, too_many
from wharfinger.api.names import dns_subdomain, path_segment, qualified_name
from wharfinger.api.registry import Document
from wharfinger.api.validation.common import name_faults, one_of
from wharfinger.api.validation.selectors import each, label_selector_faults
from wharfinger.api.validation.webhooks import match_conditions_faults, rule_faults

_REASONS = ("Forbidden", "Invalid", "RequestEntityTooLarge", "Unauthorized")
_ACTIONS = ("Audit", "Deny", "Warn")
_MUTATED = ("*", "CONNECT", "CREATE", "UPDATE")
_MOST_ANNOTATIONS = 20
_LONGEST_VALUE = 5 * 1024
_IDENTIFIER = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*")
_RESERVED = frozenset(
    [
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ]
)


def policy_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    """A ValidatingAdmissionPolicy."""
    spec = document.get("spec") or {}
    yield from _common_faults(spec)
    if not spec.get("validations") and not spec.get("auditAnnotations"):
        for name in ("validations", "auditAnnotations"):
            yield required(f"spec.{name}", "validations or auditAnnotations must contain at least one item")
    for index, validation in each(spec, "validations"):
        yield from _validation_faults(validation, f"spec.validations[{index}]")
    yield from _annotation_faults(spec, (document.get("metadata") or {}).get("name") or "")


def mutating_policy_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    """A MutatingAdmissionPolicy."""
    spec = document.get("spec") or {}
    yield from _common_faults(spec)
    yield from _operation_faults(spec.get("matchConstraints") or {}, "spec.matchConstraints")
    if not spec.get("mutations"):
        yield required("spec.mutations", "mutations must contain at least one item")
    for index, mutation in each(spec, "mutations"):
        yield from _mutation_faults(mutation, f"spec.mutations[{index}]")
    yield from one_of(spec.get("reinvocationPolicy"), ("IfNeeded", "Never"), "spec.reinvocationPolicy")


def _common_faults(spec: Document) -> Iterator[FieldError]:
    yield from one_of(spec.get("failurePolicy"), ("Fail", "Ignore"), "spec.failurePolicy")
    if spec.get("paramKind") is not None:
        for name in ("apiVersion", "kind"):
            if not spec["paramKind"].get(name):
                yield required(f"spec.paramKind.{name}")
    constraints = spec.get("matchConstraints")
    if constraints is None:
        yield required("spec.matchConstraints")
    else:
        yield from _match_faults(constraints, "spec.matchConstraints")
        if not constraints.get("resourceRules"):
            yield required("spec.matchConstraints.resourceRules")
    yield from match_conditions_faults(spec, "spec")
    for index, variable in each(spec, "variables"):
        yield from _variable_faults(variable, f"spec.variables[{index}]")


def _operation_faults(criteria: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Mutating policies do not apply to deletions."""
    for _, rule in each(criteria, "resourceRules"):
        for operation in rule.get("operations") or ():
            if operation not in _MUTATED:
                yield not_supported(f"{path}.resourceRules.operations", operation, _MUTATED)


def _mutation_faults(mutation: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    kind = mutation.get("patchType") or ""
    parts = {"ApplyConfiguration": "applyConfiguration", "JSONPatch": "jsonPatch"}
    if not kind:
        yield required(f"{path}.patchType")
        return
    if kind not in parts:
        yield not_supported(f"{path}.patchType", kind, tuple(parts))
        return
    own = parts.pop(kind)
    (other,) = parts.values()
    if mutation.get(own) is None:
        yield required(f"{path}.{own}", f"must be specified when patchType is {kind}")
    elif not (mutation[own].get("expression") or "").strip():
        yield required(f"{path}.{own}.expression")
    if mutation.get(other) is not None:
        yield invalid(f"{path}.{other}", f"{{{other}}}", f"must not be specified when patchType is {kind}")


def _variable_faults(variable: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    name = (variable.get("name") or "").strip()
    if not name:
        yield required(f"{path}.name", "name is not specified")
    elif not _IDENTIFIER.fullmatch(name) or name in _RESERVED:
        yield invalid(f"{path}.name", name, "must be a valid CEL identifier")
    if not (variable.get("expression") or "").strip():
        yield required(f"{path}.expression", "expression is not specified")


def _validation_faults(validation: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    if not (validation.get("expression") or "").strip():
        yield required(f"{path}.expression", "expression is not specified")
    for name in ("messageExpression", "message"):
        text = validation.get(name) or ""
        if text and not text.strip():
            yield invalid(f"{path}.{name}", text, "must be non-empty if specified")
    if "\n" in (validation.get("message") or "").strip():
        yield invalid(f"{path}.message", validation["message"], "must not contain line breaks")
    yield from one_of(validation.get("reason"), _REASONS, f"{path}.reason", empty=True)


def _annotation_faults(spec: Mapping[str, Any], policy: str) -> Iterator[FieldError]:
    annotations = spec.get("auditAnnotations") or []
    if len(annotations) > _MOST_ANNOTATIONS:
        yield too_many("spec.auditAnnotations", len(annotations), _MOST_ANNOTATIONS)
    keys: set[str] = set()
    for index, annotation in enumerate(annotations):
        path = f"spec.auditAnnotations[{index}]"
        key, value = annotation.get("key") or "", (annotation.get("valueExpression") or "").strip()
        yield from name_faults(qualified_name, f"{policy}/{key}", f"{path}.key")
        if key in keys:
            yield duplicate(f"{path}.key", key)
        keys.add(key)
        if not value:
            yield required(f"{path}.valueExpression", "valueExpression is not specified")
        elif len(value) > _LONGEST_VALUE:
            yield required(f"{path}.valueExpression", f"must not exceed {_LONGEST_VALUE} bytes in length")


def mutating_binding_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    """A MutatingAdmissionPolicyBinding."""
    spec = document.get("spec") or {}
    yield from _common_binding_faults(spec)
    yield from _operation_faults(spec.get("matchResources") or {}, "spec.matchResources")


def _common_binding_faults(spec: Document) -> Iterator[FieldError]:
    if not spec.get("policyName"):
        yield required("spec.policyName")
    else:
        yield from name_faults(dns_subdomain, spec["policyName"], "spec.policyName")
    if spec.get("paramRef") is not None:
        yield from _param_ref_faults(spec["paramRef"], "spec.paramRef")
    yield from _match_faults(spec.get("matchResources") or {}, "spec.matchResources")


def binding_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    """A ValidatingAdmissionPolicyBinding."""
    spec = document.get("spec") or {}
    yield from _common_binding_faults(spec)
    actions, seen = spec.get("validationActions") or [], set()
    for index, action in enumerate(actions):
        yield from one_of(action, _ACTIONS, f"spec.validationActions[{index}]")
        if action in seen:
            yield duplicate(f"spec.validationActions[{index}]", action)
        seen.add(action)
    if {"Deny", "Warn"} <= seen:
        detail = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)"
        yield invalid("spec.validationActions", actions, detail)
    if not seen:
        yield required("spec.validationActions", "at least one validation action is required")


def _param_ref_faults(ref: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    name, chosen = ref.get("name"), ref.get("selector")
    if name:
        yield from name_faults(path_segment, name, f"{path}.name")
    if name and chosen is not None:
        for part in ("name", "selector"):
            yield forbidden(f"{path}.{part}", "name and selector are mutually exclusive")
    elif not name and chosen is None:
        yield required(path, "one of name or selector must be specified")
    yield from label_selector_faults(chosen, f"{path}.selector")
    action = ref.get("parameterNotFoundAction")
    if not action:
        yield required(f"{path}.parameterNotFoundAction")
    else:
        yield from one_of(action, ("Deny", "Allow"), f"{path}.parameterNotFoundAction")


def _match_faults(criteria: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    yield from one_of(criteria.get("matchPolicy"), ("Equivalent", "Exact"), f"{path}.matchPolicy", empty=True)
    for name in ("namespaceSelector", "objectSelector"):
        yield from label_selector_faults(criteria.get(name), f"{path}.{name}")
    for rules in ("resourceRules", "excludeResourceRules"):
        for index, rule in each(criteria, rules):
            here, names = f"{path}.{rules}[{index}]", set()
            for position, name in each(rule, "resourceNames"):
                yield from name_faults(path_segment, name, f"{here}.resourceNames[{position}]")
                if name in names:
                    yield duplicate(f"{here}.resourceNames[{position}]", name)
                names.add(name)
            yield from rule_faults(rule, here)
