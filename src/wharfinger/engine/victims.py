"""Which pods to evict from one node. The same choice as upstream's DefaultPreemption makes in its dry run.

Most nodes of a cluster are alike, and so are the pods on them. `DryRuns` computes once for all such nodes which of their
pods go.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from functools import lru_cache
from itertools import repeat
from math import inf
from operator import getitem

from wharfinger.api.kubernetes_version import REFERENCE, KubernetesVersion
from wharfinger.api.selectors import BadSelector, matches
from wharfinger.api.times import parse_time
from wharfinger.api.views import Pod
from wharfinger.api.views.workloads import PodDisruptionBudget
from wharfinger.engine.evaluation import check, simulating
from wharfinger.engine.outcome import Candidate
from wharfinger.engine.preparation import Filters
from wharfinger.framework.columns import IntColumn
from wharfinger.framework.plugin import Plugin
from wharfinger.framework.simulation import Overlay, Simulation
from wharfinger.framework.status import Code, Status, unresolvable
from wharfinger.framework.tables import PodOnNode, Tables

NO_VICTIMS = unresolvable("No preemption victims found for incoming pod")


def lower(victim: PodOnNode, pod: Pod) -> bool:
    return victim.priority < (pod.spec.priority or 0)


def spared_by(plugins: Sequence[Plugin], pod: Pod, victim: PodOnNode) -> str:
    """The plugin that does not let the pod evict a pod of lower priority; empty if none."""
    return next((plugin.name for plugin in plugins if not plugin.may_evict(pod, victim)), "")


def possible_victims(
    tables: Tables, pod: Pod, row: int, plugins: Sequence[Plugin], sparing: dict[int, frozenset[str]]
) -> list[PodOnNode]:
    """The pods of lower priority that may be evicted from a row; plugins that spare some are noted in `sparing`."""
    priority = pod.spec.priority or 0
    found = [each for each in tables.pods_on[row].values() if each.priority < priority]
    if plugins:
        keepers = [spared_by(plugins, pod, each) for each in found]
        if any(keepers):
            sparing[row] = frozenset(each for each in keepers if each)
            found = [each for each, keeper in zip(found, keepers, strict=True) if not keeper]
    return found


class DryRuns:
    """Dry runs of the same filters, for pods of one shape and priority.

    Rows share a result if all filters follow from columns that they name (`RowFunctions.inputs`), the cells of these
    columns are equal, and the pods that may go take the same resources and are as important, one by one. Budgets, nominated
    pods and overlays are about single rows: where there are any, the row is simulated.
    """

    MOST = 4096  # results that are kept

    def __init__(self, tables: Tables, filters: Filters) -> None:
        self._tables = tables
        self._filters = filters
        self._budgets: Sequence[PodDisruptionBudget] = ()
        self._guarded: frozenset[str] = frozenset()  # namespaces with budgets
        self._inputs = _inputs(tables, filters)
        #: The positions of the victims among the pods that may go, with their rank, or why there are none.
        self._known: dict[Hashable, tuple[list[int], tuple[float, ...]] | Status] = {}

    def begin(self, pod: Pod, budgets: Sequence[PodDisruptionBudget]) -> None:
        """From now on, the runs are for this pod."""
        self._pod = pod
        if budgets is not self._budgets:
            self._budgets = budgets
            self._guarded = frozenset(budget.metadata.namespace for budget in budgets)
        if len(self._known) > self.MOST:
            self._known.clear()

    def candidate_on(
        self, row: int, possible: Sequence[PodOnNode], overlay: Overlay | None = None
    ) -> Candidate | Status:
        """The fewest of the possible victims to evict from a node; a status if evictions do not help."""
        inputs = self._inputs
        if inputs is None or overlay is not None or self._is_special(row, possible):
            return self._simulate(row, possible, overlay)[0]
        key = (
            *map(getitem, inputs, repeat(row)),
            *[(each.charge, each.priority, each.pod.status.start_time) for each in possible],
        )
        known = self._known.get(key)
        if known is None:
            found, victims = self._simulate(row, possible, None)
            if isinstance(found, Candidate):
                self._known[key] = [possible.index(each) for each in victims], found.rank
            elif found.code is not Code.ERROR:  # an error names the node
                self._known[key] = found
            return found
        if isinstance(known, Status):
            return known
        positions, rank = known
        return Candidate(self._tables.names[row], [possible[each].pod for each in positions], 0, rank)

    def _is_special(self, row: int, possible: Sequence[PodOnNode]) -> bool:
        tables, guarded = self._tables, self._guarded
        if tables.nominated and tables.names[row] in tables.nominated:
            return True
        return bool(guarded) and any(each.key[0] in guarded for each in possible)

    def _simulate(
        self, row: int, possible: Iterable[PodOnNode], overlay: Overlay | None
    ) -> tuple[Candidate | Status, list[PodOnNode]]:
        """The answer, and the victims."""
        tables, filters, pod = self._tables, self._filters, self._pod
        possible = sorted(possible, key=importance)
        simulation = Simulation(tables, row, simulating(filters))
        if overlay is not None:
            overlay(simulation)
        for each in possible:
            simulation.remove(each)
        refusal = check(tables, filters, pod, simulation)
        if refusal is not None:
            return refusal, []
        violating, harmless = split_by_budget(possible, self._budgets, tables.kubernetes)
        victims: list[PodOnNode] = []
        violations = 0
        # Reprieve as many pods as possible, first those whose eviction would violate a budget.
        for group in (violating, harmless):
            for each in group:
                simulation.add(each)
                if check(tables, filters, pod, simulation) is not None:
                    simulation.remove(each)
                    victims.append(each)
                    violations += group is violating
        if not victims:
            return Status(Code.ERROR, (f'expected at least one victim pod on node "{tables.name(row)}"',)), []
        victims.sort(key=importance)
        found = Candidate(tables.name(row), [each.pod for each in victims], violations, rank(victims, violations))
        return found, victims


def _inputs(tables: Tables, filters: Filters) -> Sequence[Sequence[int]] | None:
    """The columns that all verdicts follow from; None if some depend on more."""
    columns: dict[int, IntColumn] = {id(tables.sizes): tables.sizes}
    for _, prepared in filters:
        inputs = None if prepared.simulates else prepared.row_functions().inputs
        if inputs is None:
            return None
        columns.update((id(column), column) for column in inputs)
    return [column.cells for column in columns.values()]


def importance(pod: PodOnNode) -> tuple[int, float]:
    """Sort key, most important first: by priority, then by start time."""
    start = pod.pod.status.start_time
    return -pod.priority, _seconds(start) if start else inf


def started(pod: Pod) -> float:
    """Start time in seconds since the epoch; pods that have not started come last."""
    return _seconds(pod.status.start_time) if pod.status.start_time else inf


_seconds = lru_cache(maxsize=1 << 16)(parse_time)


def split_by_budget(
    pods: Iterable[PodOnNode], budgets: Sequence[PodDisruptionBudget], kubernetes: KubernetesVersion = REFERENCE
) -> tuple[list[PodOnNode], list[PodOnNode]]:
    """The pods whose eviction would violate a disruption budget, and the others, each in the order given."""
    compiled = []
    for budget in budgets:
        try:
            selector = None if budget.spec.selector is None else budget.spec.selector.compile()
        except BadSelector:
            continue
        if selector:  # as upstream, an absent or empty selector matches nothing here
            compiled.append((budget, selector))
    allowed = [budget.status.disruptions_allowed for budget, _ in compiled]
    violating: list[PodOnNode] = []
    harmless: list[PodOnNode] = []
    for each in pods:
        metadata, violates = each.pod.metadata, False
        for index, (budget, selector) in enumerate(compiled):
            if budget.metadata.namespace != metadata.namespace or not metadata.labels:
                continue
            if not matches(selector, metadata.labels) or metadata.name in budget.status.disrupted_pods:
                continue
            allowed[index] -= 1
            if allowed[index] < 0:
                violates = True
                if kubernetes >= KubernetesVersion.V1_37:
                    break  # the budgets after the broken one are not charged
        (violating if violates else harmless).append(each)
    return violating, harmless


def rank(victims: Sequence[PodOnNode], violations: int) -> tuple[float, ...]:
    """Sort key, best first: fewest violated budgets, lowest highest priority, smallest sum of priorities, fewest victims,
    latest start time of those with the highest priority. The victims are sorted by importance."""
    first, number = victims[0], len(victims)
    total = sum([each.priority for each in victims])
    # Shifted above zero, so that more pods with negative priorities do not count as less.
    return violations, first.priority, total + (number << 31), number, -started(first.pod)
