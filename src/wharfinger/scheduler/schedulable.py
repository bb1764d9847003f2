"""What the scheduler places on nodes: pods, and objects of other kinds for which a system brings a `Schedulable`.

The scheduling state handles all of them alike, as pod views; a kind that is not Pod gives it stand-ins
(`wharfinger.framework.stand_ins`). What differs from kind to kind is here: how to look an item up again, how to bind it,
and how to report that it cannot be placed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import msgspec

from wharfinger.api.registry import Resource
from wharfinger.api.views import Pod
from wharfinger.framework.stand_ins import StandIn
from wharfinger.scheduler.instructions import Instruction
from wharfinger.system import systems

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from wharfinger.client.interface import Client
    from wharfinger.client.timers import Clock
    from wharfinger.engine import Engine
    from wharfinger.engine.outcome import Decision, Diagnosis

T_co = TypeVar("T_co", covariant=True)


class ObjectCache(Protocol[T_co]):
    """The objects of one kind as the API server last reported them."""

    def get(self, name: str, namespace: str = "") -> T_co | None: ...
    def __iter__(self) -> Iterator[T_co]: ...


class KeptRoom(Enum):
    """What became of the room that evictions are about to free for a pod."""

    RESERVED = "reserved"  # it is kept for the pod
    OPEN = "open"  # nothing is kept: whoever is scheduled first gets it
    TAKEN = "taken"  # it belongs to somebody else, so evictions would not help


class ItemChange(msgspec.Struct, frozen=True):
    """What a change of an object means for the queue."""

    before: Pod | None = None  # the item that needed a node before the change
    after: Pod | None = None  # the item that needs a node now
    released: Pod | None = None  # an item that takes less room than before, or none
    instructions: Iterable[Instruction] = ()


class SchedulerContext(msgspec.Struct, frozen=True):
    """What a `Schedulable` works with."""

    client: Client
    clock: Clock
    engine: Engine
    objects: ObjectCache[Any] | None  # the objects of its kind; None where no plugin observes the kind


class Schedulable(ABC):
    """One kind of objects that need room on a node."""

    resource: ClassVar[Resource]
    view: ClassVar[type[Any]]

    def __init__(self, context: SchedulerContext) -> None:
        self.context = context

    # -- what controllers and plugins of other systems ask, without a scheduler

    @staticmethod
    def stand_in(found: Any) -> StandIn | None:
        """The stand-in for an object that has or needs a node; None for all others."""
        return None

    @staticmethod
    def used_by(pod: Pod) -> str:
        """The uid of the object whose room a pod uses; empty for none."""
        return ""

    # -- questions of the scheduling state

    @abstractmethod
    def current(self, item: Pod) -> Pod | None:
        """The item as the API server has it now; None if it is gone, replaced, or needs no node any more."""

    def successor(self, item: Pod) -> Pod | None:
        """An item without a node that replaced this one under the same name."""
        return None

    @abstractmethod
    def bound(self, item: Pod) -> bool:
        """Whether the API server reports it bound."""

    @abstractmethod
    def title(self, item: Pod) -> str:
        """How messages name the item."""

    @abstractmethod
    def described(self, item: Pod) -> Any:
        """The object that events about the item are recorded on; None if it is gone."""

    @abstractmethod
    def unschedulable(self, item: Pod, reason: str, message: str, nominated_node: str | None) -> Iterable[Instruction]:
        """Reports that no node was found. A nominated node of None leaves the nomination as it is; empty clears it."""

    def may_preempt(self, item: Pod) -> bool:
        """Whether others may be evicted for the item."""
        return True

    def keeps_room_for(self, pod: Pod) -> bool:
        """Whether room is already kept, or about to be, for a pod of any kind for which others were evicted."""
        return False

    # -- explanations and metrics

    def note(self, pod: Pod, diagnosis: Diagnosis) -> str:
        """What objects of the kind have to do with the refusal of a pod of any kind, as a sentence; empty for nothing."""
        return ""

    def explanations(self, pod: Pod, decision: Decision) -> Iterable[str]:
        """What `wharf explain` tells about a pod of any kind. The engine need not be usable afterwards."""
        note = "" if decision.diagnosis is None else self.note(pod, decision.diagnosis)
        return (note.rstrip("."),) if note else ()

    def metrics(self) -> Iterable[Metric]:
        """Metrics of the objects of the kind, computed when they are scraped."""
        return ()

    # -- events

    def changed(self, old: Any, new: Any) -> ItemChange:
        """An object of the kind was added (`old` is None), updated, or deleted (`new` is None)."""
        return ItemChange()

    @property
    def has_woken(self) -> bool:
        """Whether `wakes` should be asked although no object of the kind changed."""
        return False

    def wakes(self) -> Callable[[Pod], bool] | None:
        """Which unschedulable pods to retry after the changes since the last call; None for none."""
        return None

    def synced(self) -> Iterable[Instruction]:
        """Every object is known, and this scheduler is the one that acts."""
        return ()

    def room_changed(self) -> Iterable[Instruction]:
        """Something in the cluster changed that may have made room on a node."""
        return ()

    # -- requests to the API server, made by the executor

    @abstractmethod
    async def bind(self, item: Pod, node: str, annotations: Mapping[str, str]) -> None:
        """Writes that the item goes to the node. Raises ApiError; NotFound if the object is gone."""

    @abstractmethod
    async def is_on(self, item: Pod, node: str) -> bool:
        """Whether the API server has the item on the node. Raises ApiError; NotFound if the object is gone."""

    async def keep_room(self, pod: Pod, node: str, victims: Sequence[Pod]) -> KeptRoom:
        """Called before the victims are evicted from a node for this pod."""
        return KeptRoom.OPEN

    async def evictions_failed(self, pod: Pod) -> None:
        """Not all victims could be evicted, so that no room is being made for this pod."""
        return


class SchedulableKinds:
    """What one scheduler places: pods, and the other kinds."""

    def __init__(self, pods: Schedulable, others: Iterable[Schedulable] = ()) -> None:
        self.pods = pods
        self.others = {each.resource.kind: each for each in others}

    def of(self, item: Pod) -> Schedulable:
        return self.others[item.kind] if isinstance(item, StandIn) else self.pods


def schedulables() -> tuple[type[Schedulable], ...]:
    """What can be scheduled besides pods."""
    return tuple(each for system in systems() for each in system.schedulables())
