"""The recorded past: samples of the queue and of utilisation, kept in memory while the dashboard runs, and what objects
tell about the time before it started."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from math import ceil, inf

from wharfinger.api.conditions import find_condition
from wharfinger.api.kinds.builtin import NODES, PODS
from wharfinger.api.registry import Document
from wharfinger.api.resources import CPU, MEMORY, Amounts
from wharfinger.client.tasks import OwnedTask
from wharfinger.dashboard.state import ClusterState
from wharfinger.dashboard.usage import allocatable, pod_requests
from wharfinger.dashboard.views.objects import created, seconds
from wharfinger.dashboard.what_if import share

PERIOD = 5.0  # seconds between samples
SAMPLES = 1440  # two hours
BEFORE = 1800.0  # seconds before the start that are told by the objects
_STEPS = 120
_FILLED = 5000  # nodes whose fill is kept for each sample


class History(OwnedTask):
    task_name = "dashboard history"

    def __init__(self, state: ClusterState, now: Callable[[], float] = time.time) -> None:
        self._state = state
        self._now = now
        self.samples: deque[Document] = deque(maxlen=SAMPLES)

    def start(self) -> None:
        began, state = self._now(), self._state

        def requests_of(pod: Document) -> Amounts:
            metadata = pod["metadata"]
            return state.usage.amounts.get((metadata.get("namespace", ""), metadata["name"]), {})

        past = past_samples(state.objects(PODS), state.objects(NODES), began - BEFORE, began, requests_of)
        self.samples.extend(past)
        super().start()

    async def _run(self) -> None:
        while True:
            self.sample()
            await asyncio.sleep(PERIOD)

    def sample(self) -> None:
        usage, nodes = self._state.usage, self._state.nodes
        used = [usage.requested.get(row.name, {}) for row in nodes.rows]
        room = [row.room for row in nodes.rows]
        fill = zip(used[:_FILLED], room[:_FILLED], strict=True)
        self.samples.append(
            {
                "time": self._now(),
                "nodes": len(nodes),
                "waiting": len(usage.waiting),
                "running": sum(len(usage.pods.get(row.name, ())) for row in nodes.rows),
                "cpu": share(used, room, "cpu"),
                "memory": share(used, room, "memory"),
                "names": nodes.names,  # shared by all samples between which no node came or went
                "fill": bytes(min(255, share((taken,), (has,), "cpu")) for taken, has in fill),
            }
        )

    def nodes_at(self, moment: float) -> Document:
        """How full each node was, in percent of cpu, at the last sample until a moment; nothing from before the start."""
        position = bisect_right(self.samples, moment, key=lambda each: float(each["time"])) - 1
        found = self.samples[max(0, position)] if self.samples else {"names": (), "fill": b""}
        return {"names": found["names"][:_FILLED], "fill": list(found["fill"])}


def past_samples(
    pods: Iterable[Document],
    nodes: Iterable[Document],
    start: float,
    end: float,
    requests_of: Callable[[Document], Amounts] = pod_requests,
) -> list[Document]:
    """What objects tell about the time before: when pods were created, got their nodes, and ended. Pods and nodes that
    are gone leave no trace."""
    spans = [(*_span(pod), requests_of(pod)) for pod in pods]
    first = min((begun for begun, *_ in spans if begun), default=end)
    start = max(start, first - 10.0)
    step = max(PERIOD, (end - start) / _STEPS)
    moments = [start + step * number for number in range(ceil((end - start) / step))]
    counted = {name: _Steps(moments) for name in ("nodes", "waiting", "running")}
    room = {name: _Steps(moments) for name in (CPU, MEMORY)}
    used = {name: _Steps(moments) for name in (CPU, MEMORY)}
    for node in nodes:
        since, has = created(node) or 0.0, allocatable(node)
        counted["nodes"].add(since, inf)
        for name, total in room.items():
            total.add(since, inf, has.get(name, 0))
    for begun, bound, ended, amounts in spans:
        counted["waiting"].add(begun, ended if bound is None else min(bound, ended))
        if bound is not None:
            counted["running"].add(bound, ended)
            for name, total in used.items():
                total.add(bound, ended, amounts.get(name, 0))
    columns = {name: each.sums() for name, each in counted.items()}
    for name in (CPU, MEMORY):
        pairs = zip(used[name].sums(), room[name].sums(), strict=True)
        columns[name] = [100 * taken // has if has else 0 for taken, has in pairs]
    return [
        {"time": moment, **{name: column[number] for name, column in columns.items()}, "names": (), "fill": b""}
        for number, moment in enumerate(moments)
    ]


class _Steps:
    """Sums at some moments of amounts that each count for a while."""

    def __init__(self, moments: Sequence[float]) -> None:
        self._moments = moments
        self._steps = [0] * (len(moments) + 1)

    def add(self, since: float, until: float, amount: int = 1) -> None:
        first, last = bisect_left(self._moments, since), bisect_left(self._moments, until)
        if first < last:
            self._steps[first] += amount
            self._steps[last] -= amount

    def sums(self) -> list[int]:
        return list(accumulate(self._steps))[:-1]


def _span(pod: Document) -> tuple[float, float | None, float]:
    """When a pod was created, bound (None: not yet) and ended."""
    status = pod.get("status") or {}
    begun = created(pod) or 0.0
    bound = None
    if (pod.get("spec") or {}).get("nodeName"):
        condition = find_condition(status.get("conditions") or (), "PodScheduled") or {}
        bound = seconds(condition.get("lastTransitionTime")) or seconds(status.get("startTime")) or begun
    ended = inf
    if status.get("phase") in ("Succeeded", "Failed"):
        finished = [
            seconds(((each.get("state") or {}).get("terminated") or {}).get("finishedAt"))
            for each in status.get("containerStatuses") or ()
        ]
        ended = max((each for each in finished if each), default=bound or begun)
    return begun, bound, ended
