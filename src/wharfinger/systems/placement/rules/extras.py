"""Wharfinger's extensions of Placement: `wharfinger.dev/…` annotations with JSON values, all optional.

`docs/placement.md` documents the schema. `parse_extras` reports every error by annotation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, field

from wharfinger.api.fields import FieldError, invalid
from wharfinger.systems.placement.kinds.views import ClusterSelector

PREFIX = "wharfinger.dev/"
REPLICAS = PREFIX + "replicas"  # on a Placement: how to divide; on its decisions: each cluster's share
TIE_BREAK = PREFIX + "tie-break"
UNSELECTED_REASONS = PREFIX + "unselected-reasons"
TIME_WINDOWS = PREFIX + "time-windows"
MINIMUM_GAIN = PREFIX + "minimum-gain"
PREFER_NO_SELECT = PREFIX + "prefer-no-select-weight"
CAPACITY = PREFIX + "capacity"

T = TypeVar("T")
_Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class _Extra(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Base class of the annotations that are JSON objects."""


class Replicas(_Extra, frozen=True):
    """Divide `total` replicas over the selected clusters."""

    total: _Count
    strategy: Literal["Weighted", "Aggregated"] = "Weighted"
    weight_by: Literal["Equal", "Score", "AllocatableCPU", "AllocatableMemory"] = "Equal"
    weights: dict[str, Annotated[int, Meta(ge=0)]] = {}  # by cluster name; overrides weightBy
    max_per_cluster: Annotated[int, Meta(ge=1)] | None = None
    min_per_cluster: _Count = 0

    @property
    def weighs_by_resource(self) -> bool:
        return not self.weights and self.weight_by.startswith("Allocatable")


class Window(_Extra, frozen=True):
    """Daily, or on the given days, from `start` to `end`; past midnight if `end` is not later than `start`."""

    start: Annotated[str, Meta(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")]
    end: Annotated[str, Meta(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")]
    days: tuple[Literal["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"], ...] = ()
    time_zone: str = "UTC"


class TimeWindows(_Extra, frozen=True):
    """Clusters that match `clusterSelector` (default: all) can be selected only inside a window."""

    windows: Annotated[tuple[Window, ...], Meta(min_length=1)]
    cluster_selector: ClusterSelector | None = None
    outside: Literal["Remove", "Keep"] = "Remove"  # what to do with selected clusters outside all windows


class CapacityNeed(_Extra, frozen=True):
    """Clusters can be selected only if enough pods of a template fit there, as their agents say."""

    pod_template: Annotated[str, Meta(min_length=1, max_length=180)]  # in the namespace of the Placement
    replicas: Annotated[int, Meta(ge=1, le=10_000)] = 1  # how many the agents count
    min_per_cluster: Annotated[int, Meta(ge=1, le=10_000)] | None = None  # default: all replicas
    count: Literal["Now", "AfterScaleUp"] = "Now"
    when_selected: Literal["Keep", "Remove"] = "Keep"  # a selected cluster whose room the workload itself has taken

    @property
    def minimum(self) -> int:
        return self.replicas if self.min_per_cluster is None else self.min_per_cluster


class Extras(msgspec.Struct, frozen=True, kw_only=True):
    replicas: Replicas | None = None
    fair_tie_break: bool = False
    unselected_reasons: int = 0  # how many clusters the summary names; 0 disables it
    time_windows: TimeWindows | None = None
    minimum_gain: int = 0
    capacity: CapacityNeed | None = None
    prefer_no_select_weight: int = 0
    faults: tuple[FieldError, ...] = field(default_factory=tuple)


NONE = Extras()


def parse_extras(annotations: Mapping[str, str]) -> Extras:
    if not any(key.startswith(PREFIX) for key in annotations):
        return NONE
    faults: list[FieldError] = []

    def read(key: str, kind: Any, default: Any) -> Any:
        if key not in annotations:
            return default
        try:
            return msgspec.json.decode(annotations[key], type=kind)
        except msgspec.MsgspecError as error:
            faults.append(_fault(key, annotations[key], str(error)))
            return default

    windows: TimeWindows | None = read(TIME_WINDOWS, TimeWindows, None)
    for window in windows.windows if windows else ():
        if not _is_time_zone(window.time_zone):
            faults.append(_fault(TIME_WINDOWS, annotations[TIME_WINDOWS], f"unknown time zone {window.time_zone!r}"))
    capacity: CapacityNeed | None = read(CAPACITY, CapacityNeed, None)
    if capacity is not None and capacity.minimum > capacity.replicas:
        faults.append(_fault(CAPACITY, annotations[CAPACITY], "minPerCluster must be at most replicas"))
    tie_break = annotations.get(TIE_BREAK, "Name")
    if tie_break not in ("Name", "Fair"):
        faults.append(_fault(TIE_BREAK, tie_break, "must be Name or Fair"))
    return Extras(
        replicas=read(REPLICAS, Replicas, None),
        fair_tie_break=tie_break == "Fair",
        unselected_reasons=read(UNSELECTED_REASONS, Annotated[int, Meta(ge=0, le=100)], 0),
        time_windows=windows,
        capacity=capacity,
        minimum_gain=read(MINIMUM_GAIN, Annotated[int, Meta(ge=0, le=1_000_000)], 0),
        prefer_no_select_weight=read(PREFER_NO_SELECT, Annotated[int, Meta(ge=0, le=10)], 0),
        faults=tuple(faults),
    )


def _fault(key: str, value: str, detail: str) -> FieldError:
    return invalid(f"metadata.annotations[{key}]", value, detail)


def _is_time_zone(name: str) -> bool:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # expensive to load, and rarely needed

    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True
