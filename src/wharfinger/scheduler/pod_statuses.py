"""Status patches of pods that were not placed: the condition PodScheduled, and the nominated node.

The newest patch for a pod replaces an older one that was not sent yet; nothing is written that is already so. A patch that
fails is sent again after a back-off, so that no waiting pod stays without a reason.
"""

from __future__ import annotations

import asyncio
import logging

import msgspec
from msgspec.structs import replace

from wharfinger.api.conditions import transition_time
from wharfinger.api.errors import ApiError, Forbidden, Invalid, NotFound
from wharfinger.api.keys import ObjectKey
from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.registry import Document
from wharfinger.api.requests import PatchType
from wharfinger.api.times import format_time
from wharfinger.api.views import Pod
from wharfinger.client.interface import Client
from wharfinger.client.timers import Clock, call_later

log = logging.getLogger(__name__)

_WRITERS = 8
_RETRY_BASE, _RETRY_LIMIT = 0.5, 60.0  # seconds
_HOPELESS = 6  # failures in a row after which a simulation no longer waits for the next try


class WantedStatus(msgspec.Struct, frozen=True):
    """What a pod's status should say."""

    uid: str
    reason: str  # Unschedulable or SchedulerError; empty leaves the condition as it is
    message: str
    nominated_node: str | None = None  # None leaves it as it is; empty clears it
    generation: int = 0  # of the pod that was looked at
    since: str = ""  # when it became unschedulable, if it is already
    failures: int = 0  # how often it could not be written


class PodStatusWriter:
    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._wanted: dict[ObjectKey, WantedStatus] = {}
        self._written: dict[ObjectKey, WantedStatus] = {}
        self._retries: dict[ObjectKey, tuple[asyncio.TimerHandle, WantedStatus]] = {}
        self._work = asyncio.Event()

    def unschedulable(self, pod: Pod, reason: str, message: str, nominated_node: str | None = None) -> None:
        known = pod.status.condition("PodScheduled")
        since = transition_time(known, "False", "")
        key = pod.metadata.key
        failed = self._take_retry(key)
        unsent = self._wanted.get(key, failed)
        if nominated_node is None and unsent is not None and unsent.uid == pod.metadata.uid:
            nominated_node = unsent.nominated_node
        wanted = WantedStatus(pod.metadata.uid, reason, message, nominated_node, pod.metadata.generation, since)
        if key not in self._wanted and self._is_so(pod, wanted):
            return
        self._wanted[key] = wanted
        self._work.set()

    def withdraw(self, pod: Pod) -> None:
        """No node is nominated for the pod any more."""
        pending = self._wanted.get(pod.metadata.key, self._take_retry(pod.metadata.key))
        if pending is not None and pending.uid == pod.metadata.uid:
            self._wanted[pod.metadata.key] = replace(pending, nominated_node="")
        else:
            self._wanted[pod.metadata.key] = WantedStatus(pod.metadata.uid, "", "", "")
        self._work.set()

    def forget(self, key: ObjectKey) -> None:
        """The pod is bound or gone: drops what was not sent yet."""
        self._take_retry(key)
        self._wanted.pop(key, None)
        self._written.pop(key, None)

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(_WRITERS):
                    group.create_task(self._write_all())
        finally:
            for retry, _ in self._retries.values():
                retry.cancel()

    def _is_so(self, pod: Pod, wanted: WantedStatus) -> bool:
        written = self._written.get(pod.metadata.key)
        if written == wanted:
            return True
        if written is not None and written.uid == wanted.uid and _differs(written, wanted):
            return False  # whatever the pod says: a watch may not have reported yet what was written
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
                    PODS,
                    key[1],
                    self._patch(wanted),
                    key[0],
                    type=PatchType.STRATEGIC,
                    subresource="status",
                    brief=True,
                )
            except (NotFound, Invalid, Forbidden):
                self._written.pop(key, None)
            except ApiError as error:
                log.warning("cannot write the status of pod %s/%s: %s", *key, error)
                if self._written.get(key) is wanted:  # still wanted: not bound or gone meanwhile
                    del self._written[key]
                    self._retry(key, wanted, error.retry_after or 0.0)

    def _retry(self, key: ObjectKey, wanted: WantedStatus, at_least: float) -> None:
        if key in self._wanted or key in self._retries:
            return  # there is a newer one
        failures = wanted.failures + 1
        delay = max(at_least, min(_RETRY_LIMIT, _RETRY_BASE * 2 ** (failures - 1)))

        def again() -> None:
            del self._retries[key]
            self._wanted.setdefault(key, replace(wanted, failures=failures))
            self._work.set()

        self._retries[key] = call_later(delay, again, background=failures >= _HOPELESS), wanted

    def _take_retry(self, key: ObjectKey) -> WantedStatus | None:
        """What failed is not sent again by itself: something newer takes its place, with the nomination it had."""
        timer, wanted = self._retries.pop(key, (None, None))
        if timer is not None:
            timer.cancel()
        return wanted

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


def _differs(written: WantedStatus, wanted: WantedStatus) -> bool:
    if written.reason and (written.reason, written.message) != (wanted.reason, wanted.message):
        return True
    return (
        None not in (written.nominated_node, wanted.nominated_node) and written.nominated_node != wanted.nominated_node
    )
