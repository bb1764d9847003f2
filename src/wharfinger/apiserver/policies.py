"""ValidatingAdmissionPolicies that users register: CEL over a request, decided in process, in Kubernetes' words.

Failures with the action Audit, and audit annotations, go to the server's log.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from wharfinger.admission.reads import Derived, StoredObject
from wharfinger.admission.request import PASS, Request, Review
from wharfinger.api.errors import ApiError, forbidden
from wharfinger.api.kinds.builtin import ADMISSION_POLICIES, ADMISSION_POLICY_BINDINGS
from wharfinger.api.registry import Document, Resource
from wharfinger.api.selectors import matches
from wharfinger.apiserver import admission_review
from wharfinger.apiserver.authorizer import Allowed
from wharfinger.apiserver.expressions import (
    BOOL,
    NULL,
    STRING,
    BadExpression,
    Expression,
    Failed,
    Input,
    Missing,
    OutOfBudget,
    expression,
    expression_of,
)
from wharfinger.apiserver.matching import Matcher, Unclear, conditions_hold, exempt, selector
from wharfinger.store.store import Store

log = logging.getLogger(__name__)

_CODES = {"Unauthorized": 401, "Forbidden": 403, "RequestEntityTooLarge": 413}
_LONGEST_MESSAGE = 5 * 1024
_LONGEST_ANNOTATION = 10 * 1024
_VARIABLE = re.compile(r"\bvariables\s*\.\s*([A-Za-z_]\w*)")


class BadConfiguration(Exception):
    """A policy or binding that cannot be evaluated for this request; the text says why."""


@dataclass(slots=True)
class Binding:
    name: str
    spec: Document
    matcher: Matcher

    @property
    def actions(self) -> list[str]:
        return list(self.spec.get("validationActions") or ())


@dataclass(slots=True)
class Policy:
    name: str
    spec: Document
    matcher: Matcher

    @property
    def fails(self) -> bool:
        return bool(self.spec.get("failurePolicy", "Fail") == "Fail")


@dataclass(frozen=True, slots=True)
class Denial:
    """One validation that does not hold. Without a binding, the policy itself is at fault."""

    policy: Policy
    binding: Binding | None
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
    """Validating: all policies that are bound."""

    def __init__(self, store: Store, allowed: Allowed) -> None:
        self._store = store
        self._allowed = allowed
        self._policies = Derived(store, ADMISSION_POLICIES, _read_policies)
        self._bindings = Derived(store, ADMISSION_POLICY_BINDINGS, _read_bindings)

    def review(self, request: Request) -> Review:
        bindings = self._bindings.get()
        if not bindings or exempt(request.resource):
            return PASS
        warnings: list[str] = []
        refused: ApiError | None = None
        for denial in self._denials(request, bindings):
            binding = denial.binding
            actions = binding.actions if binding is not None else ["Deny"]
            if "Warn" in actions and binding is not None:
                warnings.append(
                    f"Validation failed for ValidatingAdmissionPolicy '{denial.policy.name}' "
                    f"with binding '{binding.name}': {denial.message}"
                )
            if "Audit" in actions:
                _audit(denial, request)
            if "Deny" in actions and refused is None:
                refused = denial.error(request)
        return Review(refused, warnings) if refused is not None or warnings else PASS

    def _denials(self, request: Request, bindings: dict[str, list[Binding]]) -> Iterator[Denial]:
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
                    yield from self._bound_denials(policy, binding, request, matched)

    def _bound_denials(self, policy: Policy, binding: Binding, request: Request, matched: Resource) -> Iterator[Denial]:
        try:
            params = self._params(policy, binding, request)
        except BadConfiguration as error:
            if policy.fails:
                message = f"failed to configure binding: {error}"
                # Upstream refuses here whatever the actions of the binding are.
                yield Denial(policy, Binding(binding.name, {"validationActions": ["Deny"]}, binding.matcher), message)
            return
        namespace = admission_review.namespace_of(request, self._store.peek)
        for param in params:
            values = admission_review.variables(request, self._store.registry, matched)
            if policy.spec.get("paramKind"):
                values["params"] = param
            evaluation = _Evaluation(policy, values, namespace, self._allowed)
            for index, message, reason in evaluation.failures():
                yield Denial(policy, binding, message, reason, index)
            for key, value in evaluation.annotations():
                log.info("audit: %s/%s: %s", policy.name, key, value)

    def _params(self, policy: Policy, binding: Binding, request: Request) -> list[Document | None]:
        """The parameters to evaluate with, one after another; a policy without any is evaluated once."""
        wanted, ref = policy.spec.get("paramKind"), binding.spec.get("paramRef")
        if not wanted or not ref:
            return [None]
        version, name = wanted.get("apiVersion", ""), wanted.get("kind", "")
        kind = self._store.registry.of_object(version, name)
        if kind is None:
            raise BadConfiguration(f"paramKind kind `{version}, Kind={name}` not known")
        namespace = ref.get("namespace") or ""
        if kind.namespaced:
            namespace = namespace or request.namespace
            if not namespace:
                raise BadConfiguration(
                    "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
                )
        elif namespace:
            raise BadConfiguration("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
        typed = {"apiVersion": version, "kind": name}
        if ref.get("name"):
            one = self._store.peek(kind.storage, ref["name"], namespace)
            found = [] if one is None else [one]
        else:
            wanted_labels = selector(ref.get("selector"))
            found = [one for one in self._store.scan(kind.storage, namespace) if matches(wanted_labels, one.labels)]
        if not found and ref.get("parameterNotFoundAction") == "Deny":
            raise BadConfiguration("no params found for policy binding with `Deny` parameterNotFoundAction")
        return [{**one.document(), **typed} for one in found]


class _Evaluation:
    """One policy over one request and one parameter."""

    def __init__(self, policy: Policy, values: dict[str, Any], namespace: Document | None, allowed: Allowed) -> None:
        self._policy = policy
        self._allowed = allowed
        self._spec = policy.spec
        self._values = values
        self._namespace = namespace
        self._variables = [(str(one["name"]), str(one["expression"])) for one in policy.spec.get("variables") or ()]
        self._known: dict[str, Any] = {}  # values of variables, or what went wrong with them
        self._inputs: dict[frozenset[str], Input] = {}
        self._matched = False

    def failures(self) -> Iterator[tuple[int, str, str]]:
        """Index, message and reason of each validation that does not hold."""
        try:
            self._matched = conditions_hold(
                self._spec.get("matchConditions") or (),
                Input(self._values, allowed=self._allowed),
                fails=self._policy.fails,
            )
        except Unclear as error:
            yield 0, str(error), ""
        if not self._matched:
            return
        for index, validation in enumerate(self._spec.get("validations") or ()):
            text = str(validation.get("expression") or "")
            try:
                if self._evaluate(text, BOOL) is not True:
                    yield index, self._message(validation, text), validation.get("reason") or ""
            except (Failed, BadExpression) as error:
                if self._policy.fails:
                    yield index, _described(text, error), ""
                if isinstance(error, OutOfBudget):
                    return

    def annotations(self) -> Iterator[tuple[str, str]]:
        """Audit annotations that have a value."""
        for annotation in (self._spec.get("auditAnnotations") or ()) if self._matched else ():
            try:
                value = self._evaluate(str(annotation.get("valueExpression") or "").strip(), STRING, NULL)
            except (Failed, BadExpression) as error:
                value = f"<{error}>"
            if isinstance(value, str) and value.strip():
                yield str(annotation.get("key") or ""), value.strip()[:_LONGEST_ANNOTATION]

    def _message(self, validation: Document, text: str) -> str:
        said: Any = ""
        if validation.get("messageExpression"):
            try:
                said = self._evaluate(str(validation["messageExpression"]), STRING)
            except (Failed, BadExpression) as error:
                log.info("messageExpression of %s: %s", self._policy.name, error)
        said = said.strip() if isinstance(said, str) else ""
        if len(said) > _LONGEST_MESSAGE or "\n" in said:
            said = ""
        return said or str(validation.get("message") or "").strip() or f"failed expression: {text.strip()}"

    def _evaluate(self, text: str, *types: str) -> Any:
        made = expression_of(text, names(self._spec), *types)
        return self._value(made, len(self._variables))

    def _value(self, made: Expression, count: int) -> Any:
        """The value of an expression that may name the first `count` variables."""
        try:
            return made.value(self._input(made.text, count))
        except Missing as error:
            raise self._known.get(error.name.removeprefix("variables."), error) from None

    def _input(self, text: str, count: int) -> Input:
        """Values of all that the expression names: a variable is worked out only where it is used, and one that has no
        value does harm only where it is read."""
        mentioned = set(_VARIABLE.findall(text))
        for position, (name, inner) in enumerate(self._variables[:count]):
            if name in mentioned and name not in self._known:
                self._known[name] = self._variable(name, inner, position)
        used = frozenset(
            name
            for name, _ in self._variables[:count]
            if name in mentioned and not isinstance(self._known[name], Failed)
        )
        if used not in self._inputs:
            values: dict[str, Any] = {**self._values, "namespaceObject": self._namespace}
            values |= {f"variables.{name}": self._known[name] for name in used}
            self._inputs[used] = Input(values, names(self._spec), allowed=self._allowed)
        return self._inputs[used]

    def _variable(self, name: str, text: str, position: int) -> Any:
        try:
            expression(text, names(self._spec, position))  # later variables are not known to it
            return self._value(expression(text, names(self._spec)), position)
        except (Failed, BadExpression) as error:
            return Failed(f'composited variable "{name}" fails to evaluate: {error}')


def names(spec: Document, count: int | None = None) -> tuple[str, ...]:
    """What expressions of a policy may name; `count` of its variables, or all."""
    params = ("params",) if spec.get("paramKind") else ()
    variables = [f"variables.{one.get('name')}" for one in (spec.get("variables") or ())[:count]]
    return ("object", "oldObject", "request", "authorizer", *params, "namespaceObject", *variables)


def _described(text: str, error: Exception) -> str:
    if isinstance(error, OutOfBudget):
        return str(error)
    if isinstance(error, BadExpression):
        return f"compilation error: {error}"
    return f"expression '{text}' resulted in error: {error}"


def _read_policies(stored: Iterable[StoredObject]) -> list[Policy]:
    documents = [(one.name, one.document()) for one in sorted(stored, key=lambda one: one.name)]
    return [
        Policy(name, document["spec"], Matcher(document["spec"].get("matchConstraints") or {}))
        for name, document in documents
    ]


def _read_bindings(stored: Iterable[StoredObject]) -> dict[str, list[Binding]]:
    """By the name of their policy."""
    found: dict[str, list[Binding]] = {}
    for one in sorted(stored, key=lambda one: one.name):
        spec = one.document()["spec"]
        found.setdefault(spec.get("policyName", ""), []).append(
            Binding(one.name, spec, Matcher(spec.get("matchResources") or {}))
        )
    return found


def _audit(denial: Denial, request: Request) -> None:
    assert denial.binding is not None
    failure = {
        "message": denial.message,
        "policy": denial.policy.name,
        "binding": denial.binding.name,
        "expressionIndex": denial.index,
        "validationActions": denial.binding.actions,
    }
    log.info(
        "audit: validation.policy.admission.k8s.io/validation_failure: %s %s/%s by %s: %s",
        request.resource.group_plural,
        request.namespace,
        request.name,
        request.user.name,
        msgspec.json.encode([failure]).decode(),
    )
