"""Evicting the victims of a preemption. The engine chooses them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from wharfinger.api.conditions import new_condition
from wharfinger.api.errors import ApiError, NotFound
from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.views import Pod
from wharfinger.client.events import EventRecorder
from wharfinger.client.interface import Client
from wharfinger.client.pods import delete_disrupted_pod
from wharfinger.client.timers import Clock
from wharfinger.framework.stand_ins import StandIn

log = logging.getLogger(__name__)


class Evictor:
    def __init__(self, client: Client, clock: Clock, recorder: EventRecorder | None) -> None:
        self._client = client
        self._clock = clock
        self._recorder = recorder

    async def evict(self, preemptor: Pod, victims: Sequence[Pod], node: str) -> bool:
        """Marks and deletes the victims; returns whether every one is gone or terminating."""
        done = await asyncio.gather(*(self._evict_one(preemptor, victim, node) for victim in victims))
        return all(done)

    async def _evict_one(self, preemptor: Pod, victim: Pod, node: str) -> bool:
        metadata = victim.metadata
        if victim.terminating:
            return True
        message = f"{preemptor.spec.scheduler_name}: preempting to accommodate a higher priority pod"
        condition = new_condition("DisruptionTarget", True, "PreemptionByScheduler", message, self._clock.now())
        try:
            await delete_disrupted_pod(self._client, metadata, condition)
        except NotFound:
            return True
        except ApiError as error:
            log.warning("cannot preempt pod %s/%s: %s", metadata.namespace, metadata.name, error)
            return False
        if self._recorder is not None:
            message = f"Preempted by {_named(preemptor)} on node {node}"
            self._recorder.event(PODS, victim, "Normal", "Preempted", message)
        return True


def _named(preemptor: Pod) -> str:
    """As upstream names a pod. The uid of a stand-in would tell nobody anything."""
    if isinstance(preemptor, StandIn):
        return f"{preemptor.kind.lower()} {preemptor.object_name}"
    return f"pod {preemptor.metadata.uid}"
