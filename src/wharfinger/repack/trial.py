"""A cluster in an engine, in which pods are moved to see what is possible. Moves can be taken back."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

import msgspec
import numpy as np

from wharfinger.api.keys import ObjectKey
from wharfinger.api.views import Pod
from wharfinger.devices.pod_claims import used_claims
from wharfinger.engine import Engine
from wharfinger.engine.evaluation import active_filters, refusals
from wharfinger.engine.preparation import PreparedShape
from wharfinger.framework.columns import Bools, Rows
from wharfinger.framework.plugin import Scope
from wharfinger.framework.tables import Charge
from wharfinger.plugins.dynamic_resources.catalogue import catalogue_of
from wharfinger.repack.movable import CLAIM, MovablePod, RepackedPods

Step = tuple[ObjectKey, str, str]
"""A pod, the node it leaves, and the node it goes to."""


class Trial:
    def __init__(self, engine: Engine, pods: RepackedPods) -> None:
        self.engine = engine
        self.tables = engine.tables
        self.pods = pods
        self.at = {key: pod.node for key, pod in pods.movable.items()}
        self.on: dict[str, dict[ObjectKey, MovablePod]] = {name: {} for name in self.tables.row_of}
        for key, pod in pods.movable.items():
            self.on[pod.node][key] = pod
        self.steps: list[Step] = []
        self.work = 0  # how often feasible nodes were asked for: what a search may spend is counted in these
        self._device_classes = catalogue_of(self.tables).classes
        self._chosen: set[ObjectKey] = set()  # pods whose devices were chosen when they were moved
        self._charges: dict[ObjectKey, Charge] = {}  # what was asked for so far
        self._largest: dict[int, int] = {}  # by resource: the most that a node has

    # -- reading

    def targets(self, pod: MovablePod, excluded: Bools) -> Rows:
        """The rows that the pod could move to; its own is none of them."""
        here = self.at[pod.key]
        rows = self.tables.rows
        rows = rows[~excluded[rows] & (rows != self.tables.row_of[here])]
        found = None if pod.claims else self._rows_elsewhere(pod.pod, rows)
        if found is not None:
            return found
        with self.without(pod):
            possible = self.rows_for(pod.pod)
        kept: Rows = rows[np.isin(rows, possible, assume_unique=True)]
        return kept

    def _rows_elsewhere(self, pod: Pod, rows: Rows) -> Rows | None:
        """Those of the rows on which a pod could run that is on none of them; None if it has to leave its own to find out."""
        if pod.spec.volumes or pod.spec.resource_claims or self.tables.nominated:
            return None
        prepared = self.prepared(pod)
        if prepared.refusal is not None or prepared.only is not None or prepared.overlays:
            return None
        filters = [each for _, each in active_filters(prepared)]
        if any(each.scope is Scope.CLUSTER for each in filters):
            return None
        self.work += 1
        for each in filters:
            rows = rows[each.accepts(rows)]
        return rows

    def prepared(self, pod: Pod) -> PreparedShape:
        """What plugins prepared for pods of this shape."""
        return self.engine.profile(pod).answers_for(pod).prepared

    def rows_for(self, pod: Pod) -> Rows:
        """The rows on which a pod that is nowhere could run."""
        self.work += 1
        prepared = self.prepared(pod)
        if prepared.refusal is not None:
            return np.empty(0, dtype=np.int64)
        return refusals(self.tables, prepared, pod).feasible

    @contextmanager
    def without(self, pod: MovablePod) -> Iterator[None]:
        """Takes a pod off its node for a while."""
        chosen = pod.key in self._chosen
        self._lift(pod)
        try:
            yield
        finally:
            self._put(pod, self.at[pod.key], chosen=chosen)

    def fits(self, pod: Pod, node: str) -> bool:
        return self.tables.row_of[node] in self.rows_for(pod)

    def tightest(self, pod: MovablePod, rows: Rows) -> Rows:
        """The rows in the order in which the pod leaves the least room behind."""
        return rows[np.argsort(self.left_over(pod.pod, rows), kind="stable")]

    def fullest(self, pod: Pod, rows: Rows) -> str:
        """The node of the first row of `tightest`."""
        return self.tables.name(int(rows[self.left_over(pod, rows).argmin()]))

    def left_over(self, pod: Pod, rows: Rows) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """The share of each row that would be left, summed over the resources that the pod asks for."""
        left = np.zeros(len(rows))
        for number, amount in self.charge(pod):
            allocatable = self.tables.allocatable[number].take(rows).astype(np.float64)
            free = allocatable - self.tables.requested[number].take(rows) - amount
            left += free / np.maximum(allocatable, 1)
        return left

    def charge(self, pod: Pod) -> Charge:
        """What the pod takes of a node, without resources that devices of claims may stand for."""
        key = pod.metadata.key
        found = self._charges.get(key)
        if found is None:
            charge, names = self.tables.charge(self.tables.shapes.of(pod)), self.tables.resource_names
            found = tuple(each for each in charge if self._device_classes.serving(names[each[0]]) is None)
            self._charges[key] = found
        return found

    def lacking(self, charge: Iterable[tuple[int, int]], row: int) -> tuple[float, dict[int, int]] | None:
        """The resources that a node lacks for a pod, and the sum of the shares of the node that they are; None if the
        node is too small."""
        lacking, share = dict[int, int](), 0.0
        for number, amount in charge:
            allocatable = int(self.tables.allocatable[number].cells[row])
            free = allocatable - int(self.tables.requested[number].cells[row])
            if amount > allocatable:
                return None
            if amount > free:
                lacking[number] = amount - free
                share += (amount - free) / allocatable
        return share, lacking

    def size(self, pod: MovablePod) -> float:
        """The largest share of a node's resources that the pod takes, by the largest node."""
        largest = 0.0
        for number, amount in self.charge(pod.pod):
            most = self._largest.get(number, -1)
            if most < 0:
                most = int(self.tables.allocatable[number].take(self.tables.rows).max(initial=0))
                self._largest[number] = most
            largest = max(largest, amount / most if most else 0.0)
        return largest

    def mask(self, names: Iterable[str]) -> Bools:
        found = np.zeros(self.tables.capacity, dtype=np.bool_)
        for name in names:
            found[self.tables.row_of[name]] = True
        return found

    # -- moving

    def move(self, pod: MovablePod, target: str) -> None:
        """Moves a pod to a node that `targets` named."""
        here = self.at[pod.key]
        self._lift(pod)
        self._put(pod, target, chosen=bool(pod.claims))
        self._note(pod, here, target)
        self.steps.append((pod.key, here, target))

    def move_all(self, pods: Iterable[MovablePod], closed: Bools) -> bool:
        """Moves each pod to the node that it fills best; moves none if one of them finds no place."""
        mark = len(self.steps)
        for pod in pods:
            rows = self.targets(pod, closed)
            if not len(rows):
                self.back(mark)
                return False
            self.move(pod, self.fullest(pod.pod, rows))
        return True

    def back(self, mark: int) -> None:
        """Takes back all moves after the first `mark`."""
        while len(self.steps) > mark:
            key, source, target = self.steps.pop()
            pod = self.pods.movable[key]
            self._lift(pod)
            # Devices are those of the snapshot again only if no earlier move of the pod is left.
            self._put(pod, source, chosen=bool(pod.claims) and any(key == step[0] for step in self.steps))
            self._note(pod, target, source)

    def _lift(self, pod: MovablePod) -> None:
        """Takes a pod off its node, with the devices of claims that were made for it."""
        if pod.key in self._chosen:
            self.engine.forget(pod.pod)
            self._chosen.discard(pod.key)
            return
        self.engine.remove_pod(*pod.key)
        for claim in pod.claims:
            made_for_resources = claim["metadata"]["name"] not in self._named(pod)
            self.engine.apply(CLAIM, {**claim, "status": {}}, deleted=made_for_resources)

    def _put(self, pod: MovablePod, node: str, *, chosen: bool) -> None:
        """Puts a pod on a node, with the devices of the snapshot or with those that would be chosen now."""
        if chosen and self.engine.assume(pod.pod, node).ok:
            self._chosen.add(pod.key)
            return
        for claim in pod.claims:
            self.engine.apply(CLAIM, claim)
        spec = msgspec.structs.replace(pod.pod.spec, node_name=node)
        self.engine.set_pod(msgspec.structs.replace(pod.pod, spec=spec))

    def _named(self, pod: MovablePod) -> set[str]:
        """The claims that the pod names; others were made for its extended resources and are made again."""
        return {name for _, name in used_claims(pod.pod)}

    def _note(self, pod: MovablePod, source: str, target: str) -> None:
        self.at[pod.key] = target
        del self.on[source][pod.key]
        self.on[target][pod.key] = pod

    def taken_back(self, mark: int) -> list[Step]:
        """Takes back all moves after the first `mark` and returns them, where a pod that moved several times goes to its
        last place directly if that is possible."""
        made, short = self.steps[mark:], self._shortened(mark)
        self.back(mark)
        if len(short) == len(made):
            return made
        possible = replay(self, short) is None
        self.back(mark)
        return short if possible else made

    def _shortened(self, mark: int) -> list[Step]:
        steps = self.steps[mark:]
        last = {key: target for key, _, target in steps}
        first = {key: source for key, source, _ in reversed(steps)}
        order = {key: index for index, (key, _, _) in enumerate(steps)}
        return [(key, first[key], last[key]) for key in sorted(order, key=order.__getitem__) if first[key] != last[key]]


def replay(trial: Trial, steps: Collection[Step]) -> Step | None:
    """Makes the steps one by one and returns the first that is not possible when its turn comes; None if all are."""
    nothing = trial.mask(())
    for key, source, target in steps:
        pod = trial.pods.movable[key]
        if trial.at[key] != source or trial.tables.row_of[target] not in trial.targets(pod, nothing):
            return key, source, target
        trial.move(pod, target)
    return None
