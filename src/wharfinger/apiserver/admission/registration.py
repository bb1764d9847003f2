"""Validation of webhook configurations and admission policies: whether their CEL expressions compile."""

from __future__ import annotations

from collections.abc import Iterator

from wharfinger.admission.request import PASS, Request, Review
from wharfinger.api.errors import invalid_object
from wharfinger.api.fields import FieldError, invalid
from wharfinger.api.kinds.builtin import (
    ADMISSION_POLICIES,
    MUTATING_POLICIES,
    MUTATING_WEBHOOKS,
    VALIDATING_WEBHOOKS,
)
from wharfinger.api.registry import Document
from wharfinger.apiserver.admission.bound_policies import variable_names
from wharfinger.apiserver.expressions import BOOL, NULL, STRING, expression, mutation_expression, typed_expression
from wharfinger.cel import InvalidExpression

_WEBHOOKS = (MUTATING_WEBHOOKS.plural, VALIDATING_WEBHOOKS.plural)
_POLICIES = (ADMISSION_POLICIES.plural, MUTATING_POLICIES.plural)
_CONDITION_NAMES = ("object", "oldObject", "request", "authorizer")


class RegistrationReviewer:
    """Validating: rejects webhooks and policies whose expressions do not compile."""

    def concerns(self, group: str, plural: str, subresource: str) -> bool:
        return group == ADMISSION_POLICIES.group and not subresource

    def review(self, request: Request) -> Review:
        at = request.resource
        if request.object is None:
            return PASS
        if at.plural in _POLICIES:
            errors = list(_policy_faults(request.object.get("spec") or {}))
        elif at.plural in _WEBHOOKS:
            errors = [
                fault
                for index, webhook in enumerate(request.object.get("webhooks") or ())
                for fault in _condition_faults(webhook, _CONDITION_NAMES, f"webhooks[{index}]")
            ]
        else:
            return PASS
        return Review(invalid_object(at.group, at.kind, request.name, errors)) if errors else PASS


def _policy_faults(spec: Document) -> Iterator[FieldError]:
    params = ("params",) if spec.get("paramKind") else ()
    yield from _condition_faults(spec, (*_CONDITION_NAMES, *params), "spec")
    for index, variable in enumerate(spec.get("variables") or ()):
        path = f"spec.variables[{index}].expression"
        yield from _fault(variable.get("expression"), variable_names(spec, index), path)
    known = variable_names(spec)
    for index, validation in enumerate(spec.get("validations") or ()):
        path = f"spec.validations[{index}]"
        yield from _fault(validation.get("expression"), known, f"{path}.expression", BOOL)
        yield from _fault(validation.get("messageExpression"), known, f"{path}.messageExpression", STRING)
    for index, mutation in enumerate(spec.get("mutations") or ()):
        for part in ("applyConfiguration", "jsonPatch"):
            text = (mutation.get(part) or {}).get("expression")
            path = f"spec.mutations[{index}].{part}.expression"
            if text and text.strip():
                try:
                    mutation_expression(text, known, json_patch=part == "jsonPatch")
                except InvalidExpression as error:
                    yield invalid(path, text, str(error))
    for index, annotation in enumerate(spec.get("auditAnnotations") or ()):
        path = f"spec.auditAnnotations[{index}].valueExpression"
        yield from _fault(annotation.get("valueExpression"), known, path, STRING, NULL)


def _condition_faults(owner: Document, known: tuple[str, ...], path: str) -> Iterator[FieldError]:
    for index, condition in enumerate(owner.get("matchConditions") or ()):
        text = str(condition.get("expression") or "").strip()
        yield from _fault(text, known, f"{path}.matchConditions[{index}].expression", BOOL)


def _fault(text: str | None, known: tuple[str, ...], path: str, *types: str) -> Iterator[FieldError]:
    if not text or not text.strip():
        return  # reported by the validation of the kind
    try:
        if types:
            typed_expression(text, known, *types)
        else:
            expression(text, known)
    except InvalidExpression as error:
        yield invalid(path, text, str(error))
