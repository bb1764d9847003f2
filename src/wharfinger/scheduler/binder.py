"""Binding, pipelined: decisions go on while earlier ones are written. A failed binding is told, so that it is undone."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from wharfinger.api.errors import ApiError
from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.registry import Document
from wharfinger.api.views import Pod
from wharfinger.client.interface import Client
from wharfinger.scheduler.queue import QueuedPod

log = logging.getLogger(__name__)

Bind = Callable[[Pod, str, Mapping[str, str]], Awaitable[None]]
"""Writes down that a pod goes to a node, with these annotations."""


@dataclass(frozen=True, slots=True)
class Job:
    item: QueuedPod
    node: str
    annotations: Mapping[str, str]
    bind: Bind


class Binder:
    def __init__(
        self, *, bound: Callable[[Job], None], failed: Callable[[Job, Exception], None], concurrency: int = 64
    ) -> None:
        self._bound = bound
        self._failed = failed
        self._concurrency = concurrency
        self._jobs: deque[Job] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()

    def submit(self, job: Job) -> None:
        self._jobs.append(job)
        while self._idle:
            worker = self._idle.popleft()
            if not worker.done():
                worker.set_result(None)
                break

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(self._concurrency):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            while not self._jobs:
                turn = asyncio.get_running_loop().create_future()
                self._idle.append(turn)
                await turn
            await self._bind(self._jobs.popleft())

    async def _bind(self, job: Job) -> None:
        try:
            await job.bind(job.item.pod, job.node, job.annotations)
        except ApiError as error:
            self._failed(job, error)
        except Exception as error:
            log.exception("binding of pod %s/%s failed", *job.item.key)
            self._failed(job, error)
        else:
            self._bound(job)


def pod_binder(client: Client) -> Bind:
    """Binds through `pods/binding`; the server copies the annotations onto the pod in the same write."""

    async def bind(pod: Pod, node: str, annotations: Mapping[str, str]) -> None:
        metadata: Document = {"name": pod.metadata.name, "namespace": pod.metadata.namespace, "uid": pod.metadata.uid}
        if annotations:
            metadata["annotations"] = dict(annotations)
        document = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await client.create(PODS, document, pod.metadata.namespace, name=pod.metadata.name, subresource="binding")

    return bind
