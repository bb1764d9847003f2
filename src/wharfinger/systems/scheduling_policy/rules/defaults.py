"""Injects defaults: the JSON patch operations that write them, and what the pod asks for afterwards."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import msgspec

from wharfinger.api.registry import Document
from wharfinger.api.selectors import NodeSelectorTerm, SelectorExpression
from wharfinger.api.views import view
from wharfinger.api.views.pods import Toleration
from wharfinger.systems.scheduling_policy.kinds.views import HARD, SOFT, AffinityDefault
from wharfinger.systems.scheduling_policy.rules.merge import Default, Sourced
from wharfinger.systems.scheduling_policy.rules.wishes import DEFAULT_SCHEDULER, SpreadWish, Wishes

Operation = dict[str, Any]
"""One JSON patch operation."""


class Injection(msgspec.Struct, frozen=True):
    """A default that was written into a pod."""

    path: str
    value: Any
    policy: str


class _Writer(msgspec.Struct):
    spec: Document
    pointer: str
    wishes: Wishes
    operations: list[Operation]
    injections: list[Injection]

    def note(self, path: str, value: Any, policy: str) -> None:
        self.injections.append(Injection(path, value, policy))
        self.wishes.injected[path] = policy

    def set(self, pointer: str, value: Any) -> None:
        self.operations.append({"op": "add", "path": f"{self.pointer}/{pointer}", "value": value})

    def remove(self, name: str) -> None:
        if name in self.spec:
            self.operations.append({"op": "remove", "path": f"{self.pointer}/{name}"})


def inject(
    default: Default, spec: Document, wishes: Wishes, *, pointer: str = "/spec", default_scheduler_is_unset: bool = True
) -> tuple[list[Operation], list[Injection]]:
    """Updates `wishes` in place and leaves the spec alone; the returned operations change it."""
    writer = _Writer(spec, pointer, wishes, [], [])
    _scheduler(writer, default, default_scheduler_is_unset)
    _priority_class(writer, default)
    _selector(writer, default)
    _tolerations(writer, default)
    _affinity(writer, default)
    _runtime_class(writer, default)
    _spread(writer, default)
    return writer.operations, writer.injections


def apply_operations(document: Document, operations: list[Operation]) -> None:
    """Applies the operations of `inject` to the document they were made for."""
    for operation in operations:
        *parents, last = (part.replace("~1", "/").replace("~0", "~") for part in operation["path"][1:].split("/"))
        target: Any = document
        for part in parents:
            target = target[part]
        if operation["op"] == "remove":
            del target[last]
        elif last == "-":
            target.append(deepcopy(operation["value"]))
        else:
            target[last] = deepcopy(operation["value"])


def _scheduler(writer: _Writer, default: Default, default_scheduler_is_unset: bool) -> None:
    wanted, wishes = default.scheduler, writer.wishes
    unset = not wishes.scheduler or (default_scheduler_is_unset and wishes.scheduler == DEFAULT_SCHEDULER)
    if wanted is None or not unset:
        return
    if wishes.scheduler != wanted.value:
        writer.set("schedulerName", wanted.value)
        writer.note(f"{wishes.base}.schedulerName", wanted.value, wanted.policy)
    wishes.scheduler = wanted.value


def _priority_class(writer: _Writer, default: Default) -> None:
    wanted, wishes = default.priority_class, writer.wishes
    if wanted is None or wishes.priority_class:
        return
    if writer.spec.get("priorityClassName") != wanted.value:
        writer.set("priorityClassName", wanted.value)
        # The Priority plugin has set both from another class, and refuses a pod that contradicts its class.
        writer.remove("priority")
        writer.remove("preemptionPolicy")
        writer.note(f"{wishes.base}.priorityClassName", wanted.value, wanted.policy)
    wishes.priority_class = wanted.value


def _selector(writer: _Writer, default: Default) -> None:
    wishes = writer.wishes
    missing = {key: found for key, found in default.selector.items() if key not in wishes.selector}
    if missing and not writer.spec.get("nodeSelector"):
        writer.set("nodeSelector", {key: found.value for key, found in missing.items()})
    else:
        for key, found in missing.items():
            writer.set(f"nodeSelector/{key.replace('~', '~0').replace('/', '~1')}", found.value)
    for key, found in missing.items():
        wishes.selector[key] = found.value
        writer.note(f"{wishes.base}.nodeSelector[{key}]", found.value, found.policy)


def _tolerations(writer: _Writer, default: Default) -> None:
    wishes, wanted = writer.wishes, default.tolerations
    if wanted is None or wishes.tolerations:
        return
    existing = writer.spec.get("tolerations") or []
    # Existing terms were set aside; nothing of them is added twice, also when a webhook is called again.
    have = [view(toleration, Toleration) for toleration in existing]
    missing = [toleration for toleration in wanted.value if view(toleration, Toleration) not in have]
    if missing and not existing:
        writer.set("tolerations", missing)
    for index, toleration in enumerate(missing, len(existing)):
        if existing:
            writer.set("tolerations/-", toleration)
        path = f"{wishes.base}.tolerations[{index}]"
        wishes.tolerations.append((path, view(toleration, Toleration)))
        writer.note(path, toleration, wanted.policy)


def _runtime_class(writer: _Writer, default: Default) -> None:
    wanted, wishes = default.runtime_class, writer.wishes
    if wanted is None or wishes.runtime_class:
        return
    writer.set("runtimeClassName", wanted.value)
    writer.note(f"{wishes.base}.runtimeClassName", wanted.value, wanted.policy)
    wishes.runtime_class = wanted.value


def _spread(writer: _Writer, default: Default) -> None:
    wanted, wishes = default.spread, writer.wishes
    if wanted is None or wishes.spread:
        return
    writer.set("topologySpreadConstraints", list(wanted.value))
    for index, constraint in enumerate(wanted.value):
        path = f"{wishes.base}.topologySpreadConstraints[{index}]"
        wishes.spread.append((path, view(constraint, SpreadWish)))
        writer.note(path, constraint, wanted.policy)


def _affinity(writer: _Writer, default: Default) -> None:
    wishes = writer.wishes
    absent = {("nodeAffinity", HARD): not wishes.hard_terms, ("nodeAffinity", SOFT): not wishes.soft_terms}
    by_slot: dict[tuple[str, str], list[Sourced[AffinityDefault]]] = {}
    for found in default.affinity:
        slot = (found.value.kind, found.value.hardness)
        if absent.get(slot, slot not in wishes.pod_affinity):
            by_slot.setdefault(slot, []).append(found)
    if not by_slot:
        return
    affinity = deepcopy(writer.spec.get("affinity") or {})
    for (kind, hardness), parts in by_slot.items():
        if affinity.get(kind) is None:
            affinity[kind] = {}
        if (kind, hardness) == ("nodeAffinity", HARD):
            _hard_terms(writer, affinity[kind], parts)
        elif kind == "nodeAffinity":
            _soft_terms(writer, affinity[kind], parts)
        else:
            path = f"{wishes.base}.affinity.{kind}.{hardness}"
            affinity[kind][hardness] = deepcopy(parts[0].value.value)
            wishes.pod_affinity[kind, hardness] = path
            writer.note(path, parts[0].value.value, parts[0].policy)
    writer.set("affinity", affinity)


def _hard_terms(writer: _Writer, node: Document, parts: list[Sourced[AffinityDefault]]) -> None:
    """One term with all default expressions. Terms that were set aside (the node name of a DaemonSet pod) get the
    expressions as well, since terms are alternatives."""
    wishes, expressions = writer.wishes, [part.value.value for part in parts]
    terms = (node.get(HARD) or {}).get("nodeSelectorTerms") or [{}]
    node[HARD] = {
        "nodeSelectorTerms": [
            {**term, "matchExpressions": [*(term.get("matchExpressions") or []), *deepcopy(expressions)]}
            for term in terms
        ]
    }
    term = NodeSelectorTerm(tuple(view(expression, SelectorExpression) for expression in expressions))
    path = f"{wishes.hard_path}.nodeSelectorTerms[0]"
    wishes.hard_terms.append((path, term))
    for index, part in enumerate(parts):
        writer.note(f"{path}.matchExpressions[{index}]", part.value.value, part.policy)
    wishes.injected[path] = parts[0].policy


def _soft_terms(writer: _Writer, node: Document, parts: list[Sourced[AffinityDefault]]) -> None:
    wishes = writer.wishes
    node[SOFT] = [deepcopy(part.value.value) for part in parts]
    for index, part in enumerate(parts):
        path = f"{wishes.soft_path}[{index}].preference"
        preference = view(part.value.value["preference"], NodeSelectorTerm)
        wishes.soft_terms.append((path, preference))
        writer.note(path, part.value.value, part.policy)
