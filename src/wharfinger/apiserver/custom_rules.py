"""Validation rules in CEL that schemas of custom resources carry (`x-kubernetes-validations`).

Values are dynamic here: a rule that Kubernetes would refuse for its types is refused when it is evaluated. Costs are not
limited beyond what the size of a body limits. Immutability (`self == oldSelf`) is checked with the schema itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any

from cel_expr_python import cel

from wharfinger.api import structural
from wharfinger.api.fields import FieldError, duplicate, forbidden, invalid, required
from wharfinger.api.registry import Document
from wharfinger.placement.cel.environment import extensions

_TRANSITION = re.compile(r"\boldSelf\b")
_NONE: Any = object()


class BadRule(ValueError):
    """The rule does not compile."""


@cache
def _environment() -> cel.Env:
    anything = cel.Type.DYN
    return cel.NewEnv(variables={"self": anything, "oldSelf": anything}, extensions=extensions())


@lru_cache(maxsize=2048)
def _program(text: str) -> Any:
    try:
        return _environment().compile(text)
    except RuntimeError as error:
        raise BadRule(str(error).removeprefix("INVALID_ARGUMENT: ").removesuffix(" [INVALID_ARGUMENT]")) from None


def schema_faults(schema: Any, path: str) -> Iterator[FieldError]:
    """Rules of a schema that do not compile."""
    if not isinstance(schema, dict):
        return
    rules = schema.get(structural.RULES)
    for index, rule in enumerate(rules if isinstance(rules, list) else ()):
        for part in ("rule", "messageExpression"):
            if isinstance(rule, dict) and rule.get(part):
                try:
                    _program(str(rule[part]))
                except BadRule as error:
                    here = f"{path}.{structural.RULES}[{index}].{part}"
                    yield invalid(here, rule[part], f"compilation failed: {error}")
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
    activation = _environment().Activation({"self": value, "oldSelf": None if old is _NONE else old})
    try:
        result = _program(text).eval(activation)
        if result.type() != cel.Type.BOOL:  # errors are values here
            raise RuntimeError(str(result.value()))
        if result.value() is True:
            return
    except RuntimeError as error:
        yield invalid(path, schema.get("type"), f"{_clean(error)} evaluating rule: {rule.get('message') or text}")
        return
    except BadRule as error:
        yield invalid(path, schema.get("type"), f"compilation failed: {error}")
        return
    message = _message(rule, activation) or str(rule.get("message") or "").strip() or f"failed rule: {text}"
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


def _message(rule: Document, activation: Any) -> str:
    """What the message expression says; nothing when it fails, so that the plain message counts."""
    if not rule.get("messageExpression"):
        return ""
    try:
        result = _program(str(rule["messageExpression"])).eval(activation)
    except (RuntimeError, BadRule):
        return ""
    said = str(result.value()) if result.type() == cel.Type.STRING else ""
    return "" if "\n" in said else said.strip()


def _clean(error: RuntimeError) -> str:
    """The error in cel-go's words, where they are known."""
    text = re.sub(r" \[[A-Z_]+\]$", "", re.sub(r"^[A-Z_]+: ", "", str(error)))
    return re.sub(r'^Key not found in map : "?([^"]*)"?$', r"no such key: \1", text)
