"""Conditions of reservations and migration jobs. Like Koordinator's, they have a probe time."""

from __future__ import annotations

from collections.abc import Iterable

from wharfinger.api.conditions import condition_document, new_condition, set_condition
from wharfinger.api.registry import Document
from wharfinger.api.views.meta import Condition

SUCCEEDED, EXPIRED = "Succeeded", "Expired"  # reasons of Ready=False, after which a reservation is deleted in time


def probed_condition(type: str, status: bool, reason: str, message: str, now: float) -> Document:
    condition = new_condition(type, status, reason, message, now)
    return {**condition, "lastProbeTime": condition["lastTransitionTime"]}


def with_condition(conditions: Iterable[Condition], condition: Document) -> list[Document]:
    """The conditions with one added or replaced.

    A changed reason also updates the transition time, because garbage collection counts from the moment a reservation
    expired or was used, whether or not it was ready before.
    """
    present = map(condition_document, conditions)
    return set_condition(present, condition, append=True, reason_is_transition=True)
