"""A scenario's times on a running cluster, whose clock cannot be set: all of them are moved by the difference between the
scenario's own start and the time when it is played."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from wharfinger.api.manifests import Manifest
from wharfinger.api.registry import Document
from wharfinger.api.times import BadTime, format_time, parse_time
from wharfinger.scenario.document import Expectation, Scenario
from wharfinger.scenario.extension import Extensions
from wharfinger.scenario.matchers import matcher

_MINUTE = 60  # seconds
_MOMENT = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)(?!\w)")


def begins_at(scenario: Scenario, manifests: Sequence[Manifest], now: float) -> float:
    """When to begin: at the next whole second, or, if the scenario has times of day, at the same second of a minute."""
    documents = [
        *(manifest.document for manifest in manifests),
        *(each for step in scenario.steps for each in step.apply),
    ]
    step = _MINUTE if any(map(Extensions().has_times_of_day, documents)) else 1
    return scenario.start + math.ceil((now - scenario.start) / step) * step


class Moved:
    """Moves the times of documents and scenarios by so many seconds."""

    def __init__(self, by: float) -> None:
        self._by = by
        self._extensions = Extensions()

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
        return self._extensions.moved(moved, self._by)

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

    def _expectation(self, expectation: Expectation) -> Expectation:
        fields = []
        for field in expectation.fields:
            wanted = self._value(field.wanted)
            fields.append(replace(field, wanted=wanted, matches=matcher(wanted, field.path.text)[0]))
        return replace(expectation, fields=tuple(fields))
