"""Environments: the variables and functions that expressions may use. Expressions are compiled in one and evaluated with values
bound in the same one.

Errors have the words of cel-go, which Kubernetes uses.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_encoders, ext_math, ext_optional, ext_strings

from wharfinger.cel.cost import PER_EXPRESSION, CostModel, Extent, extent
from wharfinger.cel.library import kubernetes_functions

PER_OBJECT = 10_000_000  # units, as in Kubernetes
_MAX_EXACT = 20_000  # weight of documents for which closer estimates are made
SECONDS_PER_OBJECT = 0.1  # of CPU time
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

    def __init__(
        self,
        variables: Mapping[str, cel.Type],
        functions: Sequence[cel.FunctionDecl] = (),
        *,
        types: Any = None,
        library: Sequence[cel.FunctionDecl] | None = None,
        extensions: Mapping[str, int | None] | None = None,
    ) -> None:
        """`types` is the descriptor pool of the message types that variables have; `library` replaces the functions of
        Kubernetes, for an environment that only checks expressions (see `checking`). `extensions` are those of the CEL
        library by name, with their versions, instead of the usual ones."""
        self.variables = tuple(variables)
        library = kubernetes_functions() if library is None else library
        ours = cel.CelExtension("wharfinger", [*library, *functions])
        if extensions is None:
            usual = [ext_strings.ExtStrings(), ext_optional.ExtOptional(), ext_bindings.ExtBindings()]
            more = [*usual, ext_encoders.ExtEncoders(), ext_math.ExtMath(), ours]
            self._env = cel.NewEnv(descriptor_pool=types, variables=dict(variables), extensions=more)
        else:
            config = cel.NewEnvConfigFromYaml(_extensions_text(extensions))
            self._env = cel.NewEnv(descriptor_pool=types, config=config, variables=dict(variables), extensions=[ours])

    def compile(self, text: str) -> Program:
        """Raises InvalidExpression."""
        try:
            return Program(text, self._env.compile(text))
        except RuntimeError as error:
            message = str(error).removeprefix("INVALID_ARGUMENT: ").removesuffix(" [INVALID_ARGUMENT]")
            raise InvalidExpression(f"compilation failed: {message}") from None

    def adopt(self, text: str, checked: bytes) -> Program:
        """A program for an expression that was checked in another environment, with functions of the same names."""
        return Program(text, self._env.deserialize(checked))

    def bind(self, values: Mapping[str, Any], context: Any = None, *, size: Extent | None = None) -> Bindings:
        """Converts the values of variables once for all expressions. A variable without a value is an error only in
        expressions that read it. `size` is a bound of the values, where it is known; measuring them takes time."""
        size = extent(list(values.values())) if size is None else size
        return Bindings(self, self._env.Activation(dict(values)), size, context, values)


def _extensions_text(extensions: Mapping[str, int | None]) -> str:
    """The configuration of an environment, as the CEL library reads it."""
    versions = {name: "" if version is None else f"\n  version: {version}" for name, version in extensions.items()}
    return "extensions:\n" + "\n".join(f'- name: "{name}"{version}' for name, version in versions.items())


class Bindings:
    """Values of an environment's variables, and the `context` that functions of the environment get from `current_context()`."""

    __slots__ = ("activation", "context", "environment", "exact_costs", "extent", "values")

    def __init__(
        self, environment: Environment, activation: Any, extent: Extent, context: Any, values: Mapping[str, Any]
    ) -> None:
        self.environment = environment
        self.activation = activation
        self.extent = extent
        self.context = context
        self.values = values
        self.exact_costs: dict[Program, float] = {}  # where they were needed


class Program:
    """One compiled expression."""

    def __init__(self, text: str, expression: Any) -> None:
        self.text = text
        self._expression = expression
        self._model = CostModel(expression.serialize())
        self.result: cel.Type = expression.return_type()
        name = str(self.result)
        self.type = _TYPE_NAMES.get(name, name.lower())

    @property
    def checked(self) -> bytes:
        """The expression with its types, for `Environment.adopt`."""
        return bytes(self._expression.serialize())

    @property
    def functions(self) -> frozenset[str]:
        """The names of all functions that the expression calls."""
        return self._model.functions

    def cost(self, bindings: Bindings, limit: float = PER_EXPRESSION) -> float:
        """The estimated cost; if it is above the limit, a closer estimate."""
        cost = self._model.cost(bindings.extent)
        if cost <= limit or bindings.extent.weight > _MAX_EXACT:
            return cost
        known = bindings.exact_costs.get(self)
        if known is None:
            known = bindings.exact_costs[self] = min(cost, self._model.exact_cost(bindings.values))
        return known

    def evaluate(self, bindings: Bindings) -> Any:
        """The value of the expression. Raises EvaluationError."""
        cost = self.cost(bindings)
        if cost > PER_EXPRESSION:
            raise CostExceeded
        budget = _evaluation.budget
        if budget is not None:
            budget.charge(cost)
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


class EvaluationBudget:
    """What all expressions that are evaluated in a block may cost together: those for one object, or for one request.

    Besides the estimated cost, which is that of Kubernetes for one object, the CPU time of the block is limited. Nothing may
    be awaited inside. Blocks do not nest: the outermost one counts.
    """

    def __init__(self, cost: float = PER_OBJECT, seconds: float = SECONDS_PER_OBJECT) -> None:
        self._cost = cost
        self._seconds = seconds
        self._started = 0.0
        self._outer: EvaluationBudget | None = None

    def __enter__(self) -> EvaluationBudget:
        self._outer = _evaluation.budget
        if self._outer is None:
            self._started = time.thread_time()
            _evaluation.budget = self
        return self

    def __exit__(self, *_: object) -> None:
        _evaluation.budget = self._outer

    def charge(self, cost: float) -> None:
        """Called before an expression is evaluated. Raises CostExceeded if nothing is left."""
        self._cost -= cost
        if self._cost < 0 or time.thread_time() - self._started > self._seconds:
            raise CostExceeded


class _Evaluation:
    """The evaluation in progress: a CEL function gets its arguments only."""

    context: Any = None
    budget: EvaluationBudget | None = None


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
