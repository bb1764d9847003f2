"""Webhook handlers: quota of reservations, and names of our kinds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from wharfinger.admission.request import SYSTEM, Request, User
from wharfinger.api.configuration import Configuration
from wharfinger.api.errors import NotFound
from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import NAMESPACES, NODES, PODS, RESOURCE_QUOTAS
from wharfinger.api.registry import Document, Resource
from wharfinger.client.informer import InformerSet
from wharfinger.client.local import LocalClient
from wharfinger.store import Store
from wharfinger.systems.reservation.admission import webhook as reservation_quota
from wharfinger.systems.reservation.kinds.names import RESERVATIONS
from wharfinger.systems.reservation.kinds.views import Reservation
from wharfinger.systems.reservation.settings import ReservationSettings
from wharfinger.systems.resource_class.admission import webhook as resource_class
from wharfinger.systems.resource_class.kinds.names import RESOURCE_CLASSES
from wharfinger.webhook import records, validation
from wharfinger.webhook.handler import Answer, WebhookContext, WebhookHandler

SPACE = "default"
QUOTA = {"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "4"}}}
SCOPED = {"metadata": {"name": "scoped"}, "spec": {"hard": {"requests.cpu": "1"}, "scopes": ["Terminating"]}}


def pod(name: str, cpu: int, app: str = "other") -> Document:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": str(cpu)}}}
    return {"metadata": {"name": name, "labels": {"app": app}}, "spec": {"containers": [container]}}


def reservation(name: str, cpu: int) -> Document:
    owners = [{"labelSelector": {"matchLabels": {"app": "web"}}}]
    return {"metadata": {"name": name}, "spec": {"template": pod("", cpu), "owners": owners, "allocateOnce": False}}


def create(resource: Resource, document: Document, **more: Any) -> Request:
    document = {"apiVersion": resource.api_version, "kind": resource.kind, **document}
    namespace = SPACE if resource.namespaced else ""
    return Request("CREATE", resource, namespace, str(document["metadata"]["name"]), SYSTEM, document, None, **more)


class Quota:
    """The handler beside a store in which nobody else counts."""

    def __init__(self) -> None:
        self.client = LocalClient(Store(registry()))
        self.informers = InformerSet(self.client)
        settings = Configuration().having(ReservationSettings(charge_quota=True))
        context = WebhookContext(self.client, self.informers, registry(), settings)
        (_, self.handler) = reservation_quota.handlers(context)

    async def make(self, resource: Resource, document: Document) -> None:
        request = create(resource, document)
        assert request.object is not None
        await self.client.create(resource, request.object, request.namespace)

    async def refused(self, resource: Resource, document: Document, **more: Any) -> str:
        answer = await self.handler.review(create(resource, document, **more), mutating=False)
        return answer.review.denied.message if answer.review.denied is not None else ""


def play(story: Any) -> None:
    async def main() -> None:
        quota = Quota()
        await quota.make(NAMESPACES, {"metadata": {"name": SPACE}})
        for made in (QUOTA, SCOPED):
            await quota.make(RESOURCE_QUOTAS, made)
        await quota.make(NODES, {"metadata": {"name": "n"}})
        await quota.make(RESERVATIONS, reservation("r", 3))
        available = {"status": {"phase": "Available", "nodeName": "n"}}
        await quota.client.patch(RESERVATIONS, "r", available, subresource="status")
        quota.informers.start()
        try:
            await quota.informers.wait_synced()
            await story(quota)
        finally:
            await quota.informers.stop()

    asyncio.run(main())


@pytest.mark.needs_system("reservation")
def test_quota_held_by_reservations_is_left_to_their_owners() -> None:
    async def story(quota: Quota) -> None:
        why = "exceeded quota: q, requested: requests.cpu=2, used: requests.cpu=3, limited: requests.cpu=4"
        assert why in await quota.refused(PODS, pod("outsider", 2))
        assert await quota.refused(PODS, pod("small", 1), dry_run=True) == ""
        assert await quota.refused(PODS, pod("owner", 3, app="web")) == ""

    play(story)


@pytest.mark.needs_system("reservation")
def test_admitted_pods_count_before_the_informer_sees_them() -> None:
    async def story(quota: Quota) -> None:
        assert await quota.refused(PODS, pod("first", 1), dry_run=True) == ""  # which takes nothing
        assert await quota.refused(PODS, pod("second", 1)) == ""
        assert "exceeded quota: q" in await quota.refused(PODS, pod("third", 1))
        assert await quota.refused(PODS, pod("second", 1)) == ""  # the same again

    play(story)


@pytest.mark.needs_system("reservation")
def test_reservations_are_limited_by_quota() -> None:
    async def story(quota: Quota) -> None:
        why = "exceeded quota: q, requested: requests.cpu=2, used: requests.cpu=3, limited: requests.cpu=4"
        assert why in await quota.refused(RESERVATIONS, reservation("s", 2))
        assert await quota.refused(RESERVATIONS, reservation("t", 1)) == ""
        assert "exceeded quota: q" in await quota.refused(RESERVATIONS, reservation("u", 1))

    play(story)


def test_no_handler_for_quota_when_reservations_are_not_charged() -> None:
    client = LocalClient(Store(registry()))
    found = reservation_quota.handlers(WebhookContext(client, InformerSet(client), registry()))
    assert [handler.name for handler in found] == ["reservation-resize"]


@pytest.mark.needs_system("reservation")
def test_resizes_that_would_take_reserved_resources_are_refused() -> None:
    client = LocalClient(Store(registry()))
    informers = InformerSet(client)
    (handler,) = reservation_quota.handlers(WebhookContext(client, informers, registry()))

    def resize(name: str, cpu: int) -> Request:
        old = running(name)
        new = running(name, cpu)
        return Request("UPDATE", PODS, SPACE, name, SYSTEM, new, old, subresource="resize")

    def running(name: str, cpu: int = 1) -> Document:
        document = pod(name, cpu)
        document["metadata"]["namespace"] = SPACE
        document["spec"]["nodeName"] = "n1"
        return document

    async def refused(name: str, cpu: int) -> str:
        request = resize(name, cpu)
        assert handler.concerns(request, False) and not handler.concerns(request, True)
        denied = (await handler.review(request, mutating=False)).review.denied
        return "" if denied is None else str(denied)

    async def story() -> None:
        await client.create(NAMESPACES, {"metadata": {"name": SPACE}})
        await client.create(NODES, {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "8"}}})
        for name in ("a", "b"):
            await client.create(PODS, running(name), SPACE)
        await client.create(RESERVATIONS, reservation("r", 4))
        held = {"status": {"phase": "Available", "nodeName": "n1", "allocatable": {"cpu": "4"}}}
        await client.patch(RESERVATIONS, "r", held, subresource="status")
        informers.start()
        await informers.wait_synced()
        assert "node n1 has 2 cpu left that is not reserved, but the resize needs 3 more" in await refused("a", 4)
        assert await refused("a", 3) == ""
        # Not stored yet, but admitted.
        assert "node n1 has 0 cpu left" in await refused("b", 2)
        await client.patch(RESERVATIONS, "r", {"status": {"phase": "Succeeded"}}, subresource="status")
        while next(iter(informers.of(RESERVATIONS, Reservation))).phase != "Succeeded":
            await asyncio.sleep(0)
        assert await refused("b", 9) == "", "left to the kubelet"
        await informers.stop()

    asyncio.run(story())


def ask(handlers: Any, request: Request, *, mutating: bool) -> Answer:
    client = LocalClient(Store(registry()))
    (handler,) = handlers(WebhookContext(client, InformerSet(client), registry()))
    assert isinstance(handler, WebhookHandler) and handler.concerns(request, mutating)
    return asyncio.run(handler.review(request, mutating=mutating))


@pytest.mark.needs_system("resource_class")
@pytest.mark.parametrize(("name", "refused"), [("gold", False), ("cpu", True), ("hugepages-2mi", True)])
def test_names_of_classes_are_checked(name: str, refused: bool) -> None:
    request = create(RESOURCE_CLASSES, {"metadata": {"name": name}, "spec": {"resourceName": "example.com/gpu"}})
    denied = ask(validation.handlers, request, mutating=False).review.denied
    assert (denied is not None and "metadata.name: Invalid value" in denied.message) is refused


@pytest.mark.needs_system("resource_class")
def test_a_class_gets_its_alias() -> None:
    request = create(RESOURCE_CLASSES, {"metadata": {"name": "gold"}, "spec": {"resourceName": "example.com/gpu"}})
    operations = list(ask(resource_class.handlers, request, mutating=True).operations)
    alias = {"op": "add", "path": "/spec/alias", "value": "resourceclass.scheduling.sigs.x-k8s.io/gold"}
    assert alias in operations


class Recorded:
    """An API server that has one pod and answers access reviews with a fixed list of users."""

    def __init__(self, annotations: dict[str, str], *agents: str) -> None:
        self.asked: list[str] = []
        self._annotations = annotations
        self._agents = agents

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Document:
        self.asked.append(f"get {resource.plural}")
        if name == "gone":
            raise NotFound("gone")
        return {"metadata": {"name": name, "annotations": self._annotations}}

    async def create(self, resource: Resource, document: Document, namespace: str = "") -> Document:
        attributes = document["spec"]["resourceAttributes"]
        self.asked.append(" ".join(attributes[key] for key in ("verb", "resource", "name")))
        return {"status": {"allowed": document["spec"]["user"] in self._agents}}


def _records(client: Any) -> WebhookHandler:
    context = WebhookContext(client, InformerSet(LocalClient(Store(registry()))), registry())
    (handler,) = records.handlers(context)
    return handler


def _denied(handler: WebhookHandler, request: Request) -> str:
    assert handler.concerns(request, mutating=False)
    denied = asyncio.run(handler.review(request, mutating=False)).review.denied
    return "" if denied is None else denied.message


@pytest.mark.parametrize("subresource", ["", "status"])
@pytest.mark.parametrize(("user", "refused"), [("agent", False), ("tenant", True), ("system:node:n2", True)])
def test_device_ids_need_the_right_to_publish_devices_of_the_node(subresource: str, user: str, refused: bool) -> None:
    api = Recorded({}, "agent", "system:node:n2")
    old: Document = {"metadata": {"name": "p"}, "spec": {"nodeName": "n1"}}
    new = {**old, "metadata": {"name": "p", "annotations": {"wharfinger.dev/allocated-devices": "{}"}}}
    request = Request("UPDATE", PODS, SPACE, "p", User(user), new, old, subresource)
    assert bool(_denied(_records(api), request)) == refused
    assert api.asked == ([] if user.startswith("system:node:") else ["update nodecomputeresources n1"])


@pytest.mark.parametrize(
    ("user", "name", "refused", "looks"),
    [
        ("system:kube-scheduler", "p", True, 1),
        ("someone", "p", True, 1),
        ("someone", "gone", False, 1),
        ("system:serviceaccount:wharfinger-system:wharfinger-scheduler", "p", False, 0),
    ],
)
@pytest.mark.parametrize("plural", ["pods", "bindings"])
def test_a_binding_answers_the_record_that_the_pod_brought(
    user: str, name: str, refused: bool, looks: int, plural: str
) -> None:
    api = Recorded({"scheduling.sigs.x-k8s.io/allocated-compute-resources": "{}"})
    resource = Resource("", "v1", plural, "Pod" if plural == "pods" else "Binding")
    binding = {"metadata": {"name": name}, "target": {"name": "n1"}}
    subresource = "binding" if plural == "pods" else ""
    request = Request("CREATE", resource, SPACE, name, User(user), binding, None, subresource)
    assert bool(_denied(_records(api), request)) == refused
    assert api.asked == ["get pods"] * looks
