"""PrioritySort: orders the queue by priority, then by arrival. It is here so that configurations can name it; the
scheduling queue does the work."""

from __future__ import annotations

from wharfinger.framework.plugin import Plugin


class PrioritySort(Plugin):
    name = "PrioritySort"
    points = frozenset({"queueSort"})
    position = 20


plugins = (PrioritySort,)
