"""Validation rules in CEL that schemas of custom resources carry (`x-kubernetes-validations`).

Values are dynamic here: a rule that Kubernetes would refuse for its types is refused when it is evaluated. Immutability
(`self == oldSelf`) is checked with the schema itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from wharfinger.api import structural
from wharfinger.api.fields import FieldError, duplicate, forbidden, invalid, required
from wharfinger.api.registry import Document
from wharfinger.apiserver.expressions import BadExpression, Failed, Input, expression

_TRANSITION = re.compile(r"\boldSelf\b")
_NONE: Any = object()
_NAMES = ("self", "oldSelf")


def schema_faults(schema: Any, path: str) -> Iterator[FieldError]:
    """Rules of a schema that do not compile."""
    if not isinstance(schema, dict):
        return
    rules = schema.get(structural.RULES)
    for index, rule in enumerate(rules if isinstance(rules, list) else ()):
        for part in ("rule", "messageExpression"):
            if isinstance(rule, dict) and rule.get(part):
                try:
                    expression(str(rule[part]), _NAMES)
                except BadExpression as error:
                    here = f"{path}.{structural.RULES}[{index}].{part}"
                    yield invalid(here, rule[part], str(error))
    properties = schema.get("properties")
    for name, inner in properties.items() if isinstance(properties, dict) else ():
        yield from schema_faults(inner, f"{path}.properties[{name}]")
    for part in ("items", "additionalProperties"):
        yield from schema_faults(schema.get(part), f"{path}.{part}")


def has_rules(schema: Any) -> bool:
    """Whether a schema carries rules anywhere; most do not, and need no walk for every write."""
    if isinstance(schema, dict):
        return bool(schema.get(structural.RULES)) or any(has_rules(inner) for inner in schema.values())
    return isinstance(schema, list) and any(has_rules(inner) for inner in schema)


def faults(schema: Document, value: Any, old: Any, path: str = "") -> Iterator[FieldError]:
    """What the rules say of a value that has the right structure; `old` is `absent()` on create."""
    for rule in schema.get(structural.RULES) or ():
        if rule.get("rule") != structural.IMMUTABLE_RULE:
            yield from _evaluate(rule, schema, value, old, path)
    if isinstance(value, dict):
        properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
        for name, item in value.items():
            inner = properties.get(name, extra)
            if isinstance(inner, dict):
                before = old.get(name, _NONE) if isinstance(old, dict) else _NONE
                yield from faults(inner, item, before, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, item in enumerate(value):
            before = _correlated(schema, item, old)
            yield from faults(schema["items"], item, before, f"{path}[{index}]")


def absent() -> Any:
    return _NONE


def _correlated(schema: Document, item: Any, old: Any) -> Any:
    """The earlier state of a list item: known only in lists that have keys."""
    keys = schema.get(structural.MAP_KEYS)
    if not keys or not isinstance(old, list) or not isinstance(item, dict):
        return _NONE
    return next(
        (one for one in old if isinstance(one, dict) and all(one.get(key) == item.get(key) for key in keys)), _NONE
    )


def _evaluate(rule: Document, schema: Document, value: Any, old: Any, path: str) -> Iterator[FieldError]:
    text = str(rule.get("rule") or "")
    if _TRANSITION.search(text) and old is _NONE:
        return
    given = Input({"self": value, "oldSelf": None if old is _NONE else old})
    try:
        held = expression(text, _NAMES).value(given)
        if not isinstance(held, bool):
            raise Failed("the rule is neither true nor false")
    except Failed as error:
        yield invalid(path, schema.get("type"), f"{error} evaluating rule: {rule.get('message') or text}")
        return
    except BadExpression as error:
        yield invalid(path, schema.get("type"), str(error))
        return
    if held:
        return
    message = _message(rule, given) or str(rule.get("message") or "").strip() or f"failed rule: {text}"
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


def _message(rule: Document, given: Input) -> str:
    """What the message expression says; nothing when it fails, so that the plain message counts."""
    if not rule.get("messageExpression"):
        return ""
    try:
        said = expression(str(rule["messageExpression"]), _NAMES).value(given)
    except (Failed, BadExpression):
        return ""
    return said.strip() if isinstance(said, str) and "\n" not in said else ""
