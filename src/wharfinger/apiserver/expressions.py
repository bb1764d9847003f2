"""CEL expressions in API objects: validation rules of custom resources, match conditions of webhooks, admission policies.

Variables are dynamic: types are checked when an expression is evaluated, not when it is compiled.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from wharfinger.apiserver.admission.authorizer import Authorize, authorizer_functions
from wharfinger.cel import Bindings, Environment, InvalidExpression, Program
from wharfinger.cel.library import DYN

BOOL, STRING, NULL = "bool", "string", "null_type"


@lru_cache(maxsize=512)
def _environment(names: tuple[str, ...]) -> Environment:
    return Environment(dict.fromkeys(names, DYN), authorizer_functions())


def bind(
    values: Mapping[str, Any], names: tuple[str, ...] | None = None, *, authorize: Authorize | None = None
) -> Bindings:
    """Values for expressions over `names`, which may be more than there are values; `authorize` answers the variable
    `authorizer`."""
    return _environment(tuple(values) if names is None else names).bind(values, authorize)


@lru_cache(maxsize=4096)
def expression(text: str, names: tuple[str, ...]) -> Program:
    """The expression over variables of these names. Raises InvalidExpression."""
    return _environment(names).compile(text)


def typed_expression(text: str, names: tuple[str, ...], *types: str) -> Program:
    """An expression of one of the types. Raises InvalidExpression."""
    program = expression(text, names)
    if program.type not in types:
        wanted = types[0] if len(types) == 1 else f"one of [{' '.join(types)}]"
        raise InvalidExpression(f"must evaluate to {wanted} but got {program.type}")
    return program
