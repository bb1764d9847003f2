"""A whole small cluster in virtual time: the store in memory, simulated nodes, controllers, and a scheduler that takes
turns among the ready nodes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry

from wharfinger.api.configuration import Configuration
from wharfinger.api.errors import ApiError, Conflict, NotFound, ServerTimeout, ServiceUnavailable
from wharfinger.api.keys import ObjectKey
from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import NAMESPACES, NODES, PODS
from wharfinger.api.registry import Document, Resource
from wharfinger.api.views import Node, Pod
from wharfinger.client.controller import Controller, run_controllers
from wharfinger.client.events import EventRecorder
from wharfinger.client.informer import InformerSet
from wharfinger.client.local import LocalClient
from wharfinger.client.metrics import ControllerGauges
from wharfinger.client.timers import LoopClock
from wharfinger.controllers.certificates.authority import SigningAuthority
from wharfinger.controllers.context import ControllerContext
from wharfinger.controllers.registry import make_controllers
from wharfinger.node.annotations import DOWN
from wharfinger.node.heartbeats import Heartbeats
from wharfinger.node.kubelet import Kubelets
from wharfinger.node.samples import NodeSample, sample_node
from wharfinger.simulate.loop import VirtualLoop
from wharfinger.store import Store

T = TypeVar("T")
START = 1_800_000_000.0


class Scheduler(Controller[ObjectKey]):
    """Binds every pod to the ready node with the fewest pods, or to the node of its affinity."""

    name = "turns"

    def __init__(self, client: LocalClient, informers: InformerSet) -> None:
        super().__init__()
        self._client = client
        self._nodes = informers.of(NODES, Node)
        self._pods = informers.of(PODS, Pod)
        self._given: dict[ObjectKey, str] = {}
        self._pods.add_handler(self._seen, lambda old, new: self._seen(new), self._gone)
        self._nodes.add_handler(lambda node: self._retry(), lambda old, new: self._retry())

    def _seen(self, pod: Pod) -> None:
        if not pod.spec.node_name and not pod.terminating and not pod.spec.scheduling_gates:
            self.queue.add(pod.metadata.key)

    def _gone(self, pod: Pod) -> None:
        self._given.pop(pod.metadata.key, None)

    def _retry(self) -> None:
        for pod in self._pods:
            self._seen(pod)

    async def reconcile(self, key: ObjectKey) -> None:
        pod = self._pods.get(key[1], key[0])
        if pod is None or pod.spec.node_name:
            return
        affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
        named = (
            affinity.required.node_selector_terms[0].match_fields[0].values[0] if affinity and affinity.required else ""
        )
        load = {node.metadata.name: 0 for node in self._nodes if node.ready and not node.spec.taints}
        for other in self._pods:
            name = other.spec.node_name or self._given.get(other.metadata.key, "")
            if name in load and not other.terminal:
                load[name] += 1
        target = named or min(sorted(load), key=lambda name: load[name], default="")
        if not target:
            return
        binding = {"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": target}}
        try:
            await self._client.create(PODS, binding, key[0], name=key[1], subresource="binding")
        except NotFound:
            return
        self._given[key] = target


class Flaky:
    """A client some of whose writes fail: refused, or carried out with the response lost."""

    def __init__(self, client: LocalClient, source: random.Random, share: float) -> None:
        self._client = client
        self._source = source
        self._share = share

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if name not in ("create", "update", "patch", "delete"):
            return found

        async def write(*args: Any, **options: Any) -> Any:
            luck = self._source.random()
            if luck < self._share / 2:
                raise self._source.choice([ServiceUnavailable("try again"), Conflict("the object has been modified")])
            answer = await found(*args, **options)
            if luck < self._share:
                raise ServerTimeout("the answer was lost")
            return answer

        return write


class World:
    """Use as a context manager. `settle` runs until idle, `advance` lets time pass."""

    def __init__(
        self,
        *,
        nodes: int = 3,
        controllers: Iterable[str] = ("*",),
        sample: NodeSample | None = None,
        setup: Callable[[Store], None] | None = None,
        failing: float = 0.0,
        heartbeats: bool = False,
        root_ca: str = "",
        signing: SigningAuthority | None = None,
    ) -> None:
        """`failing` is the share of writes that fail; with `heartbeats` nodes renew leases, as they do live."""
        self._heartbeats = heartbeats
        self._root_ca = root_ca
        self._signing = signing
        self.loop = VirtualLoop()
        self.clock = LoopClock(START, self.loop)
        self.store = Store(registry(), now=self.clock.now, source=random.Random(7))
        if setup is not None:
            setup(self.store)
        self.client = LocalClient(self.store)
        self._names = tuple(controllers)
        self.configuration = Configuration()
        self._worker: Any = Flaky(self.client, random.Random(11), failing) if failing else self.client
        self._sample = sample or NodeSample()
        self._running: list[asyncio.Task[None]] = []
        self.metrics = CollectorRegistry()
        self._gauges = ControllerGauges(self.metrics)
        self.recorder: EventRecorder | None = None
        self._do(self._boot(nodes))
        self.start()

    def __enter__(self) -> World:
        return self

    def __exit__(self, *args: object) -> None:
        self.loop.shut_down()

    async def _boot(self, nodes: int) -> None:
        for name in ("default", "kube-system", "kube-node-lease"):
            await self.client.create(NAMESPACES, {"metadata": {"name": name}})
        for index in range(nodes):
            await self.client.create(NODES, sample_node(self._sample, index))

    def start(self) -> None:
        self._do(self._start())
        self.settle()

    async def _start(self) -> None:
        informers = InformerSet(self._worker, rng=random.Random(1))
        self.recorder = EventRecorder(self.client, "test", self.clock)
        self.recorder.start()
        context = ControllerContext(
            self._worker,
            informers,
            self.recorder,
            self.store.registry,
            clock=self.clock,
            configuration=self.configuration,
            random=random.Random(2),
            implicit_heartbeats=not self._heartbeats,
            root_ca=self._root_ca,
            signing=self._signing,
            gauges=self._gauges,
        )
        self.controllers = [
            *make_controllers(context, self._names),
            Kubelets(self._worker, informers, self.clock),
            Heartbeats(self._worker, informers, self.clock, implicit=not self._heartbeats),
            Scheduler(self._worker, informers),
        ]
        self._running.append(asyncio.create_task(run_controllers(self.controllers, informers)))

    def restart(self) -> None:
        """Restarts all components without their state, as after a crash."""

        async def stop() -> None:
            for task in self._running:
                task.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)
            self._running.clear()

        self._do(stop())
        self.start()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.complete(work)

    def settle(self) -> None:
        self.loop.run_until_idle()

    def advance(self, seconds: float) -> None:
        self.loop.run_to(self.loop.time() + seconds)
        self.settle()

    def set_clock(self, seconds: float) -> None:
        """Sets the wall clock without changing the time of the event loop."""
        self.clock._start += seconds

    def create(self, resource: Resource, document: Document, namespace: str = "default") -> Document:
        return self._do(self.client.create(resource, document, namespace if resource.namespaced else ""))

    def apply(self, resource: Resource, document: Document, namespace: str = "default") -> Document:
        created = self.create(resource, document, namespace)
        self.settle()
        return created

    def patch(self, resource: Resource, name: str, patch: Any, namespace: str = "default", **options: Any) -> Document:
        done = self._do(self.client.patch(resource, name, patch, namespace if resource.namespaced else "", **options))
        self.settle()
        return done

    def delete(self, resource: Resource, name: str, namespace: str = "default", **options: Any) -> None:
        self._do(self.client.delete(resource, name, namespace if resource.namespaced else "", **options))
        self.settle()

    def get(self, resource: Resource, name: str, namespace: str = "default") -> Document:
        return self._do(self.client.get(resource, name, namespace if resource.namespaced else ""))

    def exists(self, resource: Resource, name: str, namespace: str = "default") -> bool:
        try:
            self.get(resource, name, namespace)
        except NotFound:
            return False
        return True

    def list(self, resource: Resource, namespace: str = "", selector: str = "") -> list[Document]:
        page = self._do(self.client.list(resource, namespace, label_selector=selector))
        return sorted(page.items, key=lambda item: str(item["metadata"]["name"]))

    def pods(self, selector: str = "", *, phase: str = "") -> list[Document]:
        found = self.list(PODS, selector=selector)
        return [pod for pod in found if not phase or (pod.get("status") or {}).get("phase") == phase]

    def node(self, name: str, *, down: bool) -> None:
        self._do(self.client.patch(NODES, name, {"metadata": {"annotations": {DOWN: "true" if down else None}}}))
        self.settle()

    def fails(self, call: Callable[[], object]) -> ApiError:
        try:
            call()
        except ApiError as error:
            return error
        raise AssertionError("the request was accepted")


def template(
    labels: dict[str, str], *, image: str = "app:1", annotations: dict[str, str] | None = None, **spec: Any
) -> Document:
    return {
        "metadata": {"labels": labels, "annotations": annotations or {}},
        "spec": {"containers": [{"name": "main", "image": image}], "terminationGracePeriodSeconds": 30, **spec},
    }


def workload(
    kind: Resource, name: str, *, annotations: dict[str, str] | None = None, image: str = "app:1", **spec: Any
) -> Document:
    """A Deployment, ReplicaSet, StatefulSet or DaemonSet whose pods carry `app: NAME`."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": template({"app": name}, image=image, annotations=annotations),
            **spec,
        },
    }
