"""CEL expressions in API objects: validation rules of custom resources, match conditions of webhooks, admission policies.

Variables are dynamic: types are checked when an expression is evaluated, not when it is compiled.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from cel_expr_python import cel

from wharfinger.apiserver.admission.authorizer import Authorize, authorizer_functions
from wharfinger.cel import Bindings, Environment, InvalidExpression, Program
from wharfinger.cel.constructions import as_maps
from wharfinger.cel.library import DYN

BOOL, STRING, NULL = "bool", "string", "null_type"


_TYPES = {
    BOOL: cel.Type.BOOL,
    STRING: cel.Type.STRING,
    "int": cel.Type.INT,
    "uint": cel.Type.UINT,
    "double": cel.Type.DOUBLE,
    "bytes": cel.Type.BYTES,
}
Names = tuple[str, ...]
"""Names of variables; `name: type` if its type is known, which the types of expressions then depend on."""


@lru_cache(maxsize=512)
def _environment(names: Names) -> Environment:
    pairs = (name.partition(": ") for name in names)
    return Environment({name: _TYPES.get(type, DYN) for name, _, type in pairs}, authorizer_functions())


def typed_name(name: str, type: str) -> str:
    """The name of a variable of a type, where expressions may depend on that type."""
    return f"{name}: {type}" if type in _TYPES else name


def bind(values: Mapping[str, Any], names: Names | None = None, *, authorize: Authorize | None = None) -> Bindings:
    """Values for expressions over `names`, which may be more than there are values; `authorize` answers the variable
    `authorizer`."""
    return _environment(tuple(values) if names is None else names).bind(values, authorize)


@lru_cache(maxsize=4096)
def expression(text: str, names: Names) -> Program:
    """The expression over variables of these names. Raises InvalidExpression."""
    return _environment(names).compile(text)


def typed_expression(text: str, names: Names, *types: str) -> Program:
    """An expression of one of the types. Raises InvalidExpression."""
    program = expression(text, names)
    if program.type not in types:
        wanted = types[0] if len(types) == 1 else f"one of [{' '.join(types)}]"
        raise InvalidExpression(f"must evaluate to {wanted} but got {program.type}")
    return program


_CONSTRUCTED = ("map", "dyn", "any")


def mutation_expression(text: str, names: Names, *, json_patch: bool) -> Program:
    """An expression that constructs an apply configuration, or the operations of a JSON patch. Raises InvalidExpression."""
    program = expression(as_maps(text), names)
    kind = program.type.partition("<")[0]
    if json_patch and kind not in ("list", "dyn", "any"):
        raise InvalidExpression(f"must evaluate to list(JSONPatch) but got {program.type}")
    if not json_patch and kind not in _CONSTRUCTED:
        raise InvalidExpression(f"must evaluate to Object but got {program.type}")
    return program
