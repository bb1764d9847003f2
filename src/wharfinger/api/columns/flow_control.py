"""Columns of FlowSchemas and PriorityLevelConfigurations."""

from __future__ import annotations

from typing import Any

from wharfinger.api.columns.cells import AGE, NONE, computed, condition, spec
from wharfinger.api.registry import Column, Document


def _distinguisher(schema: Document) -> str:
    method = spec(schema).get("distinguisherMethod")
    return str(method.get("type", "")) if method else NONE


def _dangling(schema: Document) -> str:
    found = condition(schema, "Dangling")
    return str(found.get("status", "")) if found else "?"


def _shares(level: Document) -> Any:
    return (spec(level).get("limited") or {}).get("nominalConcurrencyShares", NONE)


def _queuing(name: str) -> Column:
    def cell(level: Document) -> Any:
        response = (spec(level).get("limited") or {}).get("limitResponse") or {}
        return (response.get("queuing") or {}).get(name, NONE)

    return computed(name[0].upper() + name[1:], cell)


FLOW_SCHEMA_COLUMNS = (
    Column("PriorityLevel", "spec.priorityLevelConfiguration.name"),
    Column("MatchingPrecedence", "spec.matchingPrecedence"),
    computed("DistinguisherMethod", _distinguisher),
    AGE,
    computed("MissingPL", _dangling),
)

PRIORITY_LEVEL_COLUMNS = (
    Column("Type", "spec.type"),
    computed("NominalConcurrencyShares", _shares),
    _queuing("queues"),
    _queuing("handSize"),
    _queuing("queueLengthLimit"),
    AGE,
)
