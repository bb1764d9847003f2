"""The recorded past: samples of the queue and of utilisation, kept in memory while the dashboard runs, and what objects
tell about the time before it started."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable

from wharfinger.api.conditions import find_condition
from wharfinger.api.kinds.builtin import NODES, PODS
from wharfinger.api.registry import Document
from wharfinger.client.tasks import OwnedTask
from wharfinger.dashboard.state import ClusterState
from wharfinger.dashboard.usage import allocatable, is_waiting, pod_requests
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
        began = self._now()
        self.samples.extend(past_samples(self._state.objects(PODS), self._state.objects(NODES), began - BEFORE, began))
        super().start()

    async def _run(self) -> None:
        while True:
            self.sample()
            await asyncio.sleep(PERIOD)

    def sample(self) -> None:
        usage, nodes, pods = self._state.usage, self._state.objects(NODES), self._state.objects(PODS)
        room = {node["metadata"]["name"]: allocatable(node) for node in nodes}
        used = [usage.requested.get(name, {}) for name in room]
        self.samples.append(
            {
                "time": self._now(),
                "nodes": len(room),
                "waiting": sum(1 for pod in pods if is_waiting(pod)),
                "running": sum(len(usage.pods.get(name, ())) for name in room),
                "cpu": share(used, room.values(), "cpu"),
                "memory": share(used, room.values(), "memory"),
                "fill": bytes(
                    min(255, share((usage.requested.get(name, {}),), (has,), "cpu"))
                    for name, has in sorted(room.items())[:_FILLED]
                ),
            }
        )

    def at(self, moment: float) -> Document | None:
        """The sample at or after a moment."""
        found = list(self.samples)
        position = bisect_left([each["time"] for each in found], moment)
        return found[min(position, len(found) - 1)] if found else None


def past_samples(pods: Iterable[Document], nodes: Iterable[Document], start: float, end: float) -> list[Document]:
    """What objects tell about the time before: when pods were created, got their nodes, and ended. Pods and nodes that
    are gone leave no trace."""
    spans = [_span(pod) for pod in pods]
    born = [(created(node) or 0.0, allocatable(node)) for node in nodes]
    first = min((begun for begun, *_ in spans if begun), default=end)
    start = max(start, first - 10.0)
    step = max(PERIOD, (end - start) / _STEPS)
    samples, moment = [], start
    while moment < end:
        room = [has for since, has in born if since <= moment]
        running = [amounts for _, bound, ended, amounts in spans if bound is not None and bound <= moment < ended]
        waiting = sum(
            1 for begun, bound, ended, _ in spans if begun <= moment < ended and (bound is None or moment < bound)
        )
        samples.append(
            {
                "time": moment,
                "nodes": len(room),
                "waiting": waiting,
                "running": len(running),
                "cpu": share(running, room, "cpu"),
                "memory": share(running, room, "memory"),
                "fill": b"",
            }
        )
        moment += step
    return samples


def _span(pod: Document) -> tuple[float, float | None, float, dict[str, int]]:
    """When a pod was created, bound (None: not yet) and ended."""
    status = pod.get("status") or {}
    begun = created(pod) or 0.0
    bound = None
    if (pod.get("spec") or {}).get("nodeName"):
        condition = find_condition(status.get("conditions") or (), "PodScheduled") or {}
        bound = seconds(condition.get("lastTransitionTime")) or seconds(status.get("startTime")) or begun
    ended = float("inf")
    if status.get("phase") in ("Succeeded", "Failed"):
        finished = [
            seconds(((each.get("state") or {}).get("terminated") or {}).get("finishedAt"))
            for each in status.get("containerStatuses") or ()
        ]
        ended = max((each for each in finished if each), default=bound or begun)
    return begun, bound, ended, pod_requests(pod)
