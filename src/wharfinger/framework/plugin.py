"""What a scheduling plugin is.

A `Plugin` belongs to a profile and keeps what it needs to know about the cluster. For each pod shape it prepares a
`Prepared`: its answers for that shape, over rows. The engine caches them and evaluates again only rows that may have
changed, which the plugin declares with a `Scope`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Self

import msgspec
import numpy as np

from wharfinger.api.fields import FieldError
from wharfinger.api.keys import ObjectKey
from wharfinger.api.kubernetes_version import KubernetesVersion
from wharfinger.api.views import Pod
from wharfinger.framework.columns import Bools, Floats, IntColumn, Ints, Rows
from wharfinger.framework.domains import DomainScores
from wharfinger.framework.events import WakeUp
from wharfinger.framework.explaining import AskedAmount, ExplainedTable, Suggestion
from wharfinger.framework.joint import JointAnswers
from wharfinger.framework.prebinding import Preparation, Write
from wharfinger.framework.shapes import Shape
from wharfinger.framework.simulation import Overlay, Simulation
from wharfinger.framework.status import SUCCESS, Status
from wharfinger.framework.tables import PodOnNode, Tables

if TYPE_CHECKING:
    # Not imported: what the scheduling state imports must not reach the clock that CEL uses.
    from wharfinger.framework.device_scoring import DeviceScorer

EXTENSION_POINTS = (
    "preEnqueue",
    "queueSort",
    "preFilter",
    "filter",
    "postFilter",
    "preScore",
    "score",
    "deviceScore",
    "reserve",
    "permit",
    "preBind",
    "bind",
    "postBind",
)
"""By the names that configurations use, in the order of the scheduling cycle. `deviceScore` is ours, the others are
upstream's."""

MAX_SCORE = 100
"""Normalized scores are between 0 and this."""


class Scope(Enum):
    """What a plugin's answer for a row depends on; the engine evaluates the row again when that changed."""

    NODE = "node"  # the node object alone
    ROW = "row"  # the node and the pods on it
    CLUSTER = "cluster"  # more than that: all rows are evaluated again when `version` moved


