"""resourcepolicy: fills groups of nodes in the order given by a ResourcePolicy, each up to its limit.

A pod counts towards its unit from the moment it is assumed until it terminates or is deleted. The book follows the
tables for this, so the plugin needs no Reserve and Unreserve of its own. All profiles share one book.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

from wharfinger.api.views import Pod
from wharfinger.framework.events import FOREIGN_NODE, NODE, POD, Action, WakeUp
from wharfinger.framework.explaining import ExplainedTable, Suggestion
from wharfinger.framework.plugin import Plugin, Prepared
from wharfinger.framework.shapes import Shape
from wharfinger.framework.status import Status, unresolvable
from wharfinger.framework.tables import Tables
from wharfinger.systems.resource_policy.plugin.answers import Governed
from wharfinger.systems.resource_policy.plugin.book import PolicyKey, book_of
from wharfinger.systems.resource_policy.plugin.explaining import suggestions, units_table
from wharfinger.systems.resource_policy.rules.policy import NEXT_UNITS

KIND = "ResourcePolicy"


def several(names: list[str]) -> Status:
    quoted = ", ".join(f'"{name}"' for name in sorted(names))
    return unresolvable(f"pod is matched by more than one resource policy: {quoted}")


class ResourcePolicyPlugin(Plugin):
    name = "resourcepolicy"
    aliases = ("ResourcePolicy",)
    points = frozenset({"preFilter", "filter", "preScore", "score"})
    position = 300
    weight = 100  # outweighs all stock scores together
    ours = True
    kinds = (KIND,)

    def __init__(self, tables: Tables, args: Any) -> None:
        super().__init__(tables, args)
        self._book = book_of(tables)

    def observe(self, kind: str, old: Any, new: Any) -> None:
        self._book.set(old, new)

    def explained(self, pod: Pod, rows: Sequence[int]) -> Iterator[ExplainedTable]:
        shape = self.tables.shapes.of(pod)
        for policy, signature in self._book.governing(shape):
            yield units_table(policy, signature, shape)

    def suggestions(self, pod: Pod, rows: Sequence[int]) -> Iterator[Suggestion]:
        shape = self.tables.shapes.of(pod)
        governing = self._book.governing(shape)
        if len(governing) == 1:
            policy, signature = governing[0]
            yield from suggestions(policy, signature, shape, self._book.spec(policy.rules.namespace, policy.rules.name))
            return
        for policy, _ in governing:
            namespace, name = policy.rules.namespace, policy.rules.name
            yield Suggestion(KIND, namespace, name, f"delete ResourcePolicy {namespace}/{name}")

    # -- scheduling cycle

    def shape_key(self, pod: Pod) -> Hashable:
        next_units, nominated = pod.metadata.annotations.get(NEXT_UNITS), self._book.nominated(pod)
        return PolicyKey(next_units, nominated) if next_units is not None or nominated else None

    def key_is_shared(self, shape: Shape) -> bool:
        # With nominations, it depends on the priority of the pod, and on which pod it is.
        return not self.tables.nominated or shape.namespace not in self.tables.nominations_matter

    def prepare(self, shape: Shape) -> Prepared | Status | None:
        governing = self._book.governing(shape)
        if not governing:
            return None
        if len(governing) > 1:
            return several([policy.rules.name for policy, _ in governing])
        keys = shape.extra if isinstance(shape.extra, tuple) else ()
        key = next((each for each in keys if isinstance(each, PolicyKey)), None)
        return Governed(*governing[0], shape, () if key is None else key.nominated)

    # -- queueing hints

    def wake_ups(self) -> tuple[WakeUp, ...]:
        pods = Action.ADD | Action.DELETE | Action.UPDATE_POD_LABEL | Action.UPDATE_POD_TERMINATING
        pods |= Action.UPDATE_POD_SCALE_DOWN | Action.UPDATE_POD_SCALE_UP
        nodes = Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL
        return (
            WakeUp(KIND, Action.ALL, self._policy_changed),
            WakeUp(POD, pods, self._pod_changed),
            WakeUp(NODE, nodes, self._node_changed),
            WakeUp(FOREIGN_NODE, Action.ALL, self._node_changed),
        )

    def _policy_changed(self, pod: Pod, old: Any, new: Any) -> bool:
        if (new or old)["metadata"].get("namespace", "") != pod.metadata.namespace:
            return False
        return old is None or new is None or old.get("spec") != new.get("spec")

    def _pod_changed(self, pod: Pod, old: Any, new: Any) -> bool:
        """Whether a pod stopped counting for one of this pod's policies, or a new pod may have opened a unit to it."""
        namespace, labels = pod.metadata.namespace, pod.metadata.labels
        if (new or old).metadata.namespace != namespace:
            return False
        for policy in self._book.policies(namespace):
            rules = policy.rules
            if not rules.governs(labels):
                continue
            before = None if old is None else rules.place(old)
            after = None if new is None else rules.place(new)
            # A place that is given up, or that becomes smaller, and where that matters one that is taken.
            if before != after and (before is not None or rules.grows):
                return True
        return False

    def _node_changed(self, pod: Pod, old: Any, new: Any) -> bool:
        """Whether a node joined a unit, or left one together with its pods."""
        before: Mapping[str, str] | None = None if old is None else old.metadata.labels
        after: Mapping[str, str] | None = None if new is None else new.metadata.labels
        for policy in self._book.policies(pod.metadata.namespace):
            rules = policy.rules
            if rules.governs(pod.metadata.labels):
                left = () if before is None else rules.units_of(before)
                entered = () if after is None else rules.units_of(after)
                if left != entered or (before is None and rules.prefer):
                    return True
        return False


plugins = (ResourcePolicyPlugin,)
