"""What `wharf explain` tells about a governed pod: the units of its policy, and changes to the policy that may let the
pod in, such as a higher limit or another strategy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

from wharfinger.api.registry import Document
from wharfinger.framework.explaining import ExplainedTable, Suggestion
from wharfinger.framework.shapes import Shape
from wharfinger.systems.resource_policy.kinds.names import RESOURCE_POLICIES
from wharfinger.systems.resource_policy.kinds.resource_policy import PREFER
from wharfinger.systems.resource_policy.plugin.policy import ScheduledPolicy
from wharfinger.systems.resource_policy.rules.policy import Signature, Waiting
from wharfinger.systems.resource_policy.rules.wording import group_text


def units_table(policy: ScheduledPolicy, signature: Signature, shape: Shape) -> ExplainedTable:
    """The units in the order in which they are filled, with the pods of the group in each."""
    rules = policy.rules
    policy.catch_up()
    kinds = Counter(policy.nodes.kinds[policy.nodes.kinds >= 0].tolist())
    nodes = Counter[int]()
    for kind, number in kinds.items():
        nodes.update(dict.fromkeys(policy.nodes.units[kind], number))
    group = policy.counting.acquire(signature)
    try:
        size, rows = rules.size(shape.requests), []
        for index in rules.preference:
            unit = rules.units[index]
            room = (
                "yes" if group.has_room(index, size) else f"no: {', '.join(filter(None, group.shortages(index, size)))}"
            )
            rows.append(
                (unit.name, unit.priority, group.counts[index], unit.maximum or "unlimited", nodes[index], room)
            )
    finally:
        policy.counting.release(signature)
    name, of_group = f"{rules.namespace}/{rules.name}", group_text(rules.keys, signature)
    title = f"Units of ResourcePolicy {name}" + (f" for group {of_group}" if of_group else "")
    return ExplainedTable(title, ("unit", "priority", "pods", "max", "nodes", "room"), tuple(rows))


def suggestions(policy: ScheduledPolicy, signature: Signature, shape: Shape, spec: Document) -> Iterable[Suggestion]:
    """`spec` is that of the policy, which governs pods of the shape."""
    rules = policy.rules
    policy.catch_up()
    group = policy.counting.acquire(signature)
    try:
        size = rules.size(shape.requests)
        raised = {index: group.raised(index, size) for index in rules.preference if not group.has_room(index, size)}
    finally:
        policy.counting.release(signature)
    for index, fields in raised.items():
        changed = deepcopy(spec)
        unit = changed["units"][index]
        texts = []
        for name, value in fields.items():
            unit[name] = {**unit.get(name, {}), **value} if isinstance(value, dict) else value
            texts.append(f"{name} to {_shown(value)}")
        if texts:
            change = f'raise {" and ".join(texts)} in unit "{rules.units[index].name}" of ResourcePolicy'
            yield _suggestion(policy, f"{change} {rules.namespace}/{rules.name}", changed)
    if rules.waiting is not Waiting.NO_NODE:
        changed = {**spec, "whenTryNextUnits": {"policy": Waiting.NO_NODE.value}}
        change = f"set whenTryNextUnits to {Waiting.NO_NODE.value} in ResourcePolicy {rules.namespace}/{rules.name}"
        yield _suggestion(policy, change, changed)
    if not rules.prefer:
        change = f"set strategy to {PREFER} in ResourcePolicy {rules.namespace}/{rules.name}"
        yield _suggestion(policy, change, {**spec, "strategy": PREFER})


def _suggestion(policy: ScheduledPolicy, change: str, spec: Document) -> Suggestion:
    namespace, name = policy.rules.namespace, policy.rules.name
    document = {
        "apiVersion": RESOURCE_POLICIES.api_version,
        "kind": RESOURCE_POLICIES.kind,
        "metadata": {"namespace": namespace, "name": name},
        "spec": spec,
    }
    return Suggestion(RESOURCE_POLICIES.kind, namespace, name, change, document)


def _shown(value: Mapping[str, Any] | int) -> str:
    if isinstance(value, int):
        return str(value)
    return ", ".join(f"{name} {quantity}" for name, quantity in sorted(value.items()))
