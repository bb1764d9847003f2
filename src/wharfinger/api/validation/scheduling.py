"""Validation of scheduling directives: affinity, topology spread, tolerations, gates and taints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from wharfinger.api.fields import FieldError, duplicate, forbidden, invalid, not_supported, required
from wharfinger.api.names import dns_label, label_value, qualified_name
from wharfinger.api.taints import EFFECTS, NO_EXECUTE
from wharfinger.api.validation.common import one_of, positive
from wharfinger.api.validation.selectors import (
    each,
    label_key_faults,
    label_selector_faults,
    node_selector_faults,
    node_selector_term_faults,
)

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def affinity_faults(affinity: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    node = affinity.get("nodeAffinity")
    if node:
        here = f"{path}.nodeAffinity"
        if node.get(_REQUIRED) is not None:
            yield from node_selector_faults(node[_REQUIRED], f"{here}.{_REQUIRED}")
        for index, term in each(node, _PREFERRED):
            yield from _weight_faults(term, f"{here}.{_PREFERRED}[{index}]")
            preference = term.get("preference") or {}
            yield from node_selector_term_faults(preference, f"{here}.{_PREFERRED}[{index}].preference")
    for kind in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(kind) or {}
        for index, term in each(terms, _REQUIRED):
            yield from _pod_term_faults(term, f"{path}.{kind}.{_REQUIRED}[{index}]")
        for index, weighted in each(terms, _PREFERRED):
            here = f"{path}.{kind}.{_PREFERRED}[{index}]"
            yield from _weight_faults(weighted, here)
            yield from _pod_term_faults(weighted.get("podAffinityTerm") or {}, f"{here}.podAffinityTerm")


def _weight_faults(term: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    weight = term.get("weight") or 0
    if not 1 <= weight <= 100:
        yield invalid(f"{path}.weight", weight, "must be in the range 1-100")


def _pod_term_faults(term: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    yield from label_selector_faults(term.get("labelSelector"), f"{path}.labelSelector")
    yield from label_selector_faults(term.get("namespaceSelector"), f"{path}.namespaceSelector")
    for name in term.get("namespaces") or ():
        for fault in dns_label(name):
            yield invalid(f"{path}.namespace", name, fault)
    yield from _label_keys_faults(term, path)
    key = term.get("topologyKey") or ""
    if not key:
        yield required(f"{path}.topologyKey", "can not be empty")
    yield from label_key_faults(key, f"{path}.topologyKey")


def _label_keys_faults(term: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    selector = term.get("labelSelector")
    keys, mismatched = term.get("matchLabelKeys") or (), term.get("mismatchLabelKeys") or ()
    for name, listed in (("matchLabelKeys", keys), ("mismatchLabelKeys", mismatched)):
        if listed and selector is None:
            yield forbidden(f"{path}.{name}", "must not be specified when labelSelector is not set")
        for index, key in enumerate(listed):
            yield from label_key_faults(key, f"{path}.{name}[{index}]")
    yield from _selected_twice_faults(selector or {}, keys, path)
    for index, key in enumerate(keys):
        if key in mismatched:
            detail = "exists in both matchLabelKeys and mismatchLabelKeys"
            yield invalid(f"{path}.matchLabelKeys[{index}]", key, detail)


def _selected_twice_faults(selector: Mapping[str, Any], keys: Sequence[str], path: str) -> Iterator[FieldError]:
    """A key of matchLabelKeys may appear once in the selector, to which the server adds it on create."""
    position = {key: index for index, key in enumerate(keys)}
    seen = set(selector.get("matchLabels") or ())
    for _, expression in each(selector, "matchExpressions"):
        key = expression.get("key")
        if key in position and key in seen:
            yield invalid(f"{path}[{position[key]}]", key, "exists in both matchLabelKeys and labelSelector")
        seen.add(key)


def spread_faults(constraints: Sequence[Mapping[str, Any]], path: str) -> Iterator[FieldError]:
    for index, constraint in enumerate(constraints):
        here = f"{path}[{index}]"
        action = constraint.get("whenUnsatisfiable") or ""
        yield from positive(constraint.get("maxSkew"), f"{here}.maxSkew")
        if not constraint.get("topologyKey"):
            yield required(f"{here}.topologyKey", "can not be empty")
        if action not in ("DoNotSchedule", "ScheduleAnyway"):
            yield not_supported(f"{here}.whenUnsatisfiable", action, ("DoNotSchedule", "ScheduleAnyway"))
        mark = (constraint.get("topologyKey"), action)
        if any((later.get("topologyKey"), later.get("whenUnsatisfiable") or "") == mark for later in constraints[index + 1 :]):  # fmt: skip
            yield duplicate(f"{here}.{{topologyKey, whenUnsatisfiable}}", f"{{{mark[0]}, {action}}}")
        if constraint.get("minDomains") is not None:
            yield from positive(constraint["minDomains"], f"{here}.minDomains")
            if action != "DoNotSchedule":
                detail = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
                yield invalid(f"{here}.minDomains", constraint["minDomains"], detail)
        for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            yield from one_of(constraint.get(name), ("Honor", "Ignore"), f"{here}.{name}", empty=True)
        yield from _label_keys_faults(constraint, here)
        yield from label_selector_faults(constraint.get("labelSelector"), f"{here}.labelSelector")


def tolerations_faults(tolerations: Sequence[Mapping[str, Any]], path: str) -> Iterator[FieldError]:
    for index, toleration in enumerate(tolerations):
        here = f"{path}[{index}]"
        key, operator = toleration.get("key") or "", toleration.get("operator") or ""
        value, effect = toleration.get("value") or "", toleration.get("effect") or ""
        if key:
            yield from label_key_faults(key, f"{here}.key")
        elif operator != "Exists":
            detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            yield invalid(f"{here}.operator", operator, detail)
        if toleration.get("tolerationSeconds") is not None and effect != NO_EXECUTE:
            yield invalid(f"{here}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
        if operator in ("", "Equal"):
            if faults := label_value(value):
                yield invalid(f"{here}.operator", value, ";".join(faults))
        elif operator == "Exists":
            if value:
                yield invalid(f"{here}.operator", value, "value must be empty when `operator` is 'Exists'")
        elif operator in ("Lt", "Gt"):  # alpha in 1.36, off by default
            yield not_supported(f"{here}.operator", operator, ("Equal", "Exists", "Lt", "Gt"))
        else:
            yield not_supported(f"{here}.operator", operator, ("Equal", "Exists"))
        yield from one_of(effect, EFFECTS, f"{here}.effect", empty=True)


def gates_faults(gates: Sequence[Mapping[str, Any]], path: str) -> Iterator[FieldError]:
    seen = set()
    for index, gate in enumerate(gates):
        name = gate.get("name") or ""
        for fault in qualified_name(name):
            yield invalid(f"{path}[{index}]", name, fault)
        if name in seen:
            yield duplicate(f"{path}[{index}]", name)
        seen.add(name)


def taints_faults(taints: Sequence[Mapping[str, Any]], path: str) -> Iterator[FieldError]:
    seen = set()
    for index, taint in enumerate(taints):
        here = f"{path}[{index}]"
        yield from label_key_faults(taint.get("key") or "", f"{here}.key")
        if faults := label_value(taint.get("value") or ""):
            yield invalid(f"{here}.value", taint.get("value"), ";".join(faults))
        yield from one_of(taint.get("effect"), EFFECTS, f"{here}.effect")
        mark = (taint.get("key"), taint.get("effect"))
        if mark in seen:
            error = duplicate(here, dict(taint))
            yield FieldError(error.path, error.reason, f"{error.message}: taints must be unique by key and effect pair")
        seen.add(mark)
