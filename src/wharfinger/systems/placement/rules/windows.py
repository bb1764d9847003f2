"""Time windows: whether one is open, and when that changes next."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from wharfinger.systems.placement.rules.extras import Window

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def open_at(windows: Sequence[Window], now: float) -> bool:
    return any(start <= now < end for window in windows for start, end in _spans(window, now))


def next_change(windows: Sequence[Window], now: float) -> float:
    """The next instant at which a window opens or closes."""
    return min(
        (edge for window in windows for span in _spans(window, now) for edge in span if edge > now), default=math.inf
    )


def _spans(window: Window, now: float) -> list[tuple[float, float]]:
    """The intervals of a window on the days around now, in seconds since the epoch."""
    from zoneinfo import ZoneInfo  # expensive to load, and rarely needed

    zone = ZoneInfo(window.time_zone)
    today = datetime.fromtimestamp(now, UTC).astimezone(zone).date()
    start_hour, start_minute = map(int, window.start.split(":"))
    end_hour, end_minute = map(int, window.end.split(":"))
    spans = []
    for offset in range(-1, 8):  # yesterday's window may extend into today; a weekly one may be seven days away
        day = today + timedelta(days=offset)
        if window.days and _DAYS[day.weekday()] not in window.days:
            continue
        start = datetime(day.year, day.month, day.day, start_hour, start_minute, tzinfo=zone)
        last = day + timedelta(days=1) if window.end <= window.start else day
        end = datetime(last.year, last.month, last.day, end_hour, end_minute, tzinfo=zone)
        spans.append((start.timestamp(), end.timestamp()))
    return spans
