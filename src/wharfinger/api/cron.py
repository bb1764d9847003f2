"""Cron schedules: five fields or a macro, in a time zone. Pure.

After robfig/cron, which Kubernetes uses: when both the day of the month and the day of the week are restricted, either
is enough. Local times that do not exist because of daylight saving are skipped; those that occur twice count twice.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo

import msgspec

from wharfinger.api.numbers import parse_int64
from wharfinger.api.times import BadTime, parse_duration

_MONTHS = {
    name: index
    for index, name in enumerate(
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], 1
    )
}
_DAYS = {name: index for index, name in enumerate(["sun", "mon", "tue", "wed", "thu", "fri", "sat"])}
_MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_BOUNDS: tuple[tuple[int, int, dict[str, int]], ...] = (
    (0, 59, {}),
    (0, 23, {}),
    (1, 31, {}),
    (1, 12, _MONTHS),
    (0, 6, _DAYS),
)
_SEARCH_YEARS = 5
_MINUTE, _HOUR = 60, 3600


class BadSchedule(ValueError):
    """The text is not a cron schedule, or the time zone is unknown."""


class Schedule(msgspec.Struct, frozen=True):
    """The allowed values of each field; for `@every` only `every` is set."""

    minutes: frozenset[int] = frozenset()
    hours: frozenset[int] = frozenset()
    days: frozenset[int] = frozenset()
    months: frozenset[int] = frozenset()
    weekdays: frozenset[int] = frozenset()
    any_day: bool = True  # the day of the month is `*`
    any_weekday: bool = True
    every: float = 0.0
    zone: tzinfo = UTC

    def next(self, after: float) -> float | None:
        """The first scheduled time after `moment`, in seconds since the epoch; None if there is none."""
        if self.every:
            return float(int(after) + int(self.every))
        moment = self._at((int(after) // _MINUTE + 1) * _MINUTE)
        limit = moment.year + _SEARCH_YEARS
        while moment.year <= limit:
            if moment.month not in self.months:
                following = moment.replace(day=1) + timedelta(days=32)
                moment = self._midnight(following.year, following.month, 1)
            elif not self._day_matches(moment):
                following = moment + timedelta(days=1)
                moment = self._midnight(following.year, following.month, following.day)
            elif moment.hour not in self.hours:
                moment = self._at(int(moment.timestamp()) + _HOUR - moment.minute * _MINUTE)
            elif moment.minute not in self.minutes:
                moment = self._at(int(moment.timestamp()) + _MINUTE)
            else:
                return moment.timestamp()
        return None

    def _day_matches(self, moment: datetime) -> bool:
        by_day = moment.day in self.days
        by_weekday = moment.isoweekday() % 7 in self.weekdays
        return by_day and by_weekday if self.any_day or self.any_weekday else by_day or by_weekday

    def _at(self, second: int) -> datetime:
        return datetime.fromtimestamp(second, self.zone)

    def _midnight(self, year: int, month: int, day: int) -> datetime:
        """The first moment of a day; later than midnight if daylight saving skips midnight."""
        return self._at(int(datetime(year, month, day, tzinfo=self.zone).timestamp()))


def parse_schedule(text: str, zone: str | None = None) -> Schedule:
    match = re.match(r"(?:CRON_)?TZ=(\S+)\s+", text)
    if match is not None:
        zone, text = match[1], text[match.end() :]
    where = zone_of(zone)
    if text.startswith("@every "):
        try:
            return Schedule(every=max(1.0, parse_duration(text.removeprefix("@every "))), zone=where)
        except BadTime as error:
            detail = f"time: invalid duration {_quoted(text.removeprefix('@every '))}"
            raise BadSchedule(f"failed to parse duration {text}: {detail}") from error
    if text.startswith("@") and text not in _MACROS:
        raise BadSchedule(f"unrecognized descriptor: {text}")
    fields = _MACROS.get(text, text).split()
    if len(fields) != 5:
        raise BadSchedule(f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]")
    sets = [_field(part, *bounds) for part, bounds in zip(fields, _BOUNDS)]
    minutes, hours, days, months, weekdays = sets
    return Schedule(minutes, hours, days, months, weekdays, _is_star(fields[2]), _is_star(fields[4]), zone=where)


def zone_of(name: str | None) -> tzinfo:
    """The time zone of that name; UTC if the name is empty."""
    if not name:
        return UTC
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise BadSchedule(f"unknown time zone {name}") from error


def _is_star(text: str) -> bool:
    return any(part.split("/")[0] in ("*", "?") and part.partition("/")[2] in ("", "1") for part in text.split(","))


def _field(text: str, low: int, high: int, names: dict[str, int]) -> frozenset[int]:
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        found.update(_range(part, low, high, names))
    return frozenset(found)


def _range(part: str, low: int, high: int, names: dict[str, int]) -> range:
    spread, *steps = part.split("/")
    first_text, *rest = spread.split("-")
    if first_text in ("*", "?"):
        first, last = low, high
    else:
        first = last = _number(first_text, names)
        if len(rest) > 1:
            raise BadSchedule(f"too many hyphens: {part}")
        if rest:
            last = _number(rest[0], names)
    if len(steps) > 1:
        raise BadSchedule(f"too many slashes: {part}")
    step = _number(steps[0], {}) if steps else 1
    if steps and not rest:
        last = high  # N/step starts at N
    if first < low:
        raise BadSchedule(f"beginning of range ({first}) below minimum ({low}): {part}")
    if last > high:
        raise BadSchedule(f"end of range ({last}) above maximum ({high}): {part}")
    if first > last:
        raise BadSchedule(f"beginning of range ({first}) beyond end of range ({last}): {part}")
    if step == 0:
        raise BadSchedule(f"step of range should be a positive number: {part}")
    return range(first, last + 1, step)


def _number(text: str, names: dict[str, int]) -> int:
    if text.lower() in names:
        return names[text.lower()]
    number = parse_int64(text)
    if number is None:
        raise BadSchedule(f"failed to parse int from {text}: strconv.Atoi: parsing {_quoted(text)}: invalid syntax")
    if number < 0:
        raise BadSchedule(f"negative number ({number}) not allowed: {text}")
    return number


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


MISSED_LIMIT = 100


def latest_missed(schedule: Schedule, after: float, now: float) -> tuple[float | None, int]:
    """The latest scheduled time in (after, now], and how many there are up to a limit."""
    latest, count, moment = None, 0, schedule.next(after)
    if moment is None or moment > now:
        return None, 0
    second = schedule.next(moment)
    interval = second - moment if second is not None else 0.0
    if interval and (now - moment) / interval > 10 * MISSED_LIMIT:
        # Only the latest time matters: search a window that ends now, and widen it while it is empty.
        count, window = MISSED_LIMIT + 1, MISSED_LIMIT * interval
        while now - window > after:
            near = schedule.next(now - window)
            if near is not None and near <= now:
                moment = near
                break
            window *= 10
    while moment is not None and moment <= now:
        latest, count = moment, count + 1
        moment = schedule.next(moment)
    return latest, count
