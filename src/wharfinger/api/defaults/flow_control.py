"""Defaults of FlowSchemas and PriorityLevelConfigurations."""

from __future__ import annotations

from wharfinger.api.defaults.walk import child, fill, fill_number, made_child
from wharfinger.api.registry import Document


def default_flow_schema(document: Document) -> None:
    fill_number(made_child(document, "spec"), matchingPrecedence=1000)


def default_priority_level(document: Document) -> None:
    spec = made_child(document, "spec")
    if spec.get("exempt") is not None:
        fill(child(spec, "exempt"), nominalConcurrencyShares=0, lendablePercent=0)
    if spec.get("limited") is not None:
        limited = child(spec, "limited")
        fill(limited, nominalConcurrencyShares=30, lendablePercent=0)
        queuing = child(child(limited, "limitResponse"), "queuing")
        if child(limited, "limitResponse").get("queuing") is not None:
            fill_number(queuing, handSize=8, queues=64, queueLengthLimit=50)
