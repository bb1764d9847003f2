"""Defaults of priority classes."""

from __future__ import annotations

from wharfinger.api.defaults.walk import fill
from wharfinger.api.registry import Document


def default_priority_class(document: Document) -> None:
    fill(document, preemptionPolicy="PreemptLowerPriority")
