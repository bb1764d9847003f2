"""A cluster of any size for benchmarks: its nodes and running pods are generated page by page, as an API server lists them.

The feed of the scheduler reads them, so start and memory are those of a scheduler that starts in such a cluster. Nothing
changes afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, TypeVar, cast

import msgspec

from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import NAMESPACES, NODES, PODS
from wharfinger.api.requests import ApiRequest
from wharfinger.api.views import Pod
from wharfinger.bench.workloads import Document, Workload
from wharfinger.client.informer import InformerSet
from wharfinger.client.interface import Client, WatchEvent
from wharfinger.client.wire import read_page
from wharfinger.engine import Engine
from wharfinger.framework.events import ClusterEvent
from wharfinger.scheduler.feed import Feed

T = TypeVar("T")

APPLICATIONS = 1000
"""The running pods belong to so many Deployments."""

STARTED = "2026-01-01T00:00:00Z"


class NoListener:
    """A `FeedListener` that only lets the engine be told."""

    def pending(self, old: Pod | None, new: Pod | None) -> None: ...
    def assigned(self, pod: Pod) -> None: ...
    def changed(self, kind: str, old: Any, new: Any) -> None: ...
    def happened(self, event: ClusterEvent) -> None: ...


def start(engine: Engine, workload: Workload, nodes: int, running: int) -> Feed:
    """Loads the cluster into the engine, as the scheduler does when it starts. The feed holds the objects."""
    return asyncio.run(_start(engine, GeneratedCluster(workload, nodes, running)))


async def _start(engine: Engine, client: Client) -> Feed:
    informers = InformerSet(client)
    feed = Feed(informers, registry(), engine, NoListener())
    informers.start()
    try:
        await informers.wait_synced()
    finally:
        await informers.stop()
    return feed


class GeneratedCluster(Client):
    """Answers lists of nodes, pods and namespaces; other collections are empty."""

    def __init__(self, workload: Workload, nodes: int, running: int) -> None:
        # Encoded, so that the benchmark itself takes little memory.
        self._nodes = [msgspec.Raw(msgspec.json.encode(each)) for each in workload.node_documents(nodes)]
        self._names = [str(each["metadata"]["name"]) for each in workload.node_documents(nodes)]
        self._running = running

    async def send(self, request: ApiRequest[T]) -> T:
        assert request.verb == "list", request.verb
        count = {PODS: self._running, NODES: len(self._nodes), NAMESPACES: 3}.get(request.resource, 0)
        first = int(request.continue_token or 0)
        last = min(first + (request.limit or count), count)
        items = [self._item(request, index) for index in range(first, last)]
        metadata = {"resourceVersion": "1", "continue": str(last) if last < count else ""}
        body = msgspec.json.encode({"metadata": metadata, "items": items})
        return cast("T", read_page(body, request.view or dict))

    def _item(self, request: ApiRequest[Any], index: int) -> Document | msgspec.Raw:
        if request.resource == PODS:
            return running_pod(index, self._names[index % len(self._names)])
        return self._nodes[index] if request.resource == NODES else {"metadata": {"name": f"sched-{index}"}}

    async def stream(self, request: ApiRequest[WatchEvent[T]]) -> AsyncIterator[WatchEvent[T]]:
        await asyncio.Event().wait()
        for event in list[WatchEvent[T]]():
            yield event

    async def close(self) -> None: ...


def running_pod(index: int, node: str) -> Document:
    """A pod of a Deployment as an API server sends it, with the fields that schedulers do not read."""
    application = f"app-{index % APPLICATIONS}"
    name = f"{application}-5d8f6c9b7-{index}"
    room = {"cpu": "100m", "memory": "500Mi"}
    token = "kube-api-access"
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{application}-5d8f6c9b7", "controller": True}
    container = {
        "name": "app",
        "image": f"registry.example.com/{application}:v1.2.3",
        "imagePullPolicy": "IfNotPresent",
        "ports": [{"containerPort": 8080, "protocol": "TCP"}],
        "env": [{"name": "LEVEL", "value": "info"}],
        "resources": {"requests": room, "limits": room},
        "volumeMounts": [{"name": token, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
        "terminationMessagePath": "/dev/termination-log",
    }
    conditions = [
        {"type": each, "status": "True", "lastTransitionTime": STARTED}
        for each in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    ]
    ready = {"name": "app", "ready": True, "restartCount": 0, "state": {"running": {"startedAt": STARTED}}}
    return {
        "metadata": {
            "name": name,
            "namespace": f"sched-{index % 3}",
            "uid": f"00000000-0000-4000-8000-{index:012d}",
            "resourceVersion": str(index + 1),
            "creationTimestamp": STARTED,
            "labels": {"app": application, "pod-template-hash": "5d8f6c9b7"},
            "ownerReferences": [owner | {"uid": f"owner-of-{application}"}],
        },
        "spec": {
            "nodeName": node,
            "schedulerName": "default-scheduler",
            "serviceAccountName": "default",
            "priority": 0,
            "containers": [container],
            "tolerations": [
                {
                    "key": f"node.kubernetes.io/{each}",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
                for each in ("not-ready", "unreachable")
            ],
            "volumes": [{"name": token, "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}],
        },
        "status": {
            "phase": "Running",
            "conditions": conditions,
            "containerStatuses": [ready],
            "hostIP": "10.0.0.1",
            "podIP": "10.1.0.1",
            "startTime": STARTED,
        },
    }
