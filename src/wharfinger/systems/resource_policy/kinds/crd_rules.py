"""Rules in CEL for the CustomResourceDefinition, so that a real API server refuses what validation refuses, without a webhook.

Kubernetes limits the cost of rules and estimates it from the sizes that a schema allows, so the schema gets bounds, too.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from wharfinger.api.schema.tree import RULES

JsonSchema = dict[str, Any]

_LABELS = 32  # per selector, and keys of a group
_VALUES = 64  # per expression
_KEY = 317  # characters of a prefix, a slash and a name
_NAME = r"([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]"
_PREFIX = r"([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
_KEY_PATTERN = f"^{_PREFIX}{_NAME}$"
_VALUE_PATTERN = f"^({_NAME})?$"
_QUALIFIED = f"matches('{_KEY_PATTERN}')"

_SELECTOR = (
    (
        f"!has(self.matchLabels) || self.matchLabels.all(k, k.{_QUALIFIED})",
        "matchLabels: keys must be valid label keys",
    ),
    (
        "!has(self.matchExpressions) || self.matchExpressions.all(e, has(e.key) && has(e.operator) && "
        "(e.operator in ['In', 'NotIn'] ? has(e.values) && size(e.values) > 0 : "
        "e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || size(e.values) == 0)))",
        "matchExpressions: needs a key and an operator; In and NotIn need values, Exists and DoesNotExist take none",
    ),
)
_UNIT = (
    (
        "!has(self.name) || self.name == '' || self.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
        "name: must be a DNS label",
    ),
)
_AMOUNTS = (
    (f"self.all(k, k.{_QUALIFIED})", "must have valid resource names"),
    (
        "self.all(k, type(self[k]) == int ? int(self[k]) >= 0 : "
        "isQuantity(string(self[k])) && !quantity(string(self[k])).isLessThan(quantity('0')))",
        "must be greater than or equal to 0",
    ),
)
_WAITING = (
    (
        "(has(self.policy) && self.policy == 'TimeoutOrExceedMax') == has(self.timeout)",
        "timeout: must be set when `policy` is TimeoutOrExceedMax, and only then",
    ),
    (
        "!has(self.timeout) || duration(self.timeout) > duration('0s')",
        "timeout: must be a duration greater than 0",
    ),
)
_SPEC = (
    (
        "self.units.all(u, !has(u.name) || u.name == '' || self.units.exists_one(v, has(v.name) && v.name == u.name))",
        "units: names must be unique",
    ),
    (
        "!has(self.matchLabelKeys) || !has(self.podSelector) || self.matchLabelKeys.all(k, "
        "!(has(self.podSelector.matchLabels) && k in self.podSelector.matchLabels) && "
        "!(has(self.podSelector.matchExpressions) && "
        "self.podSelector.matchExpressions.exists(e, has(e.key) && e.key == k)))",
        "matchLabelKeys: exists in both matchLabelKeys and podSelector",
    ),
)


def with_rules(schema: JsonSchema) -> JsonSchema:
    """The schema of a ResourcePolicy with its rules."""
    schema = deepcopy(schema)
    spec = schema["properties"]["spec"]
    fields = spec["properties"]
    unit = fields["units"]["items"]
    for selector in (fields["podSelector"], unit["properties"]["nodeSelector"]):
        _bound_selector(selector)
        _add(selector, _SELECTOR)
    fields["matchLabelKeys"]["maxItems"] = _LABELS
    fields["matchLabelKeys"]["items"] |= {"maxLength": _KEY, "pattern": _KEY_PATTERN}
    fields["whenTryNextUnits"]["properties"]["timeout"]["maxLength"] = 64
    amounts = unit["properties"]["maxResources"]
    amounts["maxProperties"] = _LABELS
    amounts["additionalProperties"]["maxLength"] = 64
    _add(amounts, _AMOUNTS)
    _add(unit, _UNIT)
    _add(fields["whenTryNextUnits"], _WAITING)
    _add(spec, _SPEC)
    return schema


def _bound_selector(selector: JsonSchema) -> None:
    labels, expressions = selector["properties"]["matchLabels"], selector["properties"]["matchExpressions"]
    labels["maxProperties"] = expressions["maxItems"] = _LABELS
    value = {"maxLength": 63, "pattern": _VALUE_PATTERN}
    labels["additionalProperties"] |= value
    of_expression = expressions["items"]["properties"]
    of_expression["key"] |= {"maxLength": _KEY, "pattern": _KEY_PATTERN}
    of_expression["operator"]["maxLength"] = 16
    of_expression["values"]["maxItems"] = _VALUES
    of_expression["values"]["items"] |= value


def _add(schema: JsonSchema, rules: tuple[tuple[str, str], ...]) -> None:
    schema[RULES] = [{"rule": rule, "message": message} for rule, message in rules]
