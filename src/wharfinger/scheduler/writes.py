"""The scheduler's writes about a pod it could not place: the PodScheduled condition and the nominated node.

The newest wish for a pod replaces older ones that were not sent yet; nothing is written that is already so.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace

from wharfinger.api.conditions import transition_time
from wharfinger.api.errors import ApiError, NotFound
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
class Wish:
    """What a pod's status should say."""

    uid: str
    reason: str  # Unschedulable or SchedulerError; empty where the condition is left as it is
    message: str
    nominated_node: str | None = None  # None leaves it as it is; empty clears it
    generation: int = 0  # the pod's, to which this applies
    since: str = ""  # when it became unschedulable, if it is already


class StatusWriter:
    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._wishes: dict[tuple[str, str], Wish] = {}
        self._written: dict[tuple[str, str], Wish] = {}
        self._work = asyncio.Event()

    def unschedulable(self, pod: Pod, reason: str, message: str, nominated_node: str | None = None) -> None:
        known = pod.status.condition("PodScheduled")
        since = transition_time(known, "False", "")
        key = pod.metadata.key
        if nominated_node is None and key in self._wishes:
            nominated_node = self._wishes[key].nominated_node  # still to be written
        wish = Wish(pod.metadata.uid, reason, message, nominated_node, pod.metadata.generation, since)
        if key not in self._wishes and self._is_so(pod, wish):
            return
        self._wishes[key] = wish
        self._work.set()

    def withdraw(self, pod: Pod) -> None:
        """No node is nominated for the pod any more."""
        pending = self._wishes.get(pod.metadata.key)
        if pending is not None:
            self._wishes[pod.metadata.key] = replace(pending, nominated_node="")
        else:
            self._wishes[pod.metadata.key] = Wish(pod.metadata.uid, "", "", "")
        self._work.set()

    def forget(self, key: tuple[str, str]) -> None:
        """The pod is bound or gone: what was still to be said of it is void."""
        self._wishes.pop(key, None)
        self._written.pop(key, None)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(_WRITERS):
                group.create_task(self._write_all())

    def _is_so(self, pod: Pod, wish: Wish) -> bool:
        if self._written.get(pod.metadata.key) == wish:
            return True
        condition = pod.status.condition("PodScheduled")
        said = condition is not None and (condition.status, condition.reason, condition.message) == (
            "False",
            wish.reason,
            wish.message,
        )
        return said and wish.nominated_node in (None, pod.status.nominated_node_name)

    async def _write_all(self) -> None:
        while True:
            while not self._wishes:
                self._work.clear()
                await self._work.wait()
            key, wish = next(iter(self._wishes.items()))
            del self._wishes[key]
            self._written[key] = wish
            try:
                await self._client.patch(
                    PODS, key[1], self._patch(wish), key[0], type=PatchType.STRATEGIC, subresource="status"
                )
            except NotFound:
                self._written.pop(key, None)
            except ApiError as error:
                self._written.pop(key, None)
                log.warning("cannot write the status of pod %s/%s: %s", *key, error)

    def _patch(self, wish: Wish) -> Document:
        status: Document = {"conditions": [self._condition(wish)]} if wish.reason else {}
        if wish.nominated_node is not None:
            status["nominatedNodeName"] = wish.nominated_node or None
        return {"metadata": {"uid": wish.uid}, "status": status}

    def _condition(self, wish: Wish) -> Document:
        condition: Document = {
            "type": "PodScheduled",
            "status": "False",
            "reason": wish.reason,
            "message": wish.message,
            # A new message is no transition.
            "lastTransitionTime": wish.since or format_time(self._clock.now()),
        }
        if wish.generation:
            condition["observedGeneration"] = wish.generation
        return condition
