"""Which tolerations and node affinity expressions a policy's patterns cover."""

from __future__ import annotations

from wharfinger.api.selectors import SelectorExpression
from wharfinger.api.taints import EFFECTS
from wharfinger.api.views.pods import Toleration
from wharfinger.systems.scheduling_policy.kinds.views import ExpressionPattern, SpreadPattern, TolerationPattern


def covers_toleration(pattern: TolerationPattern, toleration: Toleration) -> bool:
    """A toleration tolerates every value of a field that it leaves open (key, value, effect), so the pattern must too."""
    operator = toleration.operator or "Equal"
    if pattern.keys and toleration.key not in pattern.keys:
        return False
    if pattern.operators and operator not in pattern.operators:
        return False
    if pattern.values and (operator == "Exists" or toleration.value not in pattern.values):
        return False
    if not pattern.effects:
        return True
    return toleration.effect in pattern.effects if toleration.effect else set(pattern.effects) >= set(EFFECTS)


def covers_spread(pattern: SpreadPattern, topology_key: str, when_unsatisfiable: str) -> bool:
    return (not pattern.topology_keys or topology_key in pattern.topology_keys) and (
        not pattern.when_unsatisfiable or when_unsatisfiable in pattern.when_unsatisfiable
    )


def covers_expression(pattern: ExpressionPattern, expression: SelectorExpression) -> bool:
    """`Exists` and `DoesNotExist` name no values, so they do not meet a pattern that lists some."""
    return (
        (not pattern.keys or expression.key in pattern.keys)
        and (not pattern.operators or expression.operator in pattern.operators)
        and (not pattern.values or (bool(expression.values) and set(expression.values) <= set(pattern.values)))
    )
