"""Results of the engine: decisions, and why no node was feasible, in the words of kube-scheduler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import msgspec

from wharfinger.api.views import Pod
from wharfinger.framework.columns import Rows
from wharfinger.framework.prebinding import Write
from wharfinger.framework.status import Code, Status

NO_NODES = "no nodes available to schedule pods"
NARROWED = "PreFilterResult"
"""In place of a plugin name: the node is not among those that plugins narrowed the choice to."""


UNKNOWN = Status(Code.UNRESOLVABLE)


Groups = Sequence[tuple[Status, Sequence[int] | Rows]]
"""Statuses, with the rows that got them."""


class Diagnosis:
    """Why a pod fits on no node. Nodes that are in no group have the status `absent`."""

    def __init__(
        self,
        node_count: int,
        groups: Groups = (),
        name: Callable[[int], str] = str,
        *,
        absent: Status = UNKNOWN,
        pre_filter: str = "",
        plugins: frozenset[str] = frozenset(),
    ) -> None:
        self.node_count = node_count
        self.groups = groups
        self.absent = absent
        self.pre_filter = pre_filter
        self.post_filter = ""  # the message of preemption
        self.plugins = plugins  # the plugins that refused
        self._name = name

    @cached_property
    def statuses(self) -> dict[str, Status]:
        """The status of each node; computed on demand, since the message only needs counts."""
        return {self._name(row): status for status, rows in self.groups for row in rows}

    def status(self, node_name: str) -> Status:
        return self.statuses.get(node_name, self.absent)

    @property
    def message(self) -> str:
        """`0/3 nodes are available: 2 Insufficient cpu, 1 node(s) were unschedulable. preemption: …`"""
        text = f"0/{self.node_count} nodes are available:"
        if self.pre_filter:
            text += f" {self.pre_filter}."
        else:
            counts: Counter[str] = Counter()
            missing = self.node_count
            for status, rows in self.groups:
                missing -= len(rows)
                for reason in status.reasons:
                    counts[reason] += len(rows)
            for reason in self.absent.reasons if missing > 0 else ():
                counts[reason] += missing
            if counts:
                text += f" {', '.join(sorted(f'{number} {reason}' for reason, number in counts.items()))}."
        return f"{text} {self.post_filter}" if self.post_filter else text


class Decision(msgspec.Struct):
    """The node for a pod, or why there is none; `error` is set if scheduling failed."""

    node: str | None = None
    row: int = -1
    feasible: int = 0
    evaluated: int = 0
    diagnosis: Diagnosis | None = None
    error: str = ""

    @property
    def message(self) -> str:
        return self.error or ("" if self.diagnosis is None else self.diagnosis.message)


class Explanation(msgspec.Struct):
    """The verdict on every node: the refusing plugin and its reasons, or the weighted score of every plugin."""

    refused: dict[str, Status]
    scores: dict[str, dict[str, int]]
    pre_filter: Status | None = None

    def total(self, node_name: str) -> int:
        return sum(self.scores[node_name].values())

    def document(self) -> dict[str, Any]:
        """As a document: `{"nodes": {name: {"plugin", "code", "reasons"} or {"scores", "total"}}}`."""
        if self.pre_filter is not None:
            status = self.pre_filter
            return {
                "prefilter": status.message,
                "plugin": status.plugin,
                "code": status.code.value,
                "reasons": list(status.reasons),
                "nodes": {},
            }
        nodes: dict[str, dict[str, Any]] = {}
        for name, status in self.refused.items():
            nodes[name] = {
                "plugin": status.plugin,
                "code": status.code.value,
                "reasons": list(status.reasons),
                "total": 0,
            }
        for name, scores in self.scores.items():
            nodes[name] = {"scores": scores, "total": sum(scores.values())}
        return {"nodes": nodes}


class Candidate(msgspec.Struct):
    """A node where evictions make room: the pods to evict, most important first, and the number of violated budgets."""

    node: str
    victims: list[Pod]
    violations: int
    rank: tuple[float, ...] = ()  # smaller is better


class RankedCandidates(msgspec.Struct, frozen=True):
    """The candidates of one attempt. Most callers only want the best, so the rest is put together on demand."""

    by_row: Sequence[Candidate | Status | None]
    rows: Rows  # the rows that were tried
    best: Rows  # those of them with the best rank
    chosen: Candidate


class PreemptionResult(msgspec.Struct):
    eligible: bool
    message: str = ""  # why there is no node, as events show it
    plugins: frozenset[str] = frozenset()  # those that refuse the pod even after evictions, or spare possible victims
    node: str | None = None
    ranked: RankedCandidates | None = None
    helps_nowhere: bool = False  # evictions help on no node
    writes: tuple[Write, ...] = ()  # what other plugins want changed so that a later attempt succeeds

    @property
    def candidates(self) -> dict[str, Candidate]:
        """All candidates by node."""
        ranked = self.ranked
        found = () if ranked is None else (ranked.by_row[row] for row in ranked.rows.tolist())
        return {each.node: each for each in found if isinstance(each, Candidate)}

    @property
    def chosen(self) -> list[str]:
        """All nodes with the best rank."""
        ranked = self.ranked
        found = () if ranked is None else (ranked.by_row[row] for row in ranked.best.tolist())
        return sorted(each.node for each in found if isinstance(each, Candidate))

    @property
    def victims(self) -> list[Pod]:
        if self.node is None or self.ranked is None:
            return []
        chosen = self.ranked.chosen
        return chosen.victims if chosen.node == self.node else self.candidates[self.node].victims
