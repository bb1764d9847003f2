"""What a replay takes and what it returns. Values only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from wharfinger.api.configuration import Configuration
from wharfinger.api.keys import ObjectKey
from wharfinger.api.manifests import Manifest
from wharfinger.replay.decisions import DecisionWatch
from wharfinger.replay.measuring import PodLife, ReplayMeter


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    seed: int = 0
    until: float | None = None  # seconds since the start
    check: bool = False  # only check the recorded decisions: a pod is submitted when it was placed in the record
    ties: bool = True  # of equal nodes, take the expected one
    progress: Callable[[str, int, int], None] | None = None


@dataclass(frozen=True, slots=True)
class ReplayConfiguration:
    """A configuration, and objects that are applied on top of those of the trace."""

    name: str
    configuration: Configuration
    manifests: tuple[Manifest, ...] = ()


@dataclass(slots=True)
class ReplayRun:
    """What came out of one replay."""

    name: str
    seed: int
    start: float
    seconds: float  # virtual
    lives: dict[ObjectKey, PodLife]
    meter: ReplayMeter
    watch: DecisionWatch
    preemptions: int = 0
    notes: list[str] = field(default_factory=list)

    def nodes(self) -> dict[ObjectKey, str]:
        """The node of every pod that got one."""
        return {key: life.node for key, life in self.lives.items() if life.node}
