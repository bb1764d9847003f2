"""Status patches of pods that were not placed: the condition PodScheduled, and the nominated node.

The newest patch for a pod replaces an older one that was not sent yet; nothing is written that is already so.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace

from wharfinger.api.conditions import transition_time
from wharfinger.api.errors import ApiError, NotFound
from wharfinger.api.keys import ObjectKey
from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.registry import Document
from wharfinger.api.requests import PatchType
from wharfinger.api.times import format_time
from wharfinger.api.views import Pod
from wharfinger.client.interface import Client
from wharfinger.client.timers import Clock

log = logging.getLogger(__name__)

_WRITERS = 8


@dataclass(frozen=True, slots=True)
class WantedStatus:
    """What a pod's status should say."""

    uid: str
    reason: str  # Unschedulable or SchedulerError; empty leaves the condition as it is
    message: str
    nominated_node: str | None = None  # None leaves it as it is; empty clears it
    generation: int = 0  # of the pod that was looked at
    since: str = ""  # when it became unschedulable, if it is already


class PodStatusWriter:
    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._wanted: dict[ObjectKey, WantedStatus] = {}
        self._written: dict[ObjectKey, WantedStatus] = {}
        self._work = asyncio.Event()

    def unschedulable(self, pod: Pod, reason: str, message: str, nominated_node: str | None = None) -> None:
        known = pod.status.condition("PodScheduled")
        since = transition_time(known, "False", "")
        key = pod.metadata.key
        if nominated_node is None and key in self._wanted:
            nominated_node = self._wanted[key].nominated_node  # not sent yet
        wanted = WantedStatus(pod.metadata.uid, reason, message, nominated_node, pod.metadata.generation, since)
        if key not in self._wanted and self._is_so(pod, wanted):
            return
        self._wanted[key] = wanted
        self._work.set()

    def withdraw(self, pod: Pod) -> None:
        """No node is nominated for the pod any more."""
        pending = self._wanted.get(pod.metadata.key)
        if pending is not None:
            self._wanted[pod.metadata.key] = replace(pending, nominated_node="")
        else:
            self._wanted[pod.metadata.key] = WantedStatus(pod.metadata.uid, "", "", "")
        self._work.set()

    def forget(self, key: ObjectKey) -> None:
        """The pod is bound or gone: drops what was not sent yet."""
        self._wanted.pop(key, None)
        self._written.pop(key, None)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(_WRITERS):
                group.create_task(self._write_all())

    def _is_so(self, pod: Pod, wanted: WantedStatus) -> bool:
        if self._written.get(pod.metadata.key) == wanted:
            return True
        condition = pod.status.condition("PodScheduled")
        said = condition is not None and (condition.status, condition.reason, condition.message) == (
            "False",
            wanted.reason,
            wanted.message,
        )
        return said and wanted.nominated_node in (None, pod.status.nominated_node_name)

    async def _write_all(self) -> None:
        while True:
            while not self._wanted:
                self._work.clear()
                await self._work.wait()
            key, wanted = next(iter(self._wanted.items()))
            del self._wanted[key]
            self._written[key] = wanted
            try:
                await self._client.patch(
                    PODS, key[1], self._patch(wanted), key[0], type=PatchType.STRATEGIC, subresource="status"
                )
            except NotFound:
                self._written.pop(key, None)
            except ApiError as error:
                self._written.pop(key, None)
                log.warning("cannot write the status of pod %s/%s: %s", *key, error)

    def _patch(self, wanted: WantedStatus) -> Document:
        status: Document = {"conditions": [self._condition(wanted)]} if wanted.reason else {}
        if wanted.nominated_node is not None:
            status["nominatedNodeName"] = wanted.nominated_node or None
        return {"metadata": {"uid": wanted.uid}, "status": status}

    def _condition(self, wanted: WantedStatus) -> Document:
        condition: Document = {
            "type": "PodScheduled",
            "status": "False",
            "reason": wanted.reason,
            "message": wanted.message,
            # A new message is not a transition.
            "lastTransitionTime": wanted.since or format_time(self._clock.now()),
        }
        if wanted.generation:
            condition["observedGeneration"] = wanted.generation
        return condition
