"""When the last change happened that endpoints show: upstream's annotation `last-change-trigger-time`."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import msgspec

from wharfinger.api.registry import Document
from wharfinger.api.views import Pod


class _ServiceTimes(msgspec.Struct):
    created: str = ""
    pods: dict[str, str] = msgspec.field(default_factory=dict)


class TriggerTimes:
    """The times that were seen at the last call, by Service. Times are RFC 3339 in UTC, so their texts compare as they do."""

    def __init__(self) -> None:
        self._known: dict[Hashable, _ServiceTimes] = {}

    def changed(self, key: Hashable, service: Document, pods: Iterable[Pod]) -> str:
        """The earliest of the changes since the last call: of the readiness of pods, or the creation of the Service. Empty
        if there is none."""
        created = service["metadata"].get("creationTimestamp") or ""
        before = self._known.get(key)
        now = _ServiceTimes(created)
        for pod in pods:
            ready = pod.status.condition("Ready")
            if ready is not None and ready.last_transition_time:
                now.pods[pod.metadata.name] = ready.last_transition_time
        self._known[key] = now
        if before is None:
            return created
        found = [time for name, time in now.pods.items() if time > before.pods.get(name, "")]
        if created > before.created:
            found.append(created)
        return min(found, default="")

    def forget(self, key: Hashable) -> None:
        self._known.pop(key, None)
