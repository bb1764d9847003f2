"""The experiment of the FGD paper: pods of a trace arrive until they ask for more than the cluster has.

The pods of the trace arrive in random order, and after them pods drawn from the trace, until the devices that were asked
for are 130 % of those that there are. Nobody leaves, and a pod that fits nowhere is skipped. What is read off at 80, 100
and 130 % is the mean over the arrivals at which the demand, rounded to whole per cent, is just that.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wharfinger.framework.columns import Ints
from wharfinger.plugins.device_packing.fragmentation import Fragmentation
from wharfinger.plugins.device_packing.registry import POLICIES
from wharfinger.replay.openb import OpenbTrace
from wharfinger.replay.packing import FixedOrder, PackingRun, PodKind, models_of, workload_of

MARKS = (80, 100, 130)  # per cent of the devices that arrived pods ask for
DEMAND = 130


@dataclass(frozen=True, slots=True)
class ExperimentResult:
    policy: str
    seed: int
    seconds: float
    allocated: Mapping[int, float]  # per cent of all devices, by mark
    fragmented: Mapping[int, float]

    def document(self) -> dict[str, Any]:
        return {
            "policy": self.policy,
            "seed": self.seed,
            "seconds": round(self.seconds, 3),
            "allocatedPercent": {str(mark): round(value, 2) for mark, value in self.allocated.items()},
            "fragmentedPercent": {str(mark): round(value, 2) for mark, value in self.fragmented.items()},
        }

    def fragmented_share(self, mark: int) -> float:
        """How many per cent of the idle devices are fragmented."""
        idle = 100 - self.allocated[mark]
        return 100 * self.fragmented[mark] / idle if idle > 0 else 0.0


def run_experiment(trace: OpenbTrace, policy: str, seed: int) -> ExperimentResult:
    """One run. Raises KeyError for an unknown policy."""
    started = time.process_time()
    random = np.random.default_rng(seed)
    kinds, kind_of = kinds_of(trace)
    arrivals = arrival_order(trace, kind_of, kinds, random)
    order = random.permutation(len(trace.nodes))
    keys = random.integers(0, 1 << 62, len(trace.nodes))
    models, workload = models_of(trace), workload_of(trace)
    rule = POLICIES[policy](workload, models, seed)
    measure = Fragmentation(workload, models)
    run = PackingRun(trace.nodes, kinds, rule, measure, FixedOrder(order), keys)
    allocated, fragmented = np.zeros(len(arrivals)), np.zeros(len(arrivals))
    for index, number in enumerate(arrivals.tolist()):
        run.place(number)
        allocated[index] = run.allocated
        fragmented[index] = run.fragmented
    demand = np.array([kind.demand.total for kind in kinds], dtype=np.int64)[arrivals].cumsum()
    arrived = np.rint(100 * demand / trace.capacity).astype(np.int64)
    return ExperimentResult(
        policy,
        seed,
        time.process_time() - started,
        _at_marks(arrived, 100 * allocated / trace.capacity),
        _at_marks(arrived, 100 * fragmented / (trace.capacity * measure.weight)),
    )


def kinds_of(trace: OpenbTrace) -> tuple[Sequence[PodKind], Ints]:
    """The kinds of pods of a trace, and the number of its kind for each pod."""
    numbers: dict[PodKind, int] = {}
    of_pod = [numbers.setdefault(PodKind(pod.demand, pod.memory), len(numbers)) for pod in trace.pods]
    return list(numbers), np.array(of_pod, dtype=np.int64)


def arrival_order(trace: OpenbTrace, kind_of: Ints, kinds: Sequence[PodKind], random: np.random.Generator) -> Ints:
    """The numbers of the kinds of the pods that arrive, in order. If the trace itself asks for more than `DEMAND`, pods are
    left out at random instead."""
    arrivals = list(random.permutation(kind_of).tolist())
    demand = sum(kinds[each].demand.total for each in arrivals)
    limit = trace.capacity * DEMAND / 100
    while demand > limit:
        demand -= kinds[arrivals.pop(int(random.integers(len(arrivals))))].demand.total
    while demand < limit and any(kind.demand.devices for kind in kinds):
        number = int(kind_of[random.integers(len(kind_of))])
        kind = kinds[number].demand
        if demand + kind.milli > limit:
            break
        demand += kind.total
        arrivals.append(number)
    return np.array(arrivals, dtype=np.int64)


def _at_marks(arrived: Ints, values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> dict[int, float]:
    found = {}
    for mark in MARKS:
        at = values[arrived == mark]
        if not len(at):  # small clusters skip some per cents
            at = values[arrived < mark][-1:]
        found[mark] = float(at.mean()) if len(at) else 0.0
    return found
