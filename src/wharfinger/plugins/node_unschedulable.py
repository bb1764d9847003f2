"""NodeUnschedulable: refuses cordoned nodes unless the pod tolerates the unschedulable taint."""

from __future__ import annotations

from typing import Any

import numpy as np

from wharfinger.api.taints import NO_SCHEDULE, UNSCHEDULABLE, any_tolerates
from wharfinger.api.views import Pod
from wharfinger.api.views.nodes import Taint
from wharfinger.framework.columns import Ints, Rows
from wharfinger.framework.events import NODE, POD, Action, WakeUp
from wharfinger.framework.plugin import Plugin, Prepared
from wharfinger.framework.shapes import Shape
from wharfinger.framework.status import Status, unresolvable
from wharfinger.framework.tables import Tables

REASON = unresolvable("node(s) were unschedulable")
TAINT = Taint(key=UNSCHEDULABLE, effect=NO_SCHEDULE)


class NodeUnschedulable(Plugin):
    name = "NodeUnschedulable"
    points = frozenset({"filter"})
    position = 30

    def prepare(self, shape: Shape) -> Prepared | Status | None:
        if any_tolerates(shape.pod.spec.tolerations, TAINT):
            return None
        return _Cordoned(self.tables)

    def wake_ups(self) -> tuple[WakeUp, ...]:
        return (
            WakeUp(NODE, Action.ADD | Action.UPDATE_NODE_TAINT, _node_opened),
            WakeUp(POD, Action.UPDATE_POD_TOLERATION, _pod_tolerates),
        )


class _Cordoned(Prepared):
    filters = True

    def __init__(self, tables: Tables) -> None:
        super().__init__()
        self._tables = tables
        self._code = self.refuse(REASON)

    def filter(self, rows: Rows) -> Ints:
        return np.where(self._tables.unschedulable[rows], self._code, 0)


def _node_opened(pod: Pod, old: Any, new: Any) -> bool:
    return not new.spec.unschedulable and (old is None or old.spec.unschedulable)


def _pod_tolerates(pod: Pod, old: Any, new: Any) -> bool:
    return pod.metadata.uid == new.metadata.uid and any_tolerates(new.spec.tolerations, TAINT)


plugins = (NodeUnschedulable,)
