"""A hub in virtual time for tests: the in-memory API, admission and the placement controllers, without a server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry

from wharfinger.admission.rbac import Attributes
from wharfinger.api.configuration import Configuration
from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import EVENTS, NAMESPACES
from wharfinger.api.registry import Document, Resource
from wharfinger.api.times import parse_time
from wharfinger.client.controller import run_controllers
from wharfinger.client.events import EventRecorder
from wharfinger.client.informer import InformerSet
from wharfinger.client.interface import Client
from wharfinger.client.local import LocalClient
from wharfinger.client.timers import LoopClock
from wharfinger.controllers.context import ControllerContext
from wharfinger.scenario.applying import apply
from wharfinger.simulate.loop import VirtualLoop
from wharfinger.store import Chain, Store
from wharfinger.systems.placement.admission.reviewers import placement_reviewers
from wharfinger.systems.placement.controllers import PlacementController, PlacementMetrics, placement_controllers
from wharfinger.systems.placement.kinds.names import (
    ADDON_PLACEMENT_SCORES,
    MANAGED_CLUSTERS,
    OCM,
    PLACEMENT_DECISIONS,
    PLACEMENTS,
)

T = TypeVar("T")
START = parse_time("2026-01-01T00:00:00Z")
P = f"{OCM}/"


def cluster(name: str, labels: dict[str, str] | None = None, **parts: Any) -> Document:
    """A cluster that an administrator let in; `taints`, `allocatable`, `capacity`, `claims` as in the API."""
    document: Document = {
        "apiVersion": f"{OCM}/v1",
        "kind": "ManagedCluster",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"hubAcceptsClient": True},
    }
    if "taints" in parts:
        document["spec"]["taints"] = parts["taints"]
    status: Document = {}
    for part in ("allocatable", "capacity", "conditions"):
        if part in parts:
            status[part] = parts[part]
    if "claims" in parts:
        status["clusterClaims"] = [{"name": key, "value": value} for key, value in parts["claims"].items()]
    if status:
        document["status"] = status
    return document


def cluster_set(name: str, **selector: Any) -> Document:
    return {
        "apiVersion": f"{OCM}/v1beta2",
        "kind": "ManagedClusterSet",
        "metadata": {"name": name},
        "spec": {"clusterSelector": selector},
    }


def binding(namespace: str = "ns1", name: str = "global") -> Document:
    return {
        "apiVersion": f"{OCM}/v1beta2",
        "kind": "ManagedClusterSetBinding",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterSet": name},
    }


def placement(number: int | None = None, name: str = "p", namespace: str = "ns1", **spec: Any) -> Document:
    annotations = spec.pop("annotations", None)
    if number is not None:
        spec["numberOfClusters"] = number
    metadata: Document = {"name": name, "namespace": namespace}
    if annotations:
        metadata["annotations"] = annotations
    return {"apiVersion": f"{OCM}/v1beta1", "kind": "Placement", "metadata": metadata, "spec": spec}


def score(cluster_name: str, resource: str = "demo", until: str | None = None, **values: int) -> Document:
    status: Document = {"scores": [{"name": name, "value": value} for name, value in values.items()]}
    if until:
        status["validUntil"] = until
    return {
        "apiVersion": f"{OCM}/v1alpha1",
        "kind": "AddOnPlacementScore",
        "metadata": {"name": resource, "namespace": cluster_name},
        "status": status,
    }


def decision(clusters: list[str], name: str = "other", namespace: str = "elsewhere", number: int = 1) -> Document:
    return {
        "apiVersion": f"{OCM}/v1beta1",
        "kind": "PlacementDecision",
        "metadata": {
            "name": f"{name}-decision-{number}",
            "namespace": namespace,
            "labels": {P + "placement": name, P + "decision-group-index": "0", P + "decision-group-name": ""},
        },
        "status": {"decisions": [{"clusterName": cluster_name, "reason": ""} for cluster_name in clusters]},
    }


def add_on(weight: int = 1, resource: str = "demo", name: str = "a") -> Document:
    coordinate = {"type": "AddOn", "addOn": {"resourceName": resource, "scoreName": name}}
    return {"scoreCoordinate": coordinate, "weight": weight}


def built_in(name: str, weight: int = 1) -> Document:
    return {"scoreCoordinate": {"type": "BuiltIn", "builtIn": name}, "weight": weight}


def exact(*configurations: Document) -> Document:
    return {"mode": "Exact", "configurations": list(configurations)}


def additive(*configurations: Document) -> Document:
    return {"mode": "Additive", "configurations": list(configurations)}


class Hub:
    """Use as a context manager. Time passes only in `settle` and `advance`."""

    def __init__(
        self,
        *,
        implicit: bool = True,
        configuration: Configuration | None = None,
        authorize: Callable[[Attributes], bool] = lambda question: True,
    ) -> None:
        self.loop = VirtualLoop()
        asyncio.set_event_loop(self.loop)
        self.clock = LoopClock(START, self.loop)
        self.registry = registry()
        self.chain = Chain()
        self.store = Store(self.registry, chain=self.chain, now=self.clock.now, source=random.Random(1))
        mutating, validating = placement_reviewers(self.clock.now, authorize)
        self.chain.mutating += mutating
        self.chain.validating += validating
        self.client = LocalClient(self.store)
        self.controllers_client: Client = self.client  # what the controllers write through
        self.metrics = CollectorRegistry()
        self.measured = PlacementMetrics(self.metrics)
        self._implicit = implicit
        self._configuration = configuration or Configuration()
        self.start()

    def start(self) -> None:
        async def begin() -> None:
            client = self.controllers_client
            self.recorder = EventRecorder(client, "placement", self.clock)
            context = ControllerContext(
                client,
                InformerSet(client),
                self.recorder,
                self.registry,
                self.clock,
                self._configuration,
                implicit_heartbeats=self._implicit,
            )
            self.recorder.start()
            self.controllers = placement_controllers(context, self.measured)
            self.task = asyncio.create_task(run_controllers(self.controllers, context.informers))

        self.run(begin())

    def stop(self) -> None:
        async def end() -> None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
            await self.recorder.stop()

        self.run(end())

    def restart(self) -> None:
        self.stop()
        self.start()

    def __enter__(self) -> Hub:
        return self

    def __exit__(self, *exception: object) -> None:
        self.loop.shut_down()

    @property
    def scheduling(self) -> PlacementController:
        return next(c for c in self.controllers if isinstance(c, PlacementController))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.complete(work)

    def settle(self) -> None:
        self.loop.run_until_idle()

    def advance(self, seconds: float) -> None:
        self.loop.run_to(self.loop.time() + seconds)

    def apply(self, *documents: Document) -> None:
        """Applies the objects, making their namespaces first, and lets everything happen."""
        for document in documents:
            namespace = document["metadata"].get("namespace")
            if namespace:
                self.namespace(namespace)
            self.run(apply(self.client, document, self.registry))
        self.settle()

    def namespace(self, name: str) -> None:
        if self.find(NAMESPACES, name) is None:
            document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            self.run(apply(self.client, document, self.registry))

    def find(self, resource: Resource, name: str, namespace: str = "") -> Document | None:
        stored = self.store.peek(resource, name, namespace)
        return None if stored is None else stored.document()

    def get(self, resource: Resource, name: str, namespace: str = "") -> Document:
        found = self.find(resource, name, namespace)
        assert found is not None, f"no {resource.kind} {namespace}/{name}"
        return found

    def delete(self, resource: Resource, name: str, namespace: str = "") -> None:
        self.run(self.client.delete(resource, name, namespace))
        self.settle()

    def patch(
        self, resource: Resource, name: str, change: Document, namespace: str = "", subresource: str = ""
    ) -> None:
        self.run(self.client.patch(resource, name, change, namespace, subresource=subresource))
        self.settle()

    def pages(self, name: str = "p", namespace: str = "ns1") -> dict[str, list[str]]:
        found = self.run(self.client.list(PLACEMENT_DECISIONS, namespace, label_selector=f"{P}placement={name}")).items
        return {
            page["metadata"]["name"]: [item["clusterName"] for item in (page.get("status") or {}).get("decisions", [])]
            for page in found
        }

    def selected(self, name: str = "p", namespace: str = "ns1") -> list[str]:
        return sorted(cluster_name for page in self.pages(name, namespace).values() for cluster_name in page)

    def placement(self, name: str = "p", namespace: str = "ns1") -> Document:
        return self.get(PLACEMENTS, name, namespace)

    def condition(self, kind: str = "PlacementSatisfied", name: str = "p") -> tuple[str, str, str]:
        for condition in self.placement(name)["status"]["conditions"]:
            if condition["type"] == kind:
                return condition["status"], condition["reason"], condition["message"]
        raise AssertionError(f"no condition {kind}")

    def events(self, reason: str = "", namespace: str = "ns1") -> list[Document]:
        found = self.run(self.client.list(EVENTS, namespace)).items
        return [event for event in found if not reason or event["reason"] == reason]

    def taint(self, name: str, *taints: Document) -> None:
        self.patch(MANAGED_CLUSTERS, name, {"spec": {"taints": list(taints)}})

    def score(self, cluster_name: str, resource: str = "demo", until: str | None = None, **values: int) -> None:
        document = score(cluster_name, resource, until, **values)
        if self.find(ADDON_PLACEMENT_SCORES, resource, cluster_name) is None:
            self.apply(document)
        else:
            self.patch(ADDON_PLACEMENT_SCORES, resource, {"status": document["status"]}, cluster_name, "status")
