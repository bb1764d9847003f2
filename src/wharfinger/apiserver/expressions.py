"""CEL expressions of users, over named variables: compiled once, bounded in cost, with errors in cel-go's words.

Rules of custom resources, match conditions of webhooks and admission policies are all evaluated here. Variables are
dynamic: whatever the types of fields are is found out when an expression meets them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from cel_expr_python import cel

from wharfinger.apiserver import authorizer
from wharfinger.cel.cost import PER_EXPRESSION, CostModel, Extent, extent
from wharfinger.cel.environment import extensions

BOOL, STRING, NULL = "bool", "string", "null_type"

_NAMES = {"NULL": NULL, "NULL_TYPE": NULL}  # where cel-go's name of a type is not ours in lower case


class BadExpression(ValueError):
    """The expression does not compile, or cannot be of the type wanted."""


class Failed(Exception):
    """The expression has no value here; the text says why."""


class Missing(Failed):
    """The expression read a variable that has no value."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no such attribute: {name}")
        self.name = name


class OutOfBudget(Failed):
    """The expression would take too long on this value."""

    def __init__(self) -> None:
        super().__init__("validation failed due to running out of cost budget, no further validation rules will be run")


class Input:
    """Values for variables, converted once for all expressions over the same names.

    A name without a value is an error in expressions that get as far as reading it.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        names: tuple[str, ...] | None = None,
        *,
        allowed: authorizer.Allowed | None = None,
    ) -> None:
        self.allowed = allowed  # who answers the variable `authorizer`
        self.names = tuple(values) if names is None else names
        self.extent: Extent = extent(list(values.values()))
        self.activation = _environment(self.names).Activation(dict(values))


class Expression:
    """One compiled expression."""

    def __init__(self, text: str, names: tuple[str, ...]) -> None:
        self.text = text
        try:
            self._program = _environment(names).compile(text)
        except RuntimeError as error:
            raise BadExpression(f"compilation failed: {_compiler_words(error)}") from None
        self._model = CostModel(self._program.serialize())
        name = str(self._program.return_type())
        self.type = _NAMES.get(name, name.lower())

    def value(self, given: Input) -> Any:
        """Raises `Failed` where evaluation ends in an error."""
        if self._model.cost(given.extent) > PER_EXPRESSION:
            raise OutOfBudget
        authorizer.CURRENT.allowed = given.allowed
        try:
            result = self._program.eval(given.activation)
        except RuntimeError as error:
            raise _failed(str(error)) from None
        finally:
            authorizer.CURRENT.allowed = None
        if result.type() == cel.Type.ERROR:  # errors are values here
            raise _failed(str(result.value()))
        return result.value()


@lru_cache(maxsize=512)
def _environment(names: tuple[str, ...]) -> cel.Env:
    variables = dict.fromkeys(names, cel.Type.DYN)
    return cel.NewEnv(variables=variables, extensions=[*extensions(), authorizer.functions()])


@lru_cache(maxsize=4096)
def expression(text: str, names: tuple[str, ...]) -> Expression:
    """The expression over variables of these names. Raises `BadExpression`."""
    return Expression(text, names)


def expression_of(text: str, names: tuple[str, ...], *types: str) -> Expression:
    """An expression that is sure to be of one of the types."""
    made = expression(text, names)
    if made.type not in types:
        wanted = types[0] if len(types) == 1 else f"one of [{' '.join(types)}]"
        raise BadExpression(f"must evaluate to {wanted} but got {made.type}")
    return made


def _compiler_words(error: RuntimeError) -> str:
    return str(error).removeprefix("INVALID_ARGUMENT: ").removesuffix(" [INVALID_ARGUMENT]")


_MISSING = re.compile(r'No value with name "([^"]*)" found in Activation')


def _failed(text: str) -> Failed:
    if missing := _MISSING.search(text):
        return Missing(missing[1])
    text = re.sub(r" \[[A-Z_]+\]$", "", re.sub(r"^[A-Z_]+: ", "", text))
    text = re.sub(r'^Key not found in map : "?([^"]*)"?$', r"no such key: \1", text)
    return Failed(re.sub(r"^No matching overloads found : (.*)$", r"no such overload: \1", text))
