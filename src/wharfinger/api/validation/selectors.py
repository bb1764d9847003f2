"""Validation of labels, annotations and selectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from wharfinger.api.fields import FieldError, forbidden, invalid, required
from wharfinger.api.names import label_value, qualified_name

ANNOTATIONS_LIMIT = 256 * 1024


def each(owner: Mapping[str, Any], name: str) -> Iterator[tuple[int, Any]]:
    """The items of a list field with their indexes; none if it is absent."""
    yield from enumerate(owner.get(name) or ())


def label_key_faults(key: str, path: str) -> Iterator[FieldError]:
    for fault in qualified_name(key):
        yield invalid(path, key, fault)


def labels_faults(labels: Mapping[str, str], path: str) -> Iterator[FieldError]:
    for key, value in labels.items():
        yield from label_key_faults(key, path)
        for fault in label_value(value or ""):
            yield invalid(path, value, fault)


def annotations_faults(annotations: Mapping[str, str], path: str) -> Iterator[FieldError]:
    size = 0
    for key, value in annotations.items():
        # Annotation keys may have upper-case letters; their lower-case form must be a valid label key.
        for fault in qualified_name(key.lower()):
            yield invalid(path, key, fault)
        size += len(key.encode()) + len((value or "").encode())
    if size > ANNOTATIONS_LIMIT:
        yield FieldError(path, "FieldValueTooLong", f"Too long: may not be more than {ANNOTATIONS_LIMIT} bytes")


def label_selector_faults(selector: Mapping[str, Any] | None, path: str) -> Iterator[FieldError]:
    if not selector:
        return
    yield from labels_faults(selector.get("matchLabels") or {}, f"{path}.matchLabels")
    for index, expression in each(selector, "matchExpressions"):
        here = f"{path}.matchExpressions[{index}]"
        yield from _expression_faults(expression, here)


def node_selector_faults(selector: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    terms = selector.get("nodeSelectorTerms") or ()
    if not terms:
        yield required(f"{path}.nodeSelectorTerms", "must have at least one node selector term")
    for index, term in enumerate(terms):
        yield from node_selector_term_faults(term, f"{path}.nodeSelectorTerms[{index}]")


def node_selector_term_faults(term: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    for index, expression in each(term, "matchExpressions"):
        yield from _expression_faults(expression, f"{path}.matchExpressions[{index}]", node=True)
    for index, expression in each(term, "matchFields"):
        yield from _node_field_faults(expression, f"{path}.matchFields[{index}]")


def _expression_faults(expression: Mapping[str, Any], path: str, *, node: bool = False) -> Iterator[FieldError]:
    operator, values = expression.get("operator") or "", expression.get("values") or ()
    if operator in OPERATORS or (node and operator in ("Gt", "Lt")):
        yield from values_faults(operator, values, path)
    else:
        yield invalid(f"{path}.operator", operator, "not a valid selector operator")
    yield from label_key_faults(expression.get("key") or "", f"{path}.key")
    for position, value in enumerate(values):
        for fault in label_value(value):
            yield invalid(f"{path}.values[{position}]", value, fault)


OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


def values_faults(operator: str, values: Sequence[Any], path: str) -> Iterator[FieldError]:
    """Too few or too many values for an operator; all others than those of sets take one value."""
    if operator in ("In", "NotIn"):
        if not values:
            yield required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            yield forbidden(f"{path}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
    elif len(values) != 1:
        yield required(f"{path}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")


def _node_field_faults(expression: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    operator, values = expression.get("operator") or "", expression.get("values") or ()
    if operator not in ("In", "NotIn"):
        yield invalid(f"{path}.operator", operator, "not a valid selector operator")
    elif len(values) != 1:
        yield required(
            f"{path}.values", "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        )
    if expression.get("key") != "metadata.name":
        yield invalid(f"{path}.key", expression.get("key") or "", "not a valid field selector key")
