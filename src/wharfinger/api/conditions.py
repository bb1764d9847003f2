"""Conditions as documents: making one, and putting it among others."""

from __future__ import annotations

from collections.abc import Iterable

from wharfinger.api.registry import Document
from wharfinger.api.times import format_time
from wharfinger.api.views import Condition

_WIRE = {
    "type": "type",
    "status": "status",
    "reason": "reason",
    "message": "message",
    "last_probe_time": "lastProbeTime",
    "last_transition_time": "lastTransitionTime",
}


def condition(kind: str, status: bool, reason: str, message: str, now: float) -> Document:
    """One with a probe time, as reservations have them."""
    moment = format_time(now)
    return {
        "type": kind,
        "status": "True" if status else "False",
        "reason": reason,
        "message": message,
        "lastProbeTime": moment,
        "lastTransitionTime": moment,
    }


def put(conditions: Iterable[Condition], new: Document) -> list[Document]:
    """The conditions with one put in; its transition time stays while status and reason do."""
    kept = []
    for each in conditions:
        if each.type == new["type"]:
            if each.status == new["status"] and each.reason == new["reason"] and each.last_transition_time:
                new = {**new, "lastTransitionTime": each.last_transition_time}
        else:
            kept.append({wire: value for name, wire in _WIRE.items() if (value := getattr(each, name))})
    return [*kept, new]
