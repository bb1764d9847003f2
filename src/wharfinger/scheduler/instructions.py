"""What the scheduling state asks to have done. Plain values: the executor carries them out and reports the results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from wharfinger.api.keys import ObjectKey
from wharfinger.api.registry import Document, Resource
from wharfinger.api.views import Pod
from wharfinger.framework.prebinding import Preparation, Write

if TYPE_CHECKING:
    from wharfinger.scheduler.queue import QueuedPod

Metric = Literal["pod_added", "foreign_pod", "preemption"]
"""An item was added to the queue; another scheduler bound a pod to a node of ours; preemption was tried."""


class Wake(Struct, frozen=True, eq=False):
    """Something may be ready to be scheduled."""


class Bind(Struct, frozen=True, eq=False):
    """Bind an assumed item to its node, after what plugins want done first. `bound` or `bind_failed` follows."""

    item: QueuedPod
    node: str
    annotations: Mapping[str, str]
    preparations: Sequence[tuple[str, Preparation]] = ()  # by plugin


class Evict(Struct, frozen=True, eq=False):
    """Evict pods from a node for an item that is nominated there. `evicted` follows."""

    item: QueuedPod
    node: str
    victims: Sequence[Pod]
    refused_by: frozenset[str]  # the plugins that refused the item before


class PatchPodStatus(Struct, frozen=True, eq=False):
    """Set the condition PodScheduled to False, and the nominated node."""

    pod: Pod
    reason: str
    message: str
    nominated_node: str | None = None  # None leaves it as it is; empty clears it


class ClearNomination(Struct, frozen=True, eq=False):
    """Remove the nominated node from a pod's status."""

    pod: Pod


class PatchStatus(Struct, frozen=True, eq=False):
    """Patch the status of an object that is not a Pod.

    `change` derives the members to write from the object as it is by then and the time, or returns None if there is
    nothing to write any more. `done` is told whether the status is as wanted, and may ask for more.
    """

    resource: Resource
    view: type[Any]
    name: str
    change: Callable[[Any, float], Document | None]
    done: Callable[[bool], Iterable[Instruction]] | None = None
    newest_only: bool = False  # replaces an earlier one for the same object that was not sent yet


class RecordEvent(Struct, frozen=True, eq=False):
    """Record an event about an object."""

    resource: Resource
    about: Any  # a view
    type: Literal["Normal", "Warning"]
    reason: str
    message: str


class Forget(Struct, frozen=True, eq=False):
    """A pod was bound elsewhere or is gone: drop status patches that were not sent yet, and end its preparations."""

    key: ObjectKey


class CarryOut(Struct, frozen=True, eq=False):
    """Write what plugins want changed after an attempt found no node for an item."""

    key: ObjectKey
    writes: Sequence[Write]


class Count(Struct, frozen=True, eq=False):
    """Add one to a metric."""

    metric: Metric


Instruction = (
    Wake | Bind | Evict | PatchPodStatus | ClearNomination | PatchStatus | RecordEvent | Forget | CarryOut | Count
)

WAKE = Wake()


class Outbox(list[Instruction]):
    """Instructions that were not taken yet."""

    def take(self) -> list[Instruction]:
        taken = self[:]
        self.clear()
        return taken
