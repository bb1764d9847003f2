"""Stand-ins: items that take room on a node on behalf of an object that is not a Pod.

A stand-in is scheduled and counted like a pod, but it exists only inside the scheduler: nothing runs, and no volume is
mounted, until pods use the room that it keeps. A system that brings such objects makes the stand-ins
(`wharfinger.scheduler.schedulable`) and records which pods use them; everybody else reads that here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from wharfinger.api.keys import ObjectKey
from wharfinger.api.views import Pod


class StandIn(Pod, frozen=True):
    """The pod view of an object that is not a Pod. `metadata.uid` is the uid of that object.

    `metadata.name` contains a slash, so it never collides with the name of a pod.
    """

    kind: str = ""  # kind of the object
    object_name: str = ""  # name of the object
    room_priority: int = 0  # its priority where room that is nominated for other pods is concerned


def priority_for_room(pod: Pod) -> int:
    """The priority that decides whether room nominated for other pods is off limits for this one."""
    return pod.room_priority if isinstance(pod, StandIn) else pod.spec.priority or 0


def mounts_volumes(pod: Pod) -> bool:
    """Whether the pod mounts volumes. A stand-in only lists those that pods in its place will mount."""
    return bool(pod.spec.volumes) and not isinstance(pod, StandIn)


@dataclass(slots=True)
class StandInUsers:
    """Which stand-in each pod uses, by uid of the stand-in. Written only by the plugin that brings the stand-ins."""

    on_nodes: dict[ObjectKey, str] = field(default_factory=dict)  # pods that take room on a node, assumed ones included
    assumed: dict[ObjectKey, str] = field(default_factory=dict)  # pods that are reserved or being bound
