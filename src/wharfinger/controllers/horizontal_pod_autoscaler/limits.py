"""What of a proposed number of replicas is done now: stabilization windows, rates of change, minimum and maximum. Pure, but
for the history, which is kept in memory as upstream does and is lost with a restart."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from wharfinger.api.registry import Document

DOWNSCALE_STABILIZATION = 300  # seconds
_SCALE_UP_FACTOR, _SCALE_UP_MINIMUM = 2.0, 4.0
_MIN, _MAX = -(2**31), 2**31 - 1

WITHIN_RANGE = ("DesiredWithinRange", "the desired count is within the acceptable range")
TOO_FEW = ("TooFewReplicas", "the desired replica count is less than the minimum replica count")
TOO_MANY = ("TooManyReplicas", "the desired replica count is more than the maximum replica count")
SCALE_UP_LIMIT = ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate")
SCALE_DOWN_LIMIT = ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate")
SCALE_UP_STABILIZED = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
)
SCALE_DOWN_STABILIZED = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
)
READY_FOR_NEW_SCALE = ("ReadyForNewScale", "recommended size matches current size")


class ScaleHistory(msgspec.Struct):
    """What an autoscaler recommended and did lately, with times."""

    recommendations: list[tuple[float, int]] = msgspec.field(default_factory=list)
    ups: list[tuple[float, int]] = msgspec.field(default_factory=list)
    downs: list[tuple[float, int]] = msgspec.field(default_factory=list)

    def recommend(self, replicas: int, now: float, window: float) -> None:
        """Adds a recommendation, and forgets those that are older than the longest window."""
        self.recommendations = [each for each in self.recommendations if each[0] >= now - window]
        self.recommendations.append((now, replicas))

    def scaled(self, before: int, after: int, behavior: Document | None, now: float) -> None:
        if behavior is None:
            return  # rates of change are part of a behavior
        up = after > before
        rules = behavior["scaleUp" if up else "scaleDown"]
        longest = max((policy["periodSeconds"] for policy in rules.get("policies") or ()), default=0)
        kept = [each for each in (self.ups if up else self.downs) if each[0] >= now - longest]
        kept.append((now, abs(after - before)))
        if up:
            self.ups = kept
        else:
            self.downs = kept


class LimitedScale(msgspec.Struct, frozen=True):
    """`able` and `limited` are reason and message of AbleToScale and ScalingLimited; `limits` whether that is True."""

    replicas: int
    able: tuple[str, str]
    limited: tuple[str, str]
    limits: bool


def limited(
    history: ScaleHistory, current: int, proposed: int, least: int, most: int, behavior: Document | None, now: float
) -> LimitedScale:
    if behavior is None:
        return _by_default(history, current, proposed, least, most, now)
    return _by_behavior(history, current, proposed, least, most, behavior, now)


def _by_default(history: ScaleHistory, current: int, proposed: int, least: int, most: int, now: float) -> LimitedScale:
    recent = (replicas for time, replicas in history.recommendations if time >= now - DOWNSCALE_STABILIZATION)
    stabilized = max((proposed, *recent))
    history.recommend(proposed, now, DOWNSCALE_STABILIZATION)
    able = SCALE_DOWN_STABILIZED if stabilized != proposed else READY_FOR_NEW_SCALE
    ceiling = int(max(_SCALE_UP_FACTOR * current, _SCALE_UP_MINIMUM))
    allowed, reason = (ceiling, SCALE_UP_LIMIT) if most > ceiling else (most, TOO_MANY)
    if stabilized < least:
        desired, reason = least, TOO_FEW
    elif stabilized > allowed:
        desired = allowed
    else:
        desired, reason = stabilized, WITHIN_RANGE
    return LimitedScale(desired, able, reason, desired != stabilized)


def _by_behavior(
    history: ScaleHistory, current: int, proposed: int, least: int, most: int, behavior: Document, now: float
) -> LimitedScale:
    up, down = behavior["scaleUp"], behavior["scaleDown"]
    up_window = up.get("stabilizationWindowSeconds") or 0
    down_window = down.get("stabilizationWindowSeconds")
    down_window = DOWNSCALE_STABILIZATION if down_window is None else down_window
    lowest = min((proposed, *(count for time, count in history.recommendations if time > now - up_window)))
    highest = max((proposed, *(count for time, count in history.recommendations if time > now - down_window)))
    stabilized = min(max(current, lowest), highest)
    history.recommend(proposed, now, max(up_window, down_window))
    able = READY_FOR_NEW_SCALE
    if stabilized != proposed:
        able = SCALE_UP_STABILIZED if proposed >= current else SCALE_DOWN_STABILIZED
    desired, reason = _by_rate(history, current, stabilized, least, most, up, down, now)
    return LimitedScale(desired, able, reason, desired != stabilized)


def _by_rate(
    history: ScaleHistory,
    current: int,
    desired: int,
    least: int,
    most: int,
    up: Document,
    down: Document,
    now: float,
) -> tuple[int, tuple[str, str]]:
    if desired > current:
        ceiling = max(current, _ceiling(history, current, up, now))
        allowed, reason = (ceiling, SCALE_UP_LIMIT) if most > ceiling else (most, TOO_MANY)
        if desired > allowed:
            return allowed, reason
    elif desired < current:
        floor = min(current, _floor(history, current, down, now))
        allowed, reason = (floor, SCALE_DOWN_LIMIT) if least < floor else (least, TOO_FEW)
        if desired < allowed:
            return allowed, reason
    return desired, WITHIN_RANGE


def _ceiling(history: ScaleHistory, current: int, rules: Document, now: float) -> int:
    """The most replicas that the policies for scaling up allow."""
    chosen = rules.get("selectPolicy")
    if chosen == "Disabled":
        return current
    found = [
        start + value if counted else math.ceil(start * (1 + value / 100))
        for start, value, counted in _policies(history, current, rules, now)
    ]
    return min(found, default=_MAX) if chosen == "Min" else max(found, default=_MIN)


def _floor(history: ScaleHistory, current: int, rules: Document, now: float) -> int:
    """The fewest replicas that the policies for scaling down allow."""
    chosen = rules.get("selectPolicy")
    if chosen == "Disabled":
        return current
    found = [
        start - value if counted else int(start * (1 - value / 100))
        for start, value, counted in _policies(history, current, rules, now)
    ]
    return max(found, default=_MIN) if chosen == "Min" else min(found, default=_MAX)


def _policies(history: ScaleHistory, current: int, rules: Document, now: float) -> Iterator[tuple[int, int, bool]]:
    """Of each policy: the replicas at the start of its period, by how much they may change, and whether that is a number
    of pods, not per cent."""
    for policy in rules.get("policies") or ():
        start = _at_start_of(history, current, policy["periodSeconds"], now)
        yield start, policy["value"], policy["type"] == "Pods"


def _at_start_of(history: ScaleHistory, current: int, period: int, now: float) -> int:
    """The replicas at the start of a period that ends now."""
    added = sum(count for time, count in history.ups if time > now - period)
    removed = sum(count for time, count in history.downs if time > now - period)
    return current - added + removed
