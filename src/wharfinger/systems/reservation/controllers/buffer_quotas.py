"""The quotas that limit CapacityBuffers, and what pods and reservations use of them."""

from __future__ import annotations

from collections.abc import Callable

from wharfinger.api import quota as quota_rules
from wharfinger.api.kinds.builtin import RESOURCE_QUOTAS
from wharfinger.api.resources import Amounts, nano
from wharfinger.api.views import ResourceQuota
from wharfinger.controllers.context import ControllerContext
from wharfinger.systems.reservation.admission.quota import reserved
from wharfinger.systems.reservation.admission.watched import WatchedCluster
from wharfinger.systems.reservation.kinds.names import RESERVATIONS
from wharfinger.systems.reservation.kinds.views import Reservation
from wharfinger.systems.reservation.rules.buffer_quotas import QuotaRoom, room_of
from wharfinger.systems.reservation.rules.buffers import BUFFER_LABEL
from wharfinger.systems.reservation.settings import ReservationSettings


class BufferQuotas:
    """One for each controller of CapacityBuffers."""

    def __init__(self, context: ControllerContext) -> None:
        self._now = context.now
        self._quotas = context.informers.of(RESOURCE_QUOTAS, ResourceQuota)
        self._charged = context.configuration.of(ReservationSettings).charge_quota
        if self._charged:
            self._cluster = WatchedCluster(context.informers)
            self._reservations = context.informers.of(RESERVATIONS, Reservation)
            self._pods = context.pods.index("namespace", lambda pod: (pod.metadata.namespace,))

    def add_handler(self, changed: Callable[[str], None]) -> None:
        """`changed` is called with the namespace of a quota that came, went, or has another usage."""

        def told(quota: ResourceQuota) -> None:
            changed(quota.metadata.namespace)

        self._quotas.add_handler(told, lambda old, new: told(new), told)

    def rooms(self, namespace: str) -> list[QuotaRoom]:
        """What the quotas of a namespace leave to buffers."""
        return [room_of(quota, self._used(quota)) for quota in self._quotas if quota.metadata.namespace == namespace]

    def _used(self, quota: ResourceQuota) -> Amounts:
        if not self._charged:
            return nano(quota.status.used)
        # The usage in the status has the chunks in it, or lacks all reservations, depending on whose controller counts.
        namespace = quota.metadata.namespace
        pods = list(self._pods.get(namespace))
        used: Amounts = {}
        for pod in pods:
            if quota_rules.pod_matches(quota, pod):
                quota_rules.add(used, quota_rules.pod_usage(pod, self._now()))
        if not quota_rules.is_scoped(quota):
            others = (each for each in self._reservations if BUFFER_LABEL not in each.metadata.labels)
            quota_rules.add(used, reserved(others, pods, namespace, self._cluster))
        return used
