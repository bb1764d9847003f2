"""A trace: which nodes there were, and which work arrived and left, with the times of both. Values only.

`wharfinger.replay.tables` reads and writes traces as tables, `wharfinger.replay.k8s_events` reads what `wharf record`
wrote.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from wharfinger.api.configuration import Configuration
from wharfinger.api.registry import Document


class TraceMoment(NamedTuple):
    """When something happened: seconds since the epoch, and a number that orders what happened at the same time."""

    time: float
    order: int = 0


@dataclass(slots=True)
class NodePeriod:
    """A time in which a node was there and did not change. If another period of the node follows at once, the node was
    changed; otherwise it was removed."""

    name: str
    document: Document  # a Node
    start: TraceMoment
    end: TraceMoment | None = None  # None: it stayed
    price: float = 0.0  # for an hour
    source: str = ""  # where the row is, for messages


@dataclass(slots=True)
class TracedPod:
    """A pod and its life as it was recorded. What is not known is None, and left to the replay."""

    document: Document  # a Pod as it was created
    arrival: TraceMoment
    run_time: float | None = None  # seconds from bound to the end
    departure: TraceMoment | None = None  # when it ended, unless a run time is given
    stopping: TraceMoment | None = None  # when its deletion began
    phase: str = ""  # Succeeded or Failed; empty: it was deleted while it ran
    preempted: bool = False  # the scheduler ended it, to make room for another pod
    node: str = ""  # where it ran
    bound: TraceMoment | None = None
    submitted: TraceMoment | None = None
    """When the scheduler first decided about it, if that is known: a pod that was created while the scheduler was busy or
    away was decided with what was known later. None: at its arrival."""
    present: bool = False  # it ran already when the trace began, so no decision was recorded
    owner: str = ""  # `Kind/name` of the workload it belongs to
    source: str = ""

    @property
    def namespace(self) -> str:
        return str(self.document["metadata"].get("namespace") or "default")

    @property
    def name(self) -> str:
        return str(self.document["metadata"]["name"])

    @property
    def title(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(slots=True)
class TracedObject:
    """Another object that decisions depend on was created, changed or deleted."""

    at: TraceMoment
    document: Document
    deleted: bool = False
    source: str = ""


@dataclass(slots=True)
class Trace:
    name: str
    start: float  # seconds since the epoch
    nodes: list[NodePeriod] = field(default_factory=list)
    pods: list[TracedPod] = field(default_factory=list)
    objects: list[TracedObject] = field(default_factory=list)
    end: float | None = None  # when recording ended; None: the replay ends with the last pod
    configuration: Configuration | None = None  # that of the control plane that was recorded
    notes: list[str] = field(default_factory=list)  # what the trace does not know

    def last_moment(self) -> float:
        """The last time that the trace mentions."""
        times = [self.start, *(pod.arrival.time for pod in self.pods)]
        times += [pod.departure.time for pod in self.pods if pod.departure is not None]
        times += [period.end.time for period in self.nodes if period.end is not None]
        times += [change.at.time for change in self.objects]
        return max(times) if self.end is None else max(self.end, *times)
