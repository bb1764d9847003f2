"""What a scheduling plugin is.

A `Plugin` belongs to a profile and keeps what it needs of the cluster. For every shape of pod that comes along it
prepares a `Prepared`: its answers for that shape, over rows. The engine keeps those and asks again only for rows that
may have changed, which the plugin declares by a `Scope`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

import msgspec
import numpy as np

from wharfinger.api.fields import FieldError
from wharfinger.api.views import Pod
from wharfinger.framework.columns import Bools, IntColumn, Ints, Rows
from wharfinger.framework.events import WakeUp
from wharfinger.framework.prebinding import Preparation
from wharfinger.framework.shapes import Shape
from wharfinger.framework.simulation import Overlay, Simulation
from wharfinger.framework.status import SUCCESS, Status
from wharfinger.framework.tables import PodOnNode, Tables

EXTENSION_POINTS = (
    "preEnqueue",
    "queueSort",
    "preFilter",
    "filter",
    "postFilter",
    "preScore",
    "score",
    "reserve",
    "permit",
    "preBind",
    "bind",
    "postBind",
)
"""By the names that configurations use, in the order of the scheduling cycle."""

MAX_SCORE = 100
"""Scores run from 0 to this after normalisation."""


class Scope(Enum):
    """What a plugin's answer for a row depends on; the engine asks again when that changed."""

    NODE = "node"  # the node object alone
    ROW = "row"  # the node and the pods on it
    CLUSTER = "cluster"  # more than that: all rows are asked for again whenever `version` moved


