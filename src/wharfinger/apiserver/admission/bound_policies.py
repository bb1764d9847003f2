"""What validating and mutating admission policies share: bindings, parameters, match conditions and variables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from wharfinger.admission.reads import Derived, ObjectVersion
from wharfinger.admission.request import Request
from wharfinger.api.registry import Document, Resource
from wharfinger.api.selectors import matches
from wharfinger.apiserver.admission import review as admission_review
from wharfinger.apiserver.admission.authorizer import Authorize
from wharfinger.apiserver.admission.matching import RequestMatcher, conditions_hold, selector
from wharfinger.apiserver.expressions import Names, bind, expression, typed_expression, typed_name
from wharfinger.cel import Bindings, EvaluationError, InvalidExpression, MissingVariable, Program
from wharfinger.store.store import Store

_VARIABLE = re.compile(r"\bvariables\s*\.\s*([A-Za-z_]\w*)")


class InvalidBinding(Exception):
    """The parameters of a binding cannot be resolved for this request."""


class PolicyBinding(msgspec.Struct):
    name: str
    spec: Document
    matcher: RequestMatcher

    @property
    def actions(self) -> list[str]:
        return list(self.spec.get("validationActions") or ())


@dataclass
class AdmissionPolicy:
    name: str
    spec: Document
    matcher: RequestMatcher

    @cached_property
    def names(self) -> Names:
        """The names that its expressions may use."""
        return variable_names(self.spec)

    @property
    def fails(self) -> bool:
        return bool(self.spec.get("failurePolicy", "Fail") == "Fail")


class BoundPolicies:
    """The policies of one kind and their bindings."""

    def __init__(self, store: Store, policies: Resource, bindings: Resource) -> None:
        self._store = store
        self._policies = Derived(store, policies, _read_policies)
        self._bindings = Derived(store, bindings, _read_bindings)

    def __bool__(self) -> bool:
        """Whether any policy can apply."""
        return bool(self._bindings.get())

    def matching(self, request: Request) -> Iterator[tuple[AdmissionPolicy, PolicyBinding, Resource]]:
        """Policies with each binding for the request, and the resource as which it matches the policy."""
        bindings = self._bindings.get()
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
                    yield policy, binding, matched

    def parameters(self, policy: AdmissionPolicy, binding: PolicyBinding, request: Request) -> list[Document | None]:
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


class PolicyEvaluation:
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
        self.names = policy.names  # that expressions may use
        self._evaluated: dict[str, Any] = {}  # values of variables, or their errors
        self._bindings: dict[frozenset[str], Bindings] = {}
        self._matched = False

    def matched(self) -> bool:
        """Whether the match conditions hold. Raises MatchConditionError."""
        self._matched = conditions_hold(
            self._spec.get("matchConditions") or (),
            bind(self._values, authorize=self._authorize),
            fails=self._policy.fails,
        )
        return self._matched

    def evaluate(self, text: str, *types: str) -> Any:
        """The value of an expression of one of the types. Raises EvaluationError or InvalidExpression."""
        return self.value(typed_expression(text, self.names, *types))

    def value(self, program: Program) -> Any:
        """The value of an expression over `names`. Raises EvaluationError."""
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
            self._bindings[used] = bind(values, self.names, authorize=self._authorize)
        return self._bindings[used]

    def _variable(self, name: str, text: str, position: int) -> Any:
        try:
            expression(text, variable_names(self._spec, position))  # it must not use later variables
            return self._value(expression(text, self.names), position)
        except (EvaluationError, InvalidExpression) as error:
            return EvaluationError(f'composited variable "{name}" fails to evaluate: {error}')


def variable_names(spec: Document, count: int | None = None) -> Names:
    """The names that expressions of a policy may use, with the first `count` of its own variables or all of them."""
    names: Names = ("object", "oldObject", "request", "authorizer", *(("params",) if spec.get("paramKind") else ()))
    names = (*names, "namespaceObject")
    for one in (spec.get("variables") or ())[:count]:
        try:
            type = expression(str(one.get("expression") or ""), names).type
        except InvalidExpression:
            type = ""
        names = (*names, typed_name(f"variables.{one.get('name')}", type))
    return names


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
