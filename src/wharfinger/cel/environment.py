"""Environments: the variables and functions that expressions may use. Expressions are compiled in one and evaluated with values
bound in the same one.

Errors have the words of cel-go, which Kubernetes uses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_encoders, ext_math, ext_optional, ext_strings

from wharfinger.cel.cost import PER_EXPRESSION, CostModel, Extent, extent
from wharfinger.cel.library import kubernetes_functions

_TYPE_NAMES = {"NULL": "null_type"}  # where cel-go's name is not the lower-case name


class InvalidExpression(ValueError):
    """The expression does not compile, or has the wrong type."""


class EvaluationError(Exception):
    """The evaluation ended in an error."""


class MissingVariable(EvaluationError):
    """The expression read a variable that has no value."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no such attribute: {name}")
        self.name = name


class CostExceeded(EvaluationError):
    """The estimated cost on these values is above the limit, so the expression was not evaluated."""

    def __init__(self) -> None:
        super().__init__("validation failed due to running out of cost budget, no further validation rules will be run")


class Environment:
    """Variables by type, the libraries of Kubernetes, and `functions` of whoever owns the environment."""

    def __init__(self, variables: Mapping[str, cel.Type], functions: Sequence[cel.FunctionDecl] = ()) -> None:
        self.variables = tuple(variables)
        self._env = cel.NewEnv(
            variables=dict(variables),
            extensions=[
                ext_strings.ExtStrings(),
                ext_optional.ExtOptional(),
                ext_bindings.ExtBindings(),
                ext_encoders.ExtEncoders(),
                ext_math.ExtMath(),
                cel.CelExtension("wharfinger", [*kubernetes_functions(), *functions]),
            ],
        )

    def compile(self, text: str) -> Program:
        """Raises InvalidExpression."""
        try:
            return Program(text, self._env.compile(text))
        except RuntimeError as error:
            message = str(error).removeprefix("INVALID_ARGUMENT: ").removesuffix(" [INVALID_ARGUMENT]")
            raise InvalidExpression(f"compilation failed: {message}") from None

    def bind(self, values: Mapping[str, Any], context: Any = None) -> Bindings:
        """Converts the values of variables once for all expressions. A variable without a value is an error only in
        expressions that read it."""
        return Bindings(self, self._env.Activation(dict(values)), extent(list(values.values())), context)


class Bindings:
    """Values of an environment's variables, and the `context` that functions of the environment get from `current_context()`."""

    __slots__ = ("activation", "context", "environment", "extent")

    def __init__(self, environment: Environment, activation: Any, extent: Extent, context: Any) -> None:
        self.environment = environment
        self.activation = activation
        self.extent = extent
        self.context = context


class Program:
    """One compiled expression."""

    def __init__(self, text: str, expression: Any) -> None:
        self.text = text
        self._expression = expression
        self._model = CostModel(expression.serialize())
        name = str(expression.return_type())
        self.type = _TYPE_NAMES.get(name, name.lower())

    @property
    def functions(self) -> frozenset[str]:
        """The names of all functions that the expression calls."""
        return self._model.functions

    def cost(self, bindings: Bindings) -> float:
        return self._model.cost(bindings.extent)

    def evaluate(self, bindings: Bindings) -> Any:
        """The value of the expression. Raises EvaluationError."""
        if self._model.cost(bindings.extent) > PER_EXPRESSION:
            raise CostExceeded
        _evaluation.context = bindings.context
        try:
            result = self._expression.eval(bindings.activation)
        except RuntimeError as error:
            raise _evaluation_error(str(error)) from None
        finally:
            _evaluation.context = None
        if result.type() == cel.Type.ERROR:  # errors are values in CEL
            raise _evaluation_error(str(result.value()))
        return _plain(result.value())


def _plain(value: Any) -> Any:
    """A value with the members of maps and lists, which the library converts on access."""
    if isinstance(value, dict):
        return {key: _plain(_member(inner)) for key, inner in value.items()}
    return [_plain(_member(inner)) for inner in value] if isinstance(value, list) else value


def _member(value: Any) -> Any:
    return value.value() if hasattr(value, "value") and hasattr(value, "type") else value


class _Evaluation:
    """The evaluation in progress: a CEL function gets its arguments only."""

    context: Any = None


_evaluation = _Evaluation()


def current_context() -> Any:
    """The context of the bindings with which an expression is being evaluated; for use in functions."""
    return _evaluation.context


_NO_VALUE = re.compile(r'No value with name "([^"]*)" found in Activation')


def _evaluation_error(text: str) -> EvaluationError:
    if missing := _NO_VALUE.search(text):
        return MissingVariable(missing[1])
    text = re.sub(r" \[[A-Z_]+\]$", "", re.sub(r"^[A-Z_]+: ", "", text))
    text = re.sub(r'^Key not found in map : "?([^"]*)"?$', r"no such key: \1", text)
    return EvaluationError(re.sub(r"^No matching overloads found : (.*)$", r"no such overload: \1", text))
