"""ValidatingAdmissionPolicies: CEL validations of requests, with the messages of kube-apiserver.

Failures with the action Audit, and audit annotations, become annotations of the audit event.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from wharfinger.admission.reads import Derived, ObjectVersion
from wharfinger.admission.request import PASS, Request, Review
from wharfinger.api.errors import ApiError, forbidden
from wharfinger.api.kinds.builtin import ADMISSION_POLICIES, ADMISSION_POLICY_BINDINGS
from wharfinger.api.registry import Document, Resource
from wharfinger.api.selectors import matches
from wharfinger.apiserver.admission import review as admission_review
from wharfinger.apiserver.admission.authorizer import Authorize
from wharfinger.apiserver.admission.matching import (
    MatchConditionError,
    RequestMatcher,
    conditions_hold,
    exempt,
    selector,
)
from wharfinger.apiserver.expressions import BOOL, NULL, STRING, bind, expression, typed_expression
from wharfinger.cel import (
    Bindings,
    CostExceeded,
    EvaluationBudget,
    EvaluationError,
    InvalidExpression,
    MissingVariable,
    Program,
)
from wharfinger.store.store import Store

log = logging.getLogger(__name__)

_CODES = {"Unauthorized": 401, "Forbidden": 403, "RequestEntityTooLarge": 413}
_MAX_MESSAGE = 5 * 1024
_MAX_ANNOTATION = 10 * 1024
_FAILURE = "validation.policy.admission.k8s.io/validation_failure"
_VARIABLE = re.compile(r"\bvariables\s*\.\s*([A-Za-z_]\w*)")


class InvalidBinding(Exception):
    """The parameters of a binding cannot be resolved for this request."""


@dataclass(slots=True)
class PolicyBinding:
    name: str
    spec: Document
    matcher: RequestMatcher

    @property
    def actions(self) -> list[str]:
        return list(self.spec.get("validationActions") or ())


@dataclass(slots=True)
class AdmissionPolicy:
    name: str
    spec: Document
    matcher: RequestMatcher

    @property
    def fails(self) -> bool:
        return bool(self.spec.get("failurePolicy", "Fail") == "Fail")


@dataclass(frozen=True, slots=True)
class PolicyDenial:
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

    def __init__(self, store: Store, authorize: Authorize) -> None:
        self._store = store
        self._authorize = authorize
        self._policies = Derived(store, ADMISSION_POLICIES, _read_policies)
        self._bindings = Derived(store, ADMISSION_POLICY_BINDINGS, _read_bindings)

    def review(self, request: Request) -> Review:
        bindings = self._bindings.get()
        if not bindings or exempt(request.resource):
            return PASS
        with EvaluationBudget():
            return self._review(request, bindings)

    def _review(self, request: Request, bindings: dict[str, list[PolicyBinding]]) -> Review:
        warnings: list[str] = []
        refused: ApiError | None = None
        audit: dict[str, str] = {}
        failures: list[Document] = []
        for denial in self._denials(request, bindings, audit):
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

    def _denials(
        self, request: Request, bindings: dict[str, list[PolicyBinding]], audit: dict[str, str]
    ) -> Iterator[PolicyDenial]:
        labels = admission_review.namespace_labels(request, self._store.peek)
        for policy in self._policies.get():
            bound = bindings.get(policy.name)
            if not bound:
                continue
            matched = policy.matcher.find(request, self._store.registry, labels)
            if matched is None:
                continue
            for binding in bound:
                if binding.matcher.find(request, self._store.registry, labels, all_without_rules=True) is not None:
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
            params = self._params(policy, binding, request)
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
            evaluation = _PolicyEvaluation(policy, values, namespace, self._authorize)
            for index, message, reason in evaluation.failures():
                yield PolicyDenial(policy, binding, message, reason, index)
            for key, value in evaluation.annotations():
                name = f"{policy.name}/{key}"
                known = audit.get(name)  # bindings and parameters may give different values
                audit[name] = value if known is None or value in known.split(", ") else f"{known}, {value}"

    def _params(self, policy: AdmissionPolicy, binding: PolicyBinding, request: Request) -> list[Document | None]:
        """The parameters to evaluate with in turn; a policy without parameters is evaluated once."""
        wanted, ref = policy.spec.get("paramKind"), binding.spec.get("paramRef")
        if not wanted or not ref:
            return [None]
        version, name = wanted.get("apiVersion", ""), wanted.get("kind", "")
        kind = self._store.registry.of_object(version, name)
        if kind is None:
            raise InvalidBinding(f"paramKind kind `{version}, Kind={name}` not known")
        namespace = ref.get("namespace") or ""
        if kind.namespaced:
            namespace = namespace or request.namespace
            if not namespace:
                raise InvalidBinding(
                    "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
                )
        elif namespace:
            raise InvalidBinding("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
        typed = {"apiVersion": version, "kind": name}
        if ref.get("name"):
            one = self._store.peek(kind.storage, ref["name"], namespace)
            found = [] if one is None else [one]
        else:
            wanted_labels = selector(ref.get("selector"))
            found = [one for one in self._store.scan(kind.storage, namespace) if matches(wanted_labels, one.labels)]
        if not found and ref.get("parameterNotFoundAction") == "Deny":
            raise InvalidBinding("no params found for policy binding with `Deny` parameterNotFoundAction")
        return [{**one.document(), **typed} for one in found]


class _PolicyEvaluation:
    """One policy for one request and one parameter."""

    def __init__(
        self, policy: AdmissionPolicy, values: dict[str, Any], namespace: Document | None, authorize: Authorize
    ) -> None:
        self._policy = policy
        self._authorize = authorize
        self._spec = policy.spec
        self._values = values
        self._namespace = namespace
        self._variables = [(str(one["name"]), str(one["expression"])) for one in policy.spec.get("variables") or ()]
        self._evaluated: dict[str, Any] = {}  # values of variables, or their errors
        self._bindings: dict[frozenset[str], Bindings] = {}
        self._matched = False

    def failures(self) -> Iterator[tuple[int, str, str]]:
        """Index, message and reason of each failed validation."""
        try:
            self._matched = conditions_hold(
                self._spec.get("matchConditions") or (),
                bind(self._values, authorize=self._authorize),
                fails=self._policy.fails,
            )
        except MatchConditionError as error:
            yield 0, str(error), ""
        if not self._matched:
            return
        for index, validation in enumerate(self._spec.get("validations") or ()):
            text = str(validation.get("expression") or "")
            try:
                if self._evaluate(text, BOOL) is not True:
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
                value = self._evaluate(str(annotation.get("valueExpression") or "").strip(), STRING, NULL)
            except (EvaluationError, InvalidExpression) as error:
                value = f"<{error}>"
            if isinstance(value, str) and value.strip():
                yield str(annotation.get("key") or ""), value.strip()[:_MAX_ANNOTATION]

    def _message(self, validation: Document, text: str) -> str:
        said: Any = ""
        if validation.get("messageExpression"):
            try:
                said = self._evaluate(str(validation["messageExpression"]), STRING)
            except (EvaluationError, InvalidExpression) as error:
                log.info("messageExpression of %s: %s", self._policy.name, error)
        said = said.strip() if isinstance(said, str) else ""
        if len(said) > _MAX_MESSAGE or "\n" in said:
            said = ""
        return said or str(validation.get("message") or "").strip() or f"failed expression: {text.strip()}"

    def _evaluate(self, text: str, *types: str) -> Any:
        program = typed_expression(text, variable_names(self._spec), *types)
        return self._value(program, len(self._variables))

    def _value(self, program: Program, count: int) -> Any:
        """The value of an expression that may use the first `count` variables."""
        try:
            return program.evaluate(self._bind(program.text, count))
        except MissingVariable as error:
            raise self._evaluated.get(error.name.removeprefix("variables."), error) from None

    def _bind(self, text: str, count: int) -> Bindings:
        """Values for an expression. A variable is evaluated only if the expression mentions it, and its error counts only if
        the expression reads it."""
        mentioned = set(_VARIABLE.findall(text))
        for position, (name, inner) in enumerate(self._variables[:count]):
            if name in mentioned and name not in self._evaluated:
                self._evaluated[name] = self._variable(name, inner, position)
        used = frozenset(
            name
            for name, _ in self._variables[:count]
            if name in mentioned and not isinstance(self._evaluated[name], EvaluationError)
        )
        if used not in self._bindings:
            values: dict[str, Any] = {**self._values, "namespaceObject": self._namespace}
            values |= {f"variables.{name}": self._evaluated[name] for name in used}
            self._bindings[used] = bind(values, variable_names(self._spec), authorize=self._authorize)
        return self._bindings[used]

    def _variable(self, name: str, text: str, position: int) -> Any:
        try:
            expression(text, variable_names(self._spec, position))  # it must not use later variables
            return self._value(expression(text, variable_names(self._spec)), position)
        except (EvaluationError, InvalidExpression) as error:
            return EvaluationError(f'composited variable "{name}" fails to evaluate: {error}')


def variable_names(spec: Document, count: int | None = None) -> tuple[str, ...]:
    """The names that expressions of a policy may use, with the first `count` of its own variables or all of them."""
    params = ("params",) if spec.get("paramKind") else ()
    variables = [f"variables.{one.get('name')}" for one in (spec.get("variables") or ())[:count]]
    return ("object", "oldObject", "request", "authorizer", *params, "namespaceObject", *variables)


def _described(text: str, error: Exception) -> str:
    if isinstance(error, CostExceeded):
        return str(error)
    if isinstance(error, InvalidExpression):
        return f"compilation error: {error}"
    return f"expression '{text}' resulted in error: {error}"


def _read_policies(stored: Iterable[ObjectVersion]) -> list[AdmissionPolicy]:
    documents = [(one.name, one.document()) for one in sorted(stored, key=lambda one: one.name)]
    return [
        AdmissionPolicy(name, document["spec"], RequestMatcher(document["spec"].get("matchConstraints") or {}))
        for name, document in documents
    ]


def _read_bindings(stored: Iterable[ObjectVersion]) -> dict[str, list[PolicyBinding]]:
    """Bindings by the name of their policy."""
    found: dict[str, list[PolicyBinding]] = {}
    for one in sorted(stored, key=lambda one: one.name):
        spec = one.document()["spec"]
        found.setdefault(spec.get("policyName", ""), []).append(
            PolicyBinding(one.name, spec, RequestMatcher(spec.get("matchResources") or {}))
        )
    return found


def _audited(denial: PolicyDenial) -> Document:
    assert denial.binding is not None
    return {
        "message": denial.message,
        "policy": denial.policy.name,
        "binding": denial.binding.name,
        "expressionIndex": denial.index,
        "validationActions": denial.binding.actions,
    }
