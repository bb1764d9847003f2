"""CEL with the function libraries of Kubernetes and a limit on cost. Pure.

Whoever evaluates expressions builds an `Environment` of its own variables and functions; nothing here knows any of them.
"""

from wharfinger.cel.environment import (
    Bindings,
    CostExceeded,
    Environment,
    EvaluationBudget,
    EvaluationError,
    InvalidExpression,
    MissingVariable,
    Program,
    current_context,
)

__all__ = [
    "Bindings",
    "CostExceeded",
    "Environment",
    "EvaluationBudget",
    "EvaluationError",
    "InvalidExpression",
    "MissingVariable",
    "Program",
    "current_context",
]
