"""The two ends of a pod's way that have no choice: the order of the queue and the binding.

They are here so that configurations can name them; the live scheduler does the work.
"""

from __future__ import annotations

from wharfinger.api.views import Pod
from wharfinger.framework.plugin import Plugin


class PrioritySort(Plugin):
    """Higher priority first; of equals, who came first."""

    name = "PrioritySort"
    points = frozenset({"queueSort"})
    position = 20

    @staticmethod
    def sort_key(pod: Pod, arrived: float) -> tuple[int, float]:
        return -(pod.spec.priority or 0), arrived


class DefaultBinder(Plugin):
    name = "DefaultBinder"
    points = frozenset({"bind"})
    position = 180


plugins = (PrioritySort, DefaultBinder)