class Args(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The arguments of a plugin in `pluginConfig`. This base class has none."""

    def faults(self, kubernetes: KubernetesVersion) -> list[FieldError]:
        """Errors in values that have the right type, with paths relative to the arguments."""
        return []


class RowFunctions(msgspec.Struct, frozen=True):
    """Functions for single rows. They are used only until a column grows, so they may hold on to the cells of columns.

    `inputs` are all columns that the answer depends on, besides the node's allocatable resources; rows with equal cells
    there are then evaluated only once. None: the answer depends on something else. Of a simulation, such a filter reads the
    amounts and the number of pods, unless it overrides `Prepared.pod_simulated`.
    """

    refuses: Callable[[int], object]
    score: Callable[[int], int]
    inputs: Sequence[IntColumn] | None = None


class Overlays:
    """Rows on which a pod may see other pods or resources than the tables have.

    An overlay changes a fresh simulation of such a row; the row is feasible if it is feasible under one of its overlays.
    Verdicts are cached while the row does not change: when its overlays do, call `Tables.changed(rows=…)`.
    """

    widens: bool = False  # whether a row that is feasible without overlays stays feasible

    @property
    def favours(self) -> bool:
        """For a plugin that also scores and normalizes by the largest score: whether its raw scores are now at most
        `MAX_SCORE`, and 0 for rows without overlays."""
        return False

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

    A plugin that filters sets `filters` and overrides `filter`; one that scores sets `scores` and overrides `score`.
    `filter_row` and `score_row` answer for a single row; override them where arrays are too slow for that. Everything
    else is optional: it narrows down what must be evaluated, or is for plugins that look beyond the row.
    """

    # What the plugin does.
    scope: Scope = Scope.NODE
    filters: bool = False
    scores: bool = False
    normalizes: bool = False
    bounded: bool = False  # whether final scores are between 0 and MAX_SCORE, whatever happens

    # What it says about the pod as a whole.
    nodes: frozenset[str] | None = None  # the only nodes that can be feasible; None: no restriction
    within: frozenset[str] | None = None  # the only nodes that `filter` may accept, if that is known beforehand
    fails: bool = False  # whether filtering may give errors; as upstream, one error fails the whole attempt
    score_fault: str = ""  # why rows cannot be scored; as upstream, an error only if several rows are feasible
    replaces: frozenset[str] = frozenset()  # plugins whose filters this one replaces
    reserves: bool = True  # whether `reserve` of a plugin with `reserves_prepared` is needed

    # Cluster scope: whether rows whose pods changed are evaluated again even if the version did not move.
    follows_pods: bool = False

    def __init__(self) -> None:
        self._statuses: list[Status] = [SUCCESS]
        self._codes: dict[Status, int] = {SUCCESS: 0}
        self.simulates = type(self).pod_simulated is not Prepared.pod_simulated

    # -- cluster scope: when all rows must be evaluated again

    @property
    def version(self) -> Hashable:
        """Moves when the answers for all rows may have changed. Compared only after nodes or pods counted by the tables
        changed, or after `Tables.changed(versions=True)`."""
        return 0

    @property
    def filter_version(self) -> Hashable:
        """`version` for `filter` alone."""
        return self.version

    @property
    def score_version(self) -> Hashable:
        """`version` for `score` and `normalize` alone."""
        return self.version

    @property
    def scores_follow_pods(self) -> bool:
        """`follows_pods` for raw scores; read when `score_version` moved."""
        return self.follows_pods

    # -- filtering

    def filtering(self) -> bool:
        """Whether there is anything to filter now."""
        return self.filters

    def filter(self, rows: Rows) -> Ints:
        """A code for each row: 0 accepts it, any other means a `status`."""
        raise NotImplementedError

    def accepts(self, rows: Rows) -> Bools:
        """Which rows pass; override it where that is cheaper than `filter`."""
        passed: Bools = self.filter(rows) == 0
        return passed

    def accepts_all(self, capacity: int) -> Bools | None:
        """Cluster scope: `accepts` for all rows, with any value for rows without a node; None if that is no faster."""
        return None

    def filter_row(self, row: int, simulation: Simulation | None = None) -> int:
        return int(self.filter(np.array([row]))[0])

    def status(self, code: int) -> Status:
        return self._statuses[code]

    def refuse(self, status: Status) -> int:
        """The code for a status."""
        code = self._codes.get(status)
        if code is None:
            code = self._codes[status] = len(self._statuses)
            self._statuses.append(status)
        return code

    # -- scoring

    def scoring(self) -> bool:
        """Whether there is anything to score now; if not, the plugin is absent from the scores."""
        return self.scores

    def score(self, rows: Rows) -> Ints:
        """Raw scores."""
        raise NotImplementedError

    def score_row(self, row: int) -> int:
        return int(self.score(np.array([row]))[0])

    def normalize(self, scores: Ints, rows: Rows) -> Ints:
        """Final scores, given the raw scores of all feasible rows."""
        return scores

    def final(self, rows: Rows) -> Ints:
        """Normalized scores of all feasible rows. Return the same array object as before if nothing changed in it."""
        return self.normalize(self.score(rows), rows)

    @property
    def scales(self) -> bool:
        """Whether the final score of a row now follows from its raw score and the distinct raw scores of the feasible rows.
        Then `normalize_values` must be there."""
        return False

    def normalize_values(self, values: Sequence[int]) -> Sequence[int]:
        """`normalize` for the distinct raw scores of the feasible rows."""
        raise NotImplementedError

    def by_domain(self, rows: Rows) -> tuple[DomainScores, list[int]] | None:
        """`final` as the scores of a few topology domains, if the final score of a row follows from its domain; None if it
        follows from more. Return the same `DomainScores` while the rows are the same."""
        return None

    # -- beyond the row as it is

    def row_functions(self) -> RowFunctions:
        """Row scope: the fastest functions for single rows."""
        return RowFunctions(self.filter_row, self.score_row)

    def joint_key(self) -> Hashable | None:
        """Row scope: answers of the same class with equal keys, for different shapes, can be computed together by `jointly`.
        None: they cannot."""
        return None

    @classmethod
    def jointly(cls, answers: Sequence[Self]) -> JointAnswers:
        """These answers together."""
        raise NotImplementedError

    def pod_left_elsewhere(self, simulation: Simulation, pod: PodOnNode) -> None:
        """A pod on another row than the simulated one counts as gone."""
        return

    def pod_simulated(self, simulation: Simulation, pod: PodOnNode, sign: int) -> None:
        """A pod was added to the simulated node (1) or removed from it (-1)."""

    @property
    def overlays(self) -> Overlays | None:
        """Rows on which the pod may see other pods or resources than are there."""
        return None

    def eviction_preference(self, row: int) -> int:
        """How much the pod prefers the row to others on which evictions would cost the same; more is better."""
        return 0

    # -- explanations

    def detail(self, row: int) -> str:
        """Which taint, label or port of a refused row it is; empty where the reasons say it all."""
        return ""

    def amounts(self, row: int, simulation: Simulation | None = None) -> Sequence[AskedAmount]:
        """What the pod asks of a row and what is free there."""
        return ()

    def missing(self, rows: Rows) -> Floats | None:
        """For refused rows: how much of what the pod needs they lack, in parts of it; None where `amounts` say so. Slow: for
        explanations."""
        return None

    def close(self) -> None:
        """The answers are dropped: release what they hold."""


class FailedAttempt(msgspec.Struct, frozen=True):
    """An attempt that found no node. `asked` is whether `Plugin.prepare` was called: a refusal of the pod as a whole by an
    earlier plugin skips it. `refused` has the refusals with their rows."""

    asked: bool
    refused: Sequence[tuple[Status, Sequence[int] | Rows]] = ()


class PostFilterResult(msgspec.Struct, frozen=True):
    """What a plugin says and does about a failed attempt: writes to be carried out in order."""

    status: Status = SUCCESS
    writes: tuple[Write, ...] = ()


class Plugin:
    """Base class of all plugins. Class attributes say where it takes part and how configurations name it."""

    name: ClassVar[str] = ""
    points: ClassVar[frozenset[str]] = frozenset()
    position: ClassVar[int] = 1000  # in the default order of plugins
    earlier_positions: ClassVar[Mapping[KubernetesVersion, int]] = {}  # where an earlier version had another order
    weight: ClassVar[int] = 1
    enabled: ClassVar[bool] = True  # by default
    ours: ClassVar[bool] = False  # not a stock kube-scheduler plugin
    aliases: ClassVar[tuple[str, ...]] = ()  # other names in configurations
    args_type: ClassVar[type[Args]] = Args
    kinds: ClassVar[tuple[str, ...]] = ()  # kinds of objects to observe, besides nodes and pods
    views: ClassVar[Mapping[str, type[Any]]] = {}  # view types of kinds that the core has none for
    reserves_prepared: ClassVar[bool] = False  # whether `reserve` is only needed for shapes with a `Prepared`
    keys_volumes: ClassVar[bool] = False  # whether `shape_key` is None for every pod without volumes
    preempts: ClassVar[bool] = False  # whether the engine runs preemption in its place at postFilter
    watches_pods: ClassVar[bool] = False  # whether `pod_added` and `pod_removed` are called

    handles_resources: ClassVar[bool] = False  # whether it decides the fit of the tables' `handled` resources

    def __init__(self, tables: Tables, args: Any) -> None:
        self.tables = tables
        self.args = args
        #: The plugins of the profile that filter and `handles_resources`.
        self.handlers: Sequence[Plugin] = ()
        #: The plugins of the profile that score devices, with their weights.
        self.device_scorers: Sequence[tuple[Plugin, int]] = ()

    # -- changes in the cluster

    def observe(self, kind: str, old: Any, new: Any) -> None:
        """An object of one of `kinds` was added (`old` is None), updated or deleted (`new` is None)."""

    def handled_resources(self) -> Collection[str]:
        """With `handles_resources`: the tables' `handled` resources, after all that has been observed."""
        return self.tables.handled

    def concerned(self, shape: Shape) -> bool:
        """With `watches_pods`: whether to be told of pods of this shape that have no annotations."""
        return True

    def pod_added(self, pod: PodOnNode) -> None:
        """A pod was added to a node, bound or assumed."""

    def pod_removed(self, pod: PodOnNode) -> None:
        """A pod was removed from a node."""

    def pod_replaced(self, pod: PodOnNode) -> None:
        """The object of a pod on a node changed, but not the resources it takes."""

    def wake_ups(self) -> tuple[WakeUp, ...]:
        """The events that can change a refusal of this plugin."""
        return ()

    def suggestions(self, pod: Pod, rows: Sequence[int]) -> Iterable[Suggestion]:
        """Changes to objects of this plugin's kinds that may let in a pod that fits nowhere; `rows` are those that come
        nearest. They need not help: each is tried before it is shown."""
        return ()

    def explained(self, pod: Pod, rows: Sequence[int]) -> Iterable[ExplainedTable]:
        """What this plugin knows about a pod that is being explained; `rows` are the chosen one or those that come
        nearest."""
        return ()

    # -- the scheduling cycle

    def pre_enqueue(self, pod: Pod) -> Status:
        """Whether the pod may enter the active queue."""
        return SUCCESS

    def shape_key(self, pod: Pod) -> Hashable:
        """What the plugin reads of this pod beyond what its plain shape covers; None for nothing."""
        return None

    def key_is_shared(self, shape: Shape) -> bool:
        """Whether all pods of a plain shape that have neither annotations nor volumes have the same `shape_key`; it is then
        computed once, until `Tables.changed(keys=True)`."""
        return False

    def prepare(self, shape: Shape) -> Prepared | Status | None:
        """The answers for a shape; a status refuses the pod as a whole, None means that the plugin does not apply."""
        return None

    def device_scorer(self, shape: Shape) -> DeviceScorer | None:
        """How good devices are for the pods of a shape, which decides the ones that they get on the chosen node; None: the
        plugin has no opinion."""
        return None

    def post_filter(self, pod: Pod, prepared: Prepared | None, failure: FailedAttempt) -> PostFilterResult:
        """Adds to the reasons when no node is feasible, and may change objects so that a later attempt succeeds; after an
        error no later plugin runs, not even preemption."""
        return PostFilterResult()

    def may_evict(self, preemptor: Pod, victim: PodOnNode) -> bool:
        """Whether the victim may be evicted for the preemptor. Priorities have been compared already."""
        return True

    def spares_pods(self) -> bool:
        """Whether `may_evict` may refuse anything now. Asked before every attempt to preempt, `may_evict` for every pod."""
        return type(self).may_evict is not Plugin.may_evict

    def reserve(self, pod: Pod, row: int, prepared: Prepared | None) -> Status:
        """The pod is about to be assumed on a node; called before it is added to the tables."""
        return SUCCESS

    def unreserve(self, pod: Pod, row: int) -> None:
        """Undoes `reserve`: another plugin refused, or the bind failed. Must tolerate that `reserve` was never called."""

    def commit(self, pod: Pod) -> None:
        """The pod was bound."""

    def object_gone(self, kind: str, key: ObjectKey) -> Any | None:
        """The API server says that there is no such object. What watches report comes later. Returns the object if it was
        known until now: its end may let waiting pods in."""
        return None

    def before_binding(self, pod: Pod, node_name: str) -> Preparation | None:
        """What to write and wait for before the assumed pod is bound."""
        return None

    def pre_bind(self, pod: Pod, node_name: str) -> Mapping[str, str]:
        """Annotations to put on the Binding."""
        return {}


def normalize_by_max(scores: Ints, *, reverse: bool = False) -> Ints:
    """Scales scores by the largest, like upstream's DefaultNormalizeScore; `reverse` makes the smallest the best."""
    largest = int(scores.max(initial=0))
    if largest == 0:
        return np.full_like(scores, MAX_SCORE) if reverse else scores
    if largest == MAX_SCORE and not reverse:
        return scores
    scaled = scores * MAX_SCORE // largest
    return MAX_SCORE - scaled if reverse else scaled
