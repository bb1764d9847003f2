"""A scenario's times on a real cluster, whose clock nobody sets: every time that it speaks of is moved by as much as the
moment when it is played is later than its own start."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from wharfinger.api.manifests import Manifest
from wharfinger.api.registry import Document
from wharfinger.api.times import BadTime, format_time, parse_time
from wharfinger.scenario.document import Expectation, Scenario
from wharfinger.scenario.matchers import matcher
from wharfinger.systems.placement.rules.extras import TIME_WINDOWS

MINUTE, DAY = 60, 24 * 60
_MOMENT = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)(?!\w)")
_OF_DAY = re.compile(r"\d\d:\d\d")


def begins_at(scenario: Scenario, manifests: Sequence[Manifest], now: float) -> float:
    """When to begin: as soon as whole seconds allow, or, where it speaks of times of day, at the same second of a minute."""
    documents = [
        *(manifest.document for manifest in manifests),
        *(each for step in scenario.steps for each in step.apply),
    ]
    step = MINUTE if any(_windows(document) for document in documents) else 1
    return scenario.start + math.ceil((now - scenario.start) / step) * step


def of_day_elsewhere(scenario: Scenario) -> str:
    """A time of day that cannot be moved: one of another zone, or of some days of the week only."""
    for document in (each for step in scenario.steps for each in step.apply):
        for window in _windows(document):
            if window.get("timeZone", "UTC") != "UTC":
                return "timeZone"
            if window.get("days"):
                return "days"
    return ""


class Moved:
    """Whatever is said in a scenario's time, said in the cluster's, which is `by` seconds later."""

    def __init__(self, by: float) -> None:
        self._by = by

    def scenario(self, scenario: Scenario) -> Scenario:
        steps = (
            replace(
                step,
                apply=tuple(map(self.document, step.apply)),
                patches=tuple(replace(patch, merge=self.document(patch.merge)) for patch in step.patches),
                expect=tuple(map(self._expectation, step.expect)),
            )
            for step in scenario.steps
        )
        return replace(scenario, start=scenario.start + self._by, steps=tuple(steps))

    def document(self, document: Document) -> Document:
        moved: Document = self._value(document)
        if _windows(document):
            moved["metadata"]["annotations"][TIME_WINDOWS] = self._times_of_day(document)
        return moved

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return _MOMENT.sub(self._moment, value)
        if isinstance(value, dict):
            return {key: self._value(item) for key, item in value.items()}
        return [self._value(item) for item in value] if isinstance(value, list) else value

    def _moment(self, found: re.Match[str]) -> str:
        try:
            return format_time(parse_time(found[0]) + self._by)
        except (BadTime, OverflowError, OSError, ValueError):
            return found[0]

    def _times_of_day(self, document: Document) -> str:
        found = msgspec.json.decode(document["metadata"]["annotations"][TIME_WINDOWS])
        for window in found["windows"]:
            for key in ("start", "end"):
                hours, minutes = map(int, window[key].split(":"))
                later = (hours * 60 + minutes + round(self._by / MINUTE)) % DAY
                window[key] = f"{later // 60:02}:{later % 60:02}"
        return msgspec.json.encode(found).decode()

    def _expectation(self, expectation: Expectation) -> Expectation:
        fields = []
        for field in expectation.fields:
            wanted = self._value(field.wanted)
            fields.append(replace(field, wanted=wanted, matches=matcher(wanted, field.path.text)[0]))
        return replace(expectation, fields=tuple(fields))


def _windows(document: Document) -> list[Document]:
    """The time windows of a placement, if they are such that they can be read."""
    text = ((document.get("metadata") or {}).get("annotations") or {}).get(TIME_WINDOWS)
    if not isinstance(text, str):
        return []
    try:
        windows = msgspec.json.decode(text)["windows"]
    except (msgspec.DecodeError, KeyError, TypeError):
        return []
    return [
        window
        for window in (windows if isinstance(windows, list) else ())
        if isinstance(window, dict)
        and all(isinstance(window.get(key), str) and _OF_DAY.fullmatch(window[key]) for key in ("start", "end"))
    ]
