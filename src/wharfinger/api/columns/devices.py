"""Columns of the kinds of dynamic resource allocation."""

from __future__ import annotations

from wharfinger.api.columns.cells import AGE, computed, since, spec, status
from wharfinger.api.registry import Column, Document

DEVICE_CLASS_COLUMNS = (AGE,)
RESOURCE_CLAIM_TEMPLATE_COLUMNS = (AGE,)


def _claim_state(claim: Document) -> str:
    deleted = bool((claim.get("metadata") or {}).get("deletionTimestamp"))
    states = ["deleted"] if deleted else []
    if status(claim).get("allocation") is None:
        states += [] if deleted else ["pending"]
    else:
        states.append("allocated")
        if status(claim).get("reservedFor"):
            states.append("reserved")
    return ",".join(states)


RESOURCE_CLAIM_COLUMNS = (computed("State", _claim_state), AGE)

RESOURCE_SLICE_COLUMNS = (
    computed("Node", lambda slice: spec(slice).get("nodeName") or ""),
    Column("Driver", "spec.driver"),
    computed("Pool", lambda slice: (spec(slice).get("pool") or {}).get("name") or ""),
    AGE,
)

DEVICE_TAINT_RULE_COLUMNS = (
    computed("Key", lambda rule: _taint(rule).get("key") or ""),
    computed("Value", lambda rule: _taint(rule).get("value") or ""),
    computed("Effect", lambda rule: _taint(rule).get("effect") or ""),
    Column("TimeAdded", cell=lambda rule, now: since(_taint(rule).get("timeAdded"), now)),
    AGE,
)


def _taint(rule: Document) -> Document:
    return spec(rule).get("taint") or {}
