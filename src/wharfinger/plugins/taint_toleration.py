"""TaintToleration: refuses nodes with untolerated taints, and prefers nodes with fewer untolerated PreferNoSchedule taints."""

from __future__ import annotations

from typing import Any

import numpy as np

from wharfinger.api.taints import (
    PREFER_NO_SCHEDULE,
    any_tolerates,
    has_untolerated_taint,
    taint_text,
    untolerated_taints,
)
from wharfinger.api.views import Pod
from wharfinger.framework.columns import Ints, Rows
from wharfinger.framework.events import NODE, POD, Action, WakeUp
from wharfinger.framework.plugin import Plugin, Prepared, normalize_by_max
from wharfinger.framework.shapes import Shape
from wharfinger.framework.status import Status, unresolvable
from wharfinger.framework.tables import Tables

REASON = unresolvable("node(s) had untolerated taint(s)")


class TaintToleration(Plugin):
    name = "TaintToleration"
    points = frozenset({"filter", "preScore", "score"})
    position = 50
    weight = 3

    def prepare(self, shape: Shape) -> Prepared | Status | None:
        return _Taints(self.tables, shape)

    def wake_ups(self) -> tuple[WakeUp, ...]:
        return (
            WakeUp(NODE, Action.ADD | Action.UPDATE_NODE_TAINT, _node_tolerated),
            WakeUp(POD, Action.UPDATE_POD_TOLERATION, lambda pod, old, new: pod.metadata.uid == new.metadata.uid),
        )


class _Taints(Prepared):
    """Nodes share few distinct lists of taints: each list is evaluated once, and rows look up the result."""

    filters = scores = bounded = normalizes = True

    def __init__(self, tables: Tables, shape: Shape) -> None:
        super().__init__()
        self._tables = tables
        self._tolerations = shape.pod.spec.tolerations
        self._soft = tuple(each for each in self._tolerations if each.effect in ("", PREFER_NO_SCHEDULE))
        self._code = self.refuse(REASON)
        self._verdicts: Ints = np.zeros(0, dtype=np.int64)  # [taint list]
        self._counts: Ints = np.zeros(0, dtype=np.int64)

    def filter(self, rows: Rows) -> Ints:
        self._judge()
        return self._verdicts[self._tables.taints.view[rows]]

    def detail(self, row: int) -> str:
        taints = untolerated_taints(self._tolerations, self._tables.taint_lists[self._tables.taints.cells[row]])
        return ", ".join(taint_text(taint) for taint in taints)

    def score(self, rows: Rows) -> Ints:
        self._judge()
        return self._counts[self._tables.taints.view[rows]]

    def normalize(self, scores: Ints, rows: Rows) -> Ints:
        return normalize_by_max(scores, reverse=True)

    def _judge(self) -> None:
        lists = self._tables.taint_lists
        new = lists[len(self._verdicts) :]
        if new:
            verdicts = [self._code if has_untolerated_taint(self._tolerations, taints) else 0 for taints in new]
            counts = [
                sum(taint.effect == PREFER_NO_SCHEDULE and not any_tolerates(self._soft, taint) for taint in taints)
                for taints in new
            ]
            self._verdicts = np.concatenate((self._verdicts, np.array(verdicts, dtype=np.int64)))
            self._counts = np.concatenate((self._counts, np.array(counts, dtype=np.int64)))


def _node_tolerated(pod: Pod, old: Any, new: Any) -> bool:
    before = old is None or has_untolerated_taint(pod.spec.tolerations, old.spec.taints)
    return before and not has_untolerated_taint(pod.spec.tolerations, new.spec.taints)


plugins = (TaintToleration,)