class Args(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Arguments of a plugin, as in `pluginConfig`. This base has none."""

    def faults(self) -> list[FieldError]:
        """What is wrong with values that have the right type, with paths below the arguments."""
        return []


@dataclass(frozen=True, slots=True)
class RowFunctions:
    """Functions for single rows. They are used only until a column grows, so they may hold on to the cells of columns.

    `inputs` are all columns that the answer depends on, besides the node's allocatable resources; rows with equal cells
    there are then evaluated only once. None: the answer depends on something else.
    """

    refuses: Callable[[int], object]
    score: Callable[[int], int]
    inputs: Sequence[IntColumn] | None = None


class Overlays:
    """Rows on which a pod may see other pods or resources than the tables have.

    An overlay changes a fresh simulation of such a row; the row is feasible if it is with one of its overlays. Verdicts
    are cached while the row does not change: a plugin whose overlays of a row change calls `Tables.changed(rows=…)`.
    """

    widens: bool = False  # whether a row that is feasible as it is stays so, so that overlays only add feasible rows

    @property
    def overlaid(self) -> Collection[int]:
        """The rows that have overlays."""
        raise NotImplementedError

    def overlaid_mask(self, capacity: int) -> Bools:
        """The same as a read-only array over all rows."""
        mask = np.zeros(capacity, dtype=np.bool_)
        mask[list(self.overlaid)] = True
        return mask

    def overlays_on(self, row: int, *, evicting: bool = False) -> Sequence[Overlay]:
        """The overlays of a row. `evicting` includes those that only pass after evictions from the row."""
        raise NotImplementedError


class Prepared:
    """One plugin's answers for one shape.

    Override `filter` to refuse rows and `score` to prefer some, and set `filters` and `scores` accordingly. Codes are
    whole numbers, 0 for acceptance; `refuse` makes one for a status. `filter_row` and `score_row` are the same
    questions for one row; give them when the arrays would cost too much for one.
    """

    scope: Scope = Scope.NODE
    filters: bool = False
    scores: bool = False
    normalizes: bool = False
    nodes: frozenset[str] | None = None  # only these can be right, whatever filters say
    fails: bool = False  # whether filtering a row may break, which as upstream breaks the whole attempt
    score_fault: str = ""  # why rows cannot be scored; as upstream, that matters only where there is a choice
    follows_pods: bool = False  # for cluster scope: rows whose pods changed are asked for again, whatever the version
    replaces: frozenset[str] = frozenset()  # plugins whose filters this one stands in for

    def __init__(self) -> None:
        self._statuses: list[Status] = [SUCCESS]
        self._codes: dict[Status, int] = {SUCCESS: 0}
        self.simulates = type(self).pod_simulated is not Prepared.pod_simulated

    @property
    def version(self) -> Hashable:
        """For cluster scope: moves when answers for all rows may have changed. Only looked at after pods counted by the
        tables or nodes changed, or after `Tables.changed(versions=True)`."""
        return 0

    @property
    def filter_version(self) -> Hashable:
        """The same for `filter` alone."""
        return self.version

    @property
    def score_version(self) -> Hashable:
        """The same for `score` and `normalize` alone."""
        return self.version

    @property
    def scores_follow_pods(self) -> bool:
        """Whether the same holds for raw scores; looked at when `score_version` moved."""
        return self.follows_pods

    def filtering(self) -> bool:
        """Whether there is anything to filter now."""
        return self.filters

    def scoring(self) -> bool:
        """Whether there is anything to score now; a plugin that says no is absent from the scores."""
        return self.scores

    def filter(self, rows: Rows) -> Ints:
        raise NotImplementedError

    def accepts(self, rows: Rows) -> Bools:
        """Which rows pass; for those that can tell so without making codes."""
        passed: Bools = self.filter(rows) == 0
        return passed

    def accepts_all(self, capacity: int) -> Bools | None:
        """For cluster scope: the same for all rows at once, with anything for those without a node; None where it is no
        faster than asking for the rows."""
        return None

    def filter_row(self, row: int, simulation: Simulation | None = None) -> int:
        return int(self.filter(np.array([row]))[0])

    def row_functions(self) -> RowFunctions:
        """For row scope: the fastest way to answer for single rows."""
        return RowFunctions(self.filter_row, self.score_row)

    def status(self, code: int) -> Status:
        return self._statuses[code]

    def refuse(self, status: Status) -> int:
        """The code of a status."""
        code = self._codes.get(status)
        if code is None:
            code = self._codes[status] = len(self._statuses)
            self._statuses.append(status)
        return code

    def score(self, rows: Rows) -> Ints:
        """Raw scores. A plugin that normalizes is asked for all feasible rows at once."""
        raise NotImplementedError

    def score_row(self, row: int) -> int:
        return int(self.score(np.array([row]))[0])

    def normalize(self, scores: Ints, rows: Rows) -> Ints:
        """Final scores from the raw ones of all feasible rows."""
        return scores

    def final(self, rows: Rows) -> Ints:
        """Normalised scores of all feasible rows. Give the very array given before when nothing changed in it."""
        return self.normalize(self.score(rows), rows)

    def pod_simulated(self, simulation: Simulation, pod: PodOnNode, sign: int) -> None:
        """A pod is imagined on the simulation's node (1) or away from it (-1)."""

    @property
    def overlays(self) -> Overlays | None:
        """Rows on which the pod may see other pods or resources than are there."""
        return None

    def close(self) -> None:
        """The answers are no longer kept."""


class Plugin:
    """Base of all plugins. Class attributes tell where it takes part and how a configuration names it."""

    name: ClassVar[str] = ""
    points: ClassVar[frozenset[str]] = frozenset()
    position: ClassVar[int] = 1000  # among the plugins that are on by default
    weight: ClassVar[int] = 1
    enabled: ClassVar[bool] = True  # by default
    ours: ClassVar[bool] = False
    aliases: ClassVar[tuple[str, ...]] = ()
    args_type: ClassVar[type[Args]] = Args
    kinds: ClassVar[tuple[str, ...]] = ()  # kinds of objects it wants to observe, besides nodes and pods
    views: ClassVar[Mapping[str, type[Any]]] = {}  # view types of kinds that the core has none for
    reserves_prepared: ClassVar[bool] = False  # whether `reserve` has nothing to do where `prepare` had nothing to say
    keys_volumes: ClassVar[bool] = False  # whether `shape_key` is None for every pod without volumes
    preempts: ClassVar[bool] = False  # whether its place after filtering is that of preemption, which the engine does
    watches_pods: ClassVar[bool] = False  # whether `pod_added` and `pod_removed` are called

    def __init__(self, tables: Tables, args: Any) -> None:
        self.tables = tables
        self.args = args

    # what happens in the cluster

    def observe(self, kind: str, old: Any, new: Any) -> None:
        """An object of one of `kinds` came (`old` is None), changed, or went (`new` is None)."""

    def concerned(self, shape: Shape) -> bool:
        """For one that `watches_pods`: whether it need hear of pods of a shape that have no annotations."""
        return True

    def pod_added(self, pod: PodOnNode) -> None:
        """A pod takes room on a node now."""

    def pod_removed(self, pod: PodOnNode) -> None:
        """A pod no longer takes room on a node."""

    def pod_replaced(self, pod: PodOnNode) -> None:
        """The object of a pod on a node changed in something that takes no room."""

    def wake_ups(self) -> tuple[WakeUp, ...]:
        """The events that can turn a refusal of this plugin."""
        return ()

    # the way of a pod

    def pre_enqueue(self, pod: Pod) -> Status:
        """Whether the pod may enter the queue at all."""
        return SUCCESS

    def shape_key(self, pod: Pod) -> Hashable:
        """What this plugin reads of a pod beyond what all shapes tell apart; None for nothing."""
        return None

    def key_is_shared(self, shape: Shape) -> bool:
        """Whether all pods of a plain shape that have neither annotations nor volumes have the same `shape_key`, until
        `Tables.changed(keys=True)`; then it is asked for once."""
        return False

    def prepare(self, shape: Shape) -> Prepared | Status | None:
        """Its answers for a shape; a status refuses the pod as a whole, None means nothing to say on it."""
        return None

    def post_filter(self, pod: Pod, *, asked: bool) -> Status:
        """What it adds to the reasons when no node was right; an error keeps the plugins after it, preemption too, from
        being asked. `asked` tells whether `prepare` was, which a refusal of the pod as a whole may have cut short."""
        return SUCCESS

    def may_evict(self, preemptor: Pod, victim: PodOnNode) -> bool:
        """Whether preemption may take this pod away for that one; priorities have been compared already."""
        return True

    def reserve(self, pod: Pod, row: int, prepared: Prepared | None) -> Status:
        """The pod is assumed on a node; called before it takes room in the tables."""
        return SUCCESS

    def unreserve(self, pod: Pod, row: int) -> None:
        """The reservation is undone: another plugin refused, or binding failed."""

    def commit(self, pod: Pod) -> None:
        """The pod was bound: what was reserved for it is a fact now."""

    def before_binding(self, pod: Pod, node_name: str) -> Preparation | None:
        """What is to be written and waited for before the pod is bound; asked for once it is assumed."""
        return None

    def pre_bind(self, pod: Pod, node_name: str) -> Mapping[str, str]:
        """Annotations to put on the Binding."""
        return {}


def normalize_by_max(scores: Ints, *, reverse: bool = False) -> Ints:
    """Scales to the largest, as upstream's DefaultNormalizeScore; `reverse` makes the smallest the best."""
    largest = int(scores.max(initial=0))
    if largest == 0:
        return np.full_like(scores, MAX_SCORE) if reverse else scores
    if largest == MAX_SCORE and not reverse:
        return scores
    scaled = scores * MAX_SCORE // largest
    return MAX_SCORE - scaled if reverse else scaled
