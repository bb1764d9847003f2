"""Cluster events and queueing hints: which changes can make a refused pod schedulable.

A plugin lists the events that can change its refusal, each with an optional hint that looks at the objects. Before it
wakes a pod, the scheduling queue asks the hints of the plugins that refused it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Flag, auto
from functools import reduce
from operator import or_
from typing import Any

import msgspec

from wharfinger.api.keys import ObjectKey
from wharfinger.api.resources import request_the_same, requests
from wharfinger.api.views import Node, Pod

POD = "Pod"
NODE = "Node"
FOREIGN_NODE = "ForeignNode"
"""A node that is not ours: nothing is scheduled there, but pods on it may count."""


class Action(Flag):
    """What happened to an object. Updates of pods and nodes are distinguished by what changed."""

    ADD = auto()
    DELETE = auto()
    UPDATE_NODE_ALLOCATABLE = auto()
    UPDATE_NODE_LABEL = auto()
    UPDATE_NODE_TAINT = auto()
    UPDATE_NODE_CONDITION = auto()
    UPDATE_NODE_ANNOTATION = auto()
    UPDATE_NODE_DECLARED_FEATURE = auto()
    UPDATE_POD_LABEL = auto()
    UPDATE_POD_SCALE_DOWN = auto()
    UPDATE_POD_SCALE_UP = auto()
    UPDATE_POD_TERMINATING = auto()  # its deletion began
    UPDATE_POD_TOLERATION = auto()
    UPDATE_POD_GATES_ELIMINATED = auto()
    UPDATE_OTHER = auto()
    UPDATE = (
        UPDATE_NODE_ALLOCATABLE
        | UPDATE_NODE_LABEL
        | UPDATE_NODE_TAINT
        | UPDATE_NODE_CONDITION
        | UPDATE_NODE_ANNOTATION
        | UPDATE_NODE_DECLARED_FEATURE
        | UPDATE_POD_LABEL
        | UPDATE_POD_SCALE_DOWN
        | UPDATE_POD_SCALE_UP
        | UPDATE_POD_TERMINATING
        | UPDATE_POD_TOLERATION
        | UPDATE_POD_GATES_ELIMINATED
        | UPDATE_OTHER
    )
    ALL = ADD | DELETE | UPDATE


Hint = Callable[[Pod, Any, Any], bool]
"""(the waiting pod, the object before, the object after) -> whether the pod may have become schedulable."""


class ClusterEvent(msgspec.Struct, frozen=True):
    """A change of an object; `old` is None for additions, `new` for deletions."""

    kind: str
    action: Action
    old: Any = None
    new: Any = None


class WakeUp(msgspec.Struct, frozen=True):
    """An event that can change a plugin's refusal; without a hint the pod is always retried. `pods` narrows down the pods
    for which the hint is asked."""

    kind: str
    action: Action
    hint: Hint | None = None
    pods: Callable[[Any, Any], Collection[ObjectKey] | None] | None = None

    def wakes(self, pod: Pod, event: ClusterEvent) -> bool:
        if event.kind != self.kind or not (event.action & self.action):
            return False
        return self.hint is None or self.hint(pod, event.old, event.new)


def pod_changes(old: Pod, new: Pod) -> Action:
    """What an update of a pod changed that matters for scheduling."""
    changes = []  # a list, since combining flags is slow and most updates change none of these
    if old.metadata.labels != new.metadata.labels:
        changes.append(Action.UPDATE_POD_LABEL)
    if not request_the_same(old, new) and (before := requests(old)) != (after := requests(new)):
        if any(amount > after.get(name, 0) or name not in after for name, amount in before.items()):
            changes.append(Action.UPDATE_POD_SCALE_DOWN)
        if any(amount > before.get(name, 0) for name, amount in after.items()):
            changes.append(Action.UPDATE_POD_SCALE_UP)
    if new.terminating and not old.terminating:
        changes.append(Action.UPDATE_POD_TERMINATING)
    if old.spec.scheduling_gates and not new.spec.scheduling_gates:
        changes.append(Action.UPDATE_POD_GATES_ELIMINATED)
    # Tolerations can only be added, so comparing their number is enough.
    if len(old.spec.tolerations) != len(new.spec.tolerations):
        changes.append(Action.UPDATE_POD_TOLERATION)
    return reduce(or_, changes) if changes else Action.UPDATE_OTHER


def node_changes(old: Node, new: Node) -> Action:
    """What an update of a node changed that matters for scheduling."""
    changes = Action(0)
    if old.status.allocatable != new.status.allocatable or old.status.compute_resources != new.status.compute_resources:
        changes |= Action.UPDATE_NODE_ALLOCATABLE
    if old.metadata.labels != new.metadata.labels:
        changes |= Action.UPDATE_NODE_LABEL
    # The node controller adds a taint to unschedulable nodes.
    if old.spec.taints != new.spec.taints or old.spec.unschedulable != new.spec.unschedulable:
        changes |= Action.UPDATE_NODE_TAINT
    if {c.type: c.status for c in old.status.conditions} != {c.type: c.status for c in new.status.conditions}:
        changes |= Action.UPDATE_NODE_CONDITION
    if old.metadata.annotations != new.metadata.annotations:
        changes |= Action.UPDATE_NODE_ANNOTATION
    if old.status.declared_features != new.status.declared_features:
        changes |= Action.UPDATE_NODE_DECLARED_FEATURE
    return changes or Action.UPDATE_OTHER
