"""Validation rules in CEL in the schemas of custom resources (`x-kubernetes-validations`).

Values are dynamic: a rule with a type error, which Kubernetes rejects with the CustomResourceDefinition, fails here when it is
evaluated. Immutability (`self == oldSelf`) is checked with the schema itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from wharfinger.api.fields import FieldError, duplicate, forbidden, invalid, required
from wharfinger.api.registry import Document
from wharfinger.api.schema.structural import IMMUTABLE_RULE, openapi_type
from wharfinger.api.schema.tree import ABSENT, RULES, Schema
from wharfinger.apiserver.expressions import bind, expression
from wharfinger.cel import Bindings, CostExceeded, EvaluationBudget, EvaluationError, InvalidExpression

_TRANSITION = re.compile(r"\boldSelf\b")
_NAMES = ("self", "oldSelf")


def schema_faults(schema: Any, path: str) -> Iterator[FieldError]:
    """Errors for rules of a schema that do not compile."""
    if not isinstance(schema, dict):
        return
    rules = schema.get(RULES)
    for index, rule in enumerate(rules if isinstance(rules, list) else ()):
        for part in ("rule", "messageExpression"):
            if isinstance(rule, dict) and rule.get(part):
                try:
                    expression(str(rule[part]), _NAMES)
                except InvalidExpression as error:
                    here = f"{path}.{RULES}[{index}].{part}"
                    yield invalid(here, rule[part], str(error))
    properties = schema.get("properties")
    for name, inner in properties.items() if isinstance(properties, dict) else ():
        yield from schema_faults(inner, f"{path}.properties[{name}]")
    for part in ("items", "additionalProperties"):
        yield from schema_faults(schema.get(part), f"{path}.{part}")


def has_rules(schema: Any) -> bool:
    """Whether a schema has rules anywhere; most have none, and their objects need no walk on every write."""
    if isinstance(schema, dict):
        return bool(schema.get(RULES)) or any(has_rules(inner) for inner in schema.values())
    return isinstance(schema, list) and any(has_rules(inner) for inner in schema)


def faults(schema: Schema, value: Any, old: Any) -> list[FieldError]:
    """Violations of the rules by a value of valid structure; `old` is `ABSENT` on create."""
    found: list[FieldError] = []
    with EvaluationBudget():
        try:
            for fault in _faults(schema, value, old, ""):
                found.append(fault)  # noqa: PERF402  # what was found before the budget was exceeded counts
        except CostExceeded as error:
            found.append(invalid("", openapi_type(schema), str(error)))
    return found


def _faults(schema: Schema, value: Any, old: Any, path: str) -> Iterator[FieldError]:
    for rule in schema.constraints.rules:
        if rule.get("rule") != IMMUTABLE_RULE:
            yield from _evaluate(rule, schema, value, old, path)
    if isinstance(value, dict):
        for name, item in value.items():
            inner = schema.fields.get(name, schema.item)
            if inner is not None:
                before = old.get(name, ABSENT) if isinstance(old, dict) else ABSENT
                yield from _faults(inner, item, before, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and schema.item is not None:
        for index, item in enumerate(value):
            before = _correlated(schema, item, old)
            yield from _faults(schema.item, item, before, f"{path}[{index}]")


def _correlated(schema: Schema, item: Any, old: Any) -> Any:
    """The old state of a list item; only known in lists of type map."""
    keys = schema.map_keys
    if not keys or not isinstance(old, list) or not isinstance(item, dict):
        return ABSENT
    return next(
        (one for one in old if isinstance(one, dict) and all(one.get(key) == item.get(key) for key in keys)), ABSENT
    )


def _evaluate(rule: Document, schema: Schema, value: Any, old: Any, path: str) -> Iterator[FieldError]:
    text = str(rule.get("rule") or "")
    if _TRANSITION.search(text) and old is ABSENT:
        return
    shown_type = None if schema.type in ("any", "int-or-string") else openapi_type(schema)
    bindings = bind({"self": value, "oldSelf": None if old is ABSENT else old})
    try:
        held = expression(text, _NAMES).evaluate(bindings)
        if not isinstance(held, bool):
            raise EvaluationError("rule must evaluate to bool")
    except CostExceeded:
        raise
    except EvaluationError as error:
        yield invalid(path, shown_type, f"{error} evaluating rule: {rule.get('message') or text}")
        return
    except InvalidExpression as error:
        yield invalid(path, shown_type, str(error))
        return
    if held:
        return
    message = _message(rule, bindings) or str(rule.get("message") or "").strip() or f"failed rule: {text}"
    here = path + str(rule.get("fieldPath") or "")
    match rule.get("reason"):
        case "FieldValueForbidden":
            yield forbidden(here, message)
        case "FieldValueRequired":
            yield required(here, message)
        case "FieldValueDuplicate":
            yield duplicate(here, value)
        case _ if isinstance(value, dict | list):
            yield FieldError(here or "<nil>", "FieldValueInvalid", f"Invalid value: {message}")
        case _:
            yield invalid(here, value, message)


def _message(rule: Document, bindings: Bindings) -> str:
    """The value of the message expression; empty if it fails, so that the plain message is used."""
    if not rule.get("messageExpression"):
        return ""
    try:
        said = expression(str(rule["messageExpression"]), _NAMES).evaluate(bindings)
    except (EvaluationError, InvalidExpression):
        return ""
    return said.strip() if isinstance(said, str) and "\n" not in said else ""
