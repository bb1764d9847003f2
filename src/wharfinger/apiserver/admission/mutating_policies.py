"""MutatingAdmissionPolicies: changes of requests that CEL expressions construct, with the messages of kube-apiserver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jsonpatch
import jsonpointer

from wharfinger.admission.request import PASS, Request, Review
from wharfinger.api.errors import ApiError, forbidden
from wharfinger.api.kinds.builtin import MUTATING_POLICIES, MUTATING_POLICY_BINDINGS
from wharfinger.api.registry import Document, Resource
from wharfinger.api.schema.tree import Schema, schema_of
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
from wharfinger.apiserver.expressions import mutation_expression
from wharfinger.cel import EvaluationBudget, EvaluationError, InvalidExpression
from wharfinger.cel.constructions import MismatchedTypes, constructed_object, constructed_operations
from wharfinger.store.apply import merged_configuration
from wharfinger.store.field_sets import describe, is_granular, item_key
from wharfinger.store.store import Store
from wharfinger.store.typed import typed_faults
from wharfinger.store.versions import ConversionNeeded, copy

InvocationKey = tuple[str, str, str, str]
"""Names of the policy, the binding and the parameter, and the parameter's namespace."""


class MutationFailed(Exception):
    """A mutation that cannot be evaluated or applied."""


class MutatingPolicyReviewer:
    """Evaluates every mutating policy that has a binding, in the order of their names."""

    def __init__(self, store: Store, authorize: Authorize) -> None:
        self._store = store
        self._authorize = authorize
        self._policies = BoundPolicies(store, MUTATING_POLICIES, MUTATING_POLICY_BINDINGS)

    def repeats(self, request: Request) -> bool:
        """Expressions may depend on names."""
        return not self._policies or exempt(request.resource)

    async def review(self, request: Request, repeat: Callable[[], None]) -> Review:
        """Policies with reinvocation policy IfNeeded run again if the object changed after they ran."""
        if not self._policies or request.object is None or request.operation == "DELETE" or exempt(request.resource):
            return PASS
        try:
            stale = await self._complete(request, None)
            if stale is None:
                return PASS
            before = copy(request.object)
            repeat()
            if stale or request.object != before:
                await self._complete(request, stale)
        except ApiError as denied:
            return Review(denied)
        return PASS

    async def _complete(self, request: Request, only: set[InvocationKey] | None) -> set[InvocationKey] | None:
        """Runs policies, again from the first one if the object must be converted for one of them first."""
        kind = self._store.registry.of_plural(request.resource.group, request.resource.plural)
        given = copy(request.object) if kind is not None and kind.conversion is not None else None
        while True:
            try:
                with EvaluationBudget():
                    return self._run(request, only)
            except ConversionNeeded as needed:
                await needed.resolve()
                request.object = copy(given)

    def _run(self, request: Request, only: set[InvocationKey] | None) -> set[InvocationKey] | None:
        """Runs all policies, or only some. Returns those that may be invoked again; None if nothing changed."""
        failures: list[tuple[AdmissionPolicy, PolicyBinding, str]] = []
        invoked: set[InvocationKey] = set()
        changed = False
        for policy, binding, matched in list(self._policies.matching(request)):
            try:
                params = self._policies.parameters(policy, binding, request)
            except InvalidBinding as error:
                failures.append((policy, binding, f"failed to configure binding: {error}"))
                continue
            for param in params:
                metadata = (param or {}).get("metadata") or {}
                key = (policy.name, binding.name, metadata.get("name", ""), metadata.get("namespace", ""))
                if only is not None and key not in only:
                    continue
                before = copy(request.object or {})
                try:
                    applied = self._mutate(policy, request, matched, param, failures, binding)
                except MatchConditionError as error:
                    failures.append((policy, binding, str(error)))
                    continue
                changed = changed or request.object != before
                if applied and policy.spec.get("reinvocationPolicy") == "IfNeeded":
                    invoked.add(key)
        if refused := [one for one in failures if one[0].fails]:
            raise _denial(request, refused)
        return invoked if changed else None

    def _mutate(
        self,
        policy: AdmissionPolicy,
        request: Request,
        matched: Resource,
        param: Document | None,
        failures: list[tuple[AdmissionPolicy, PolicyBinding, str]],
        binding: PolicyBinding,
    ) -> bool:
        """Applies the mutations of one policy in turn; returns False if its match conditions do not hold."""
        for index, mutation in enumerate(policy.spec.get("mutations") or ()):
            values = admission_review.variables(request, self._store.registry, matched)
            if policy.spec.get("paramKind"):
                values["params"] = param
            namespace = admission_review.namespace_of(request, self._store.peek)
            evaluation = PolicyEvaluation(policy, values, namespace, self._authorize)
            if index == 0 and not evaluation.matched():
                return False
            if values["object"] is None:
                continue
            try:
                patched = self._patched(evaluation, mutation, values["object"], matched)
            except MutationFailed as error:
                failures.append((policy, binding, str(error)))
                continue
            request.object = admission_review.as_stored(patched, self._store.registry, matched, request)
        return True

    def _patched(
        self, evaluation: PolicyEvaluation, mutation: Document, present: Document, matched: Resource
    ) -> Document:
        is_patch = mutation.get("patchType") == "JSONPatch"
        text = str((mutation.get("jsonPatch" if is_patch else "applyConfiguration") or {}).get("expression") or "")
        try:
            program = mutation_expression(text, evaluation.names, json_patch=is_patch)
            value = evaluation.value(program)
            if is_patch:
                return _json_patched(present, constructed_operations(value))
            return self._configured(present, constructed_object(value), matched)
        except InvalidExpression as error:
            raise MutationFailed(f"compilation error: {error}") from None
        except EvaluationError as error:
            raise MutationFailed(f"expression '{text.strip()}' resulted in error: {error}") from None
        except MismatchedTypes as error:
            raise MutationFailed(str(error)) from None

    def _configured(self, present: Document, configuration: Document, matched: Resource) -> Document:
        kind = self._store.registry.of_plural(matched.group, matched.plural)
        assert kind is not None, "policies match only resources that are served"
        schema = schema_of(kind, matched.version)
        configuration = {**configuration, "apiVersion": present.get("apiVersion"), "kind": present.get("kind")}
        if faults := typed_faults(schema, configuration, declared=True):
            said = faults[0] if len(faults) == 1 else "errors:\n" + "\n".join(f"  {fault}" for fault in faults)
            raise MutationFailed(
                f"error applying patch: failed to convert patch object to typed object: .{said.removeprefix('.')}"
            )
        if atomics := list(_atomics(schema, configuration, "")):
            raise MutationFailed(
                "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: "
                + ", ".join(atomics)
            )
        merged: Document = merged_configuration(schema, copy(present), configuration)
        return merged


