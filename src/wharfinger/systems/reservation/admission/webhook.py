"""Reservations in admission on a real cluster: resizes that would take reserved resources are refused, and, if enabled,
pods that would use quota which is reserved. The cluster's own quota still limits what pods use."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from wharfinger.admission.request import Request
from wharfinger.api.errors import NotFound
from wharfinger.api.keys import ObjectKey
from wharfinger.api.kinds.builtin import NODES, PODS, RESOURCE_CLAIMS, RESOURCE_QUOTAS
from wharfinger.api.registry import Document
from wharfinger.api.views import Node, Pod, ResourceQuota, view
from wharfinger.client.timers import SystemClock
from wharfinger.systems.reservation.admission.quota import (
    ReservationQuotaReviewer,
    ReservedDevicesReviewer,
    ReservedRoomReviewer,
)
from wharfinger.systems.reservation.admission.resizing import RESIZE, GrowingPod
from wharfinger.systems.reservation.admission.watched import WatchedCluster
from wharfinger.systems.reservation.kinds.names import RESERVATIONS
from wharfinger.systems.reservation.kinds.views import Reservation
from wharfinger.systems.reservation.settings import ReservationSettings
from wharfinger.webhook.handler import Answer, Rule, WebhookContext, WebhookHandler

_DOCUMENT: type[Document] = dict
WATCH_LAG_SECONDS = 2.0  # seconds an admitted object counts before a watch reports it; a later step may still reject it


class WatchedReservedQuota(WatchedCluster):
    """A lookup over the informer caches and recently admitted objects that they do not contain yet."""

    def __init__(self, context: WebhookContext) -> None:
        super().__init__(context.informers)
        self._by_namespace = self._pods.index("namespace", lambda pod: (pod.metadata.namespace,))
        self._quotas = context.informers.of(RESOURCE_QUOTAS, ResourceQuota)
        self._reservations = context.informers.of(RESERVATIONS, Reservation)
        self._reservations.optional = True
        self._claims = context.informers.of(RESOURCE_CLAIMS, _DOCUMENT)
        self._claims.optional = True
        self._admitted: dict[tuple[str, str, str], tuple[float, Pod | Reservation]] = {}

    def admitted(self, request: Request) -> None:
        assert request.object is not None
        kind: type[Pod] | type[Reservation] = Pod if request.resource.plural == PODS.plural else Reservation
        key = (request.resource.plural, request.namespace, request.name)
        self._admitted[key] = (asyncio.get_running_loop().time() + WATCH_LAG_SECONDS, view(request.object, kind))

    def _unseen(self, plural: str, namespace: str, seen: set[str]) -> Iterator[Pod | Reservation]:
        now = asyncio.get_running_loop().time()
        self._admitted = {key: item for key, item in self._admitted.items() if item[0] > now}
        for (each, space, name), (_, admitted) in self._admitted.items():
            if each == plural and space == namespace and name not in seen:
                yield admitted

    def reservations(self) -> Iterable[Reservation]:
        known = list(self._reservations)
        unseen = self._unseen(RESERVATIONS.plural, "", {each.metadata.name for each in known})
        return known + [each for each in unseen if isinstance(each, Reservation)]

    def pods(self, namespace: str) -> Iterable[Pod]:
        known = list(self._by_namespace.get(namespace))
        unseen = self._unseen(PODS.plural, namespace, {each.metadata.name for each in known})
        return known + [each for each in unseen if isinstance(each, Pod)]

    def claims_in(self, namespace: str) -> Iterable[Document]:
        return [each for each in self._claims if each["metadata"].get("namespace") == namespace]

    def quotas(self, namespace: str) -> Iterable[ResourceQuota]:
        found = (quota for quota in self._quotas if quota.metadata.namespace == namespace)
        return sorted(found, key=lambda quota: quota.metadata.name)


class ReservationQuotaHandler(WebhookHandler):
    name = "reservation-quota"
    order = 200  # after the other handlers, as a rejected object uses no quota
    rules = (
        Rule("", (PODS.plural,), ("CREATE",)),
        Rule(RESOURCE_CLAIMS.group, (RESOURCE_CLAIMS.plural,), ("CREATE",)),
        Rule(RESERVATIONS.group, (RESERVATIONS.plural,)),
    )

    def __init__(self, context: WebhookContext) -> None:
        self._lookup = WatchedReservedQuota(context)
        now = SystemClock().now
        self._pods = ReservedRoomReviewer(self._lookup, now)
        self._reservations = ReservationQuotaReviewer(self._lookup, now)
        self._claims = ReservedDevicesReviewer(self._lookup)

    async def review(self, request: Request, *, mutating: bool) -> Answer:
        if request.resource.plural == RESOURCE_CLAIMS.plural:
            return Answer(self._claims.review(request))
        reviewer = self._pods if request.resource.plural == PODS.plural else self._reservations
        review = reviewer.review(request)
        if review.denied is None and request.operation == "CREATE" and not request.dry_run and request.name:
            self._lookup.admitted(request)
        return Answer(review)


class ResizeHandler(WebhookHandler):
    """Refuses in-place resizes that would take reserved resources."""

    name = "reservation-resize"
    order = 210  # after the quota of reservations
    rules = (Rule("", (f"{PODS.plural}/{RESIZE}",), ("UPDATE",)),)

    def __init__(self, context: WebhookContext) -> None:
        self._client = context.client
        self._honour_ignored = context.configuration.of(ReservationSettings).honour_ignored_label
        self._reservations = context.informers.of(RESERVATIONS, Reservation)
        self._reservations.optional = True
        self._admitted: dict[ObjectKey, tuple[float, Pod]] = {}  # pods that were just resized, with the end of the lag

    async def review(self, request: Request, *, mutating: bool) -> Answer:
        growing = GrowingPod.of(request, honour_ignored=self._honour_ignored)
        holding = [] if growing is None else growing.holding(self._reservations)
        if growing is None or not holding:
            return Answer()
        # Resizes are rare: reading the pods of one node costs less than a cache of all pods.
        try:
            node = await self._client.get(NODES, growing.node_name, view=Node)
        except NotFound:
            return Answer()
        page = await self._client.list(PODS, field_selector=f"spec.nodeName={growing.node_name}", view=Pod)
        now = asyncio.get_running_loop().time()
        self._admitted = {key: item for key, item in self._admitted.items() if item[0] > now}
        pods = [self._admitted.get(pod.metadata.key, (0.0, pod))[1] for pod in page.items]
        review = growing.review(request, node, pods, holding)
        if review.denied is None and not request.dry_run:
            self._admitted[growing.pod.metadata.key] = (now + WATCH_LAG_SECONDS, growing.pod)
        return Answer(review)


def handlers(context: WebhookContext) -> list[WebhookHandler]:
    found: list[WebhookHandler] = [ResizeHandler(context)]
    if context.configuration.of(ReservationSettings).charge_quota:
        found.append(ReservationQuotaHandler(context))
    return found
