"""Records the quota used by reservations in an annotation on each ResourceQuota, for clusters whose own quota
controller does not count them. Inactive unless `reservation.chargeQuota` is set."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from wharfinger.admission.quota import QuotaExtension
from wharfinger.api import quota as rules
from wharfinger.api.errors import NotFound
from wharfinger.api.keys import ObjectKey
from wharfinger.api.kinds.builtin import RESOURCE_QUOTAS
from wharfinger.api.resources import Amounts
from wharfinger.api.views import Pod, ResourceQuota
from wharfinger.controllers.context import ContextController, ControllerContext
from wharfinger.controllers.pod_owner import BATCH_WINDOW
from wharfinger.systems.reservation.admission.quota import charged_namespace, reserved
from wharfinger.systems.reservation.admission.watched import WatchedCluster
from wharfinger.systems.reservation.kinds.names import RESERVATIONS
from wharfinger.systems.reservation.kinds.views import Reservation
from wharfinger.systems.reservation.settings import ReservationSettings

RESERVED = "wharfinger.dev/reserved"
"""The annotation: a JSON object of amounts by quota resource name."""


class ReservedQuotaController(ContextController[ObjectKey]):
    name = "reservedquota"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        if not context.configuration.of(ReservationSettings).charge_quota:
            return
        self._cluster = WatchedCluster(context.informers)
        self._quotas = context.informers.of(RESOURCE_QUOTAS, ResourceQuota)
        self._pods = context.pods
        self._pods_by_namespace = self._pods.index("namespace", lambda pod: (pod.metadata.namespace,))
        self._reservations = context.informers.of(RESERVATIONS, Reservation)
        self._quotas.add_handler(self._enqueue, lambda old, new: self._enqueue(new))
        self._pods.add_handler(self._pod_changed, self._pod_updated, self._pod_changed, while_any=self._quotas)
        self._reservations.add_handler(self._reservation_changed, self._reservation_updated, self._reservation_changed)

    async def reconcile(self, key: ObjectKey) -> None:
        namespace, name = key
        quota = self._quotas.get(name, namespace)
        if quota is None:
            return
        taken = {}
        if not rules.is_scoped(quota):
            pods = self._pods_by_namespace.get(namespace)
            amounts = reserved(self._reservations, pods, namespace, self._cluster)
            taken = {name: rules.shown(name, amounts[name]) for name in sorted(quota.spec.hard) if name in amounts}
        text = msgspec.json.encode(taken).decode() if taken else None
        if text == quota.metadata.annotations.get(RESERVED):
            return
        metadata = {"uid": quota.metadata.uid, "annotations": {RESERVED: text}}
        try:
            await self.client.patch(RESOURCE_QUOTAS, name, {"metadata": metadata}, namespace)
        except NotFound:
            return

    def _enqueue(self, quota: ResourceQuota) -> None:
        self.queue.add((quota.metadata.namespace, quota.metadata.name))

    def _namespace_changed(self, namespace: str) -> None:
        for quota in self._quotas:
            if quota.metadata.namespace == namespace:
                self.queue.add_after((namespace, quota.metadata.name), BATCH_WINDOW)

    def _pod_changed(self, pod: Pod) -> None:
        self._namespace_changed(pod.metadata.namespace)

    def _pod_updated(self, old: Pod, new: Pod) -> None:
        if old.spec != new.spec or old.terminal != new.terminal or old.metadata.annotations != new.metadata.annotations:
            self._pod_changed(new)

    def _reservation_changed(self, changed: Reservation) -> None:
        self._namespace_changed(charged_namespace(changed))

    def _reservation_updated(self, old: Reservation, new: Reservation) -> None:
        for each in (old, new):
            self._reservation_changed(each)


class WatchedReservations(QuotaExtension):
    """Charges unused reserved resources in the ResourceQuota controller."""

    def __init__(self, context: ControllerContext, changed: Callable[[str | None], None]) -> None:
        self._changed = changed
        self._cluster = WatchedCluster(context.informers)
        self._pods = context.pods
        self._pods_by_namespace = self._pods.index("namespace", lambda pod: (pod.metadata.namespace,))
        self._reservations = context.informers.of(RESERVATIONS, Reservation)
        self._reservations.add_handler(
            self._reservation_changed, lambda old, new: self._reservation_changed(new), self._reservation_changed
        )

    def held(self, namespace: str, coming: Pod | None = None) -> Amounts:
        pods = self._pods_by_namespace.get(namespace)
        return reserved(self._reservations, pods, namespace, self._cluster, self.names_of_all())

    def _reservation_changed(self, changed: Reservation) -> None:
        self._changed(charged_namespace(changed))


def watched_quota(context: ControllerContext, changed: Callable[[str | None], None]) -> QuotaExtension | None:
    """The quota extension for reservations; None if reservations are not charged."""
    charged = context.configuration.of(ReservationSettings).charge_quota
    return WatchedReservations(context, changed) if charged else None
