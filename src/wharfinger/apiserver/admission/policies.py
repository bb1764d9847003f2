"""ValidatingAdmissionPolicies: CEL validations of requests, with the messages of kube-apiserver.

Failures with the action Audit, and audit annotations, become annotations of the audit event.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import msgspec

from wharfinger.admission.request import PASS, Request, Review
from wharfinger.api.errors import ApiError, forbidden
from wharfinger.api.kinds.builtin import ADMISSION_POLICIES, ADMISSION_POLICY_BINDINGS
from wharfinger.api.registry import Document, Resource
from wharfinger.apiserver.admission import review as admission_review
from wharfinger.apiserver.admission.authorizer import Authorize
from wharfinger.apiserver.admission.bound_policies import (
    AdmissionPolicy,
    BoundPolicies,
    InvalidBinding,
    PolicyBinding,
    PolicyEvaluation,
)
from wharfinger.apiserver.admission.matching import MatchConditionError, exempt
from wharfinger.apiserver.expressions import BOOL, NULL, STRING
from wharfinger.cel import CostExceeded, EvaluationBudget, EvaluationError, InvalidExpression
from wharfinger.store.store import Store

log = logging.getLogger(__name__)

_CODES = {"Unauthorized": 401, "Forbidden": 403, "RequestEntityTooLarge": 413}
_MAX_MESSAGE = 5 * 1024
_MAX_ANNOTATION = 10 * 1024
_FAILURE = "validation.policy.admission.k8s.io/validation_failure"


class PolicyDenial(msgspec.Struct, frozen=True):
    """One failed validation; without a binding if the policy itself is misconfigured."""

    policy: AdmissionPolicy
    binding: PolicyBinding | None
    message: str
    reason: str = ""
    index: int = 0

    def error(self, request: Request) -> ApiError:
        by = f"ValidatingAdmissionPolicy '{self.policy.name}'"
        by += f" with binding '{self.binding.name}'" if self.binding is not None else ""
        message = f"{by} denied request: {self.message}"
        error: ApiError = forbidden(request.resource.group, request.resource.plural, request.name, message)
        error.reason = self.reason or "Invalid"
        error.code = _CODES.get(error.reason, 422)
        error.details["causes"] = [{"message": message}]
        return error


class PolicyReviewer:
    """Validating: evaluates every policy that has a binding."""

    connects = True  # also reviews requests that open connections

    def __init__(self, store: Store, authorize: Authorize) -> None:
        self._store = store
        self._authorize = authorize
        self._policies = BoundPolicies(store, ADMISSION_POLICIES, ADMISSION_POLICY_BINDINGS)

    def repeats(self, request: Request) -> bool:
        """Expressions may depend on names."""
        return not self._policies or exempt(request.resource)

    def review(self, request: Request) -> Review:
        if not self._policies or exempt(request.resource):
            return PASS
        with EvaluationBudget():
            return self._review(request)

    def _review(self, request: Request) -> Review:
        warnings: list[str] = []
        refused: ApiError | None = None
        audit: dict[str, str] = {}
        failures: list[Document] = []
        for denial in self._denials(request, audit):
            binding = denial.binding
            actions = binding.actions if binding is not None else ["Deny"]
            if "Warn" in actions and binding is not None:
                warnings.append(
                    f"Validation failed for ValidatingAdmissionPolicy '{denial.policy.name}' "
                    f"with binding '{binding.name}': {denial.message}"
                )
            if "Audit" in actions:
                failures.append(_audited(denial))
            if "Deny" in actions and refused is None:
                refused = denial.error(request)
        if failures:
            audit[_FAILURE] = msgspec.json.encode(failures).decode()
        return Review(refused, warnings, audit) if refused is not None or warnings or audit else PASS

    def _denials(self, request: Request, audit: dict[str, str]) -> Iterator[PolicyDenial]:
        for policy, binding, matched in self._policies.matching(request):
            yield from self._bound_denials(policy, binding, request, matched, audit)

    def _bound_denials(
        self,
        policy: AdmissionPolicy,
        binding: PolicyBinding,
        request: Request,
        matched: Resource,
        audit: dict[str, str],
    ) -> Iterator[PolicyDenial]:
        try:
            params = self._policies.parameters(policy, binding, request)
        except InvalidBinding as error:
            if policy.fails:
                message = f"failed to configure binding: {error}"
                # kube-apiserver denies here regardless of the actions of the binding.
                yield PolicyDenial(
                    policy, PolicyBinding(binding.name, {"validationActions": ["Deny"]}, binding.matcher), message
                )
            return
        namespace = admission_review.namespace_of(request, self._store.peek)
        for param in params:
            values = admission_review.variables(request, self._store.registry, matched)
            if policy.spec.get("paramKind"):
                values["params"] = param
            evaluation = _ValidatingEvaluation(policy, values, namespace, self._authorize)
            for index, message, reason in evaluation.failures():
                yield PolicyDenial(policy, binding, message, reason, index)
            for key, value in evaluation.annotations():
                name = f"{policy.name}/{key}"
                known = audit.get(name)  # bindings and parameters may give different values
                audit[name] = value if known is None or value in known.split(", ") else f"{known}, {value}"


class _ValidatingEvaluation(PolicyEvaluation):
    """The validations and audit annotations of one policy for one request and one parameter."""

    def failures(self) -> Iterator[tuple[int, str, str]]:
        """Index, message and reason of each failed validation."""
        try:
            self.matched()
        except MatchConditionError as error:
            yield 0, str(error), ""
        if not self._matched:
            return
        for index, validation in enumerate(self._spec.get("validations") or ()):
            text = str(validation.get("expression") or "")
            try:
                if self.evaluate(text, BOOL) is not True:
                    yield index, self._message(validation, text), validation.get("reason") or ""
            except (EvaluationError, InvalidExpression) as error:
                if self._policy.fails:
                    yield index, _described(text, error), ""
                if isinstance(error, CostExceeded):
                    return

    def annotations(self) -> Iterator[tuple[str, str]]:
        """Key and value of each audit annotation that is not empty."""
        for annotation in (self._spec.get("auditAnnotations") or ()) if self._matched else ():
            try:
                value = self.evaluate(str(annotation.get("valueExpression") or "").strip(), STRING, NULL)
            except (EvaluationError, InvalidExpression) as error:
                value = f"<{error}>"
            if isinstance(value, str) and value.strip():
                yield str(annotation.get("key") or ""), value.strip()[:_MAX_ANNOTATION]

    def _message(self, validation: Document, text: str) -> str:
        said: Any = ""
        if validation.get("messageExpression"):
            try:
                said = self.evaluate(str(validation["messageExpression"]), STRING)
            except (EvaluationError, InvalidExpression) as error:
                log.info("messageExpression of %s: %s", self._policy.name, error)
        said = said.strip() if isinstance(said, str) else ""
        if len(said) > _MAX_MESSAGE or "\n" in said:
            said = ""
        return said or str(validation.get("message") or "").strip() or f"failed expression: {text.strip()}"


def _described(text: str, error: Exception) -> str:
    if isinstance(error, CostExceeded):
        return str(error)
    if isinstance(error, InvalidExpression):
        return f"compilation error: {error}"
    return f"expression '{text}' resulted in error: {error}"


def _audited(denial: PolicyDenial) -> Document:
    assert denial.binding is not None
    return {
        "message": denial.message,
        "policy": denial.policy.name,
        "binding": denial.binding.name,
        "expressionIndex": denial.index,
        "validationActions": denial.binding.actions,
    }
