"""Conditions of reservations and migration jobs, in Koordinator's form: with a probe time."""

from __future__ import annotations

from collections.abc import Iterable

from wharfinger.api.conditions import condition_document, new_condition, set_condition
from wharfinger.api.registry import Document
from wharfinger.api.views.meta import Condition


def probed_condition(type: str, status: bool, reason: str, message: str, now: float) -> Document:
    condition = new_condition(type, status, reason, message, now)
    return {**condition, "lastProbeTime": condition["lastTransitionTime"]}


def with_condition(conditions: Iterable[Condition], condition: Document) -> list[Document]:
    """The conditions with one replaced. A new reason counts as a transition: an expired or used reservation is kept for
    some time after that, whether it was ready before or not."""
    present = map(condition_document, conditions)
    return set_condition(present, condition, append=True, reason_is_transition=True)