def _atomics(schema: Schema, value: Any, path: str) -> Iterator[str]:
    """Where a configuration would replace a whole list or map, of which it may know only a part."""
    if isinstance(value, dict):
        if schema.type in ("object", "map") and not is_granular(schema, value):
            yield path
        for name, inner in value.items():
            if name in schema.fields:
                yield from _atomics(schema.fields[name], inner, path + describe((f"f:{name}",)))
    elif isinstance(value, list) and schema.type == "list":
        if not is_granular(schema, value):
            yield path
        for index, item in enumerate(value):
            here = f"{path}[{index}]" if not is_granular(schema, value) else path + describe((item_key(schema, item),))
            yield from _atomics(schema.item_schema, item, here)


def _json_patched(present: Document, operations: list[dict[str, Any]]) -> Document:
    try:
        patched = jsonpatch.apply_patch(copy(present), operations)
    except jsonpatch.JsonPatchTestFailed:
        return present
    except (
        *(jsonpatch.JsonPatchException, jsonpointer.JsonPointerException),
        *(LookupError, ValueError, TypeError, AttributeError),
    ) as error:
        raise MutationFailed(f"JSON Patch: {error}") from None
    if not isinstance(patched, dict) or not isinstance(patched.get("metadata"), dict):
        raise MutationFailed("JSON Patch: the result is not an object")
    return patched


def _denial(request: Request, failures: list[tuple[AdmissionPolicy, PolicyBinding, str]]) -> ApiError:
    messages = [
        f"policy '{policy.name}' with binding '{binding.name}' denied request: {message}"
        for policy, binding, message in failures
    ]
    refused = forbidden(request.resource.group, request.resource.plural, request.name, "")
    error = ApiError(messages[0], code=403, reason="Invalid", details=dict(refused.details))
    error.details["causes"] = [{"message": message} for message in messages]
    return error
