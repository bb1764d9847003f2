"""A scheduler that keeps its engine current and never acts: it queues nothing, and writes nothing to the API server."""

from __future__ import annotations

from typing import Any

from wharfinger.api.views import Pod
from wharfinger.framework.events import NODE, POD, Action, ClusterEvent
from wharfinger.scheduler.scheduler import Scheduler


class FollowingScheduler(Scheduler):
    decisive = 0  # changes that may change a decision

    async def load(self) -> None:
        """As of a scheduler, but its turn never comes: what that would have to catch up with stays undone."""
        self._informers.start()
        await self._informers.wait_synced()

    # -- events of the feed, which the engine knows already

    def pending(self, old: Pod | None, new: Pod | None) -> None:
        """Nominations count in decisions about other pods."""
        pod = new or old
        assert pod is not None, "something changed"
        if old is None or new is None or _needs_changed(old, new):
            self.decisive += 1
        wanted = new.status.nominated_node_name if new is not None and not new.terminating else ""
        if pod.spec.scheduler_name in self.engine.profiles and wanted != self.engine.nominated_node(pod):
            self.engine.set_nominated(pod, wanted or None)
        self._discard_returned()

    def assigned(self, pod: Pod) -> None:
        pass

    def changed(self, kind: str, old: Any, new: Any) -> None:
        pass

    def happened(self, event: ClusterEvent) -> None:
        if _is_decisive(event):
            self.decisive += 1
        self._discard_returned()

    def _discard_returned(self) -> None:
        """The engine collects what gave its room back, for a queue of pods that are retried for it."""
        if self.engine.returned:
            self.engine.returned.clear()


def _needs_changed(old: Pod, new: Pod) -> bool:
    return (
        old.spec != new.spec
        or old.metadata.labels != new.metadata.labels
        or old.metadata.annotations != new.metadata.annotations
        or old.status.nominated_node_name != new.status.nominated_node_name
        or old.terminating != new.terminating
    )


def _is_decisive(event: ClusterEvent) -> bool:
    """Whether decisions may depend on it. Most updates are heartbeats of nodes and statuses of running pods."""
    if event.action is not Action.UPDATE_OTHER:
        return True
    if event.kind == POD:
        return bool(event.old.metadata.annotations != event.new.metadata.annotations)  # systems keep records there
    return event.kind != NODE
