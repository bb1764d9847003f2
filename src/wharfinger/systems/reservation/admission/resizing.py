"""Refuses in-place resizes that would take reserved resources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wharfinger.admission.quota import StoredObjects
from wharfinger.admission.reads import Derived, ObjectVersion, Reads
from wharfinger.admission.request import PASS, Request, Review
from wharfinger.api.kinds.builtin import NODES, PODS
from wharfinger.api.resources import Amounts
from wharfinger.api.views import Node, Pod, decode, view
from wharfinger.systems.reservation.kinds.names import RESERVATIONS
from wharfinger.systems.reservation.kinds.views import Reservation
from wharfinger.systems.reservation.rules.outgrowing import growth_of, resize_refusal
from wharfinger.systems.reservation.rules.reservations import IGNORED

RESIZE = "resize"


class GrowingPod:
    """A pod on a node that is about to grow."""

    def __init__(self, pod: Pod, growth: Amounts) -> None:
        self.pod = pod
        self.growth = growth

    @classmethod
    def of(cls, request: Request, *, honour_ignored: bool) -> GrowingPod | None:
        """None if the request is no growth, or the pod may use what is reserved for others."""
        if request.object is None or request.old is None:
            return None
        new = view(request.object, Pod)
        if not new.spec.node_name or (honour_ignored and new.metadata.labels.get(IGNORED) == "true"):
            return None
        growth = growth_of(view(request.old, Pod), new)
        return cls(new, growth) if growth else None

    @property
    def node_name(self) -> str:
        return self.pod.spec.node_name

    def holding(self, reservations: Iterable[Reservation]) -> list[Reservation]:
        """The reservations that hold its node."""
        return [each for each in reservations if each.holds and each.status.node_name == self.node_name]

    def review(self, request: Request, node: Node, pods: Iterable[Pod], holding: Sequence[Reservation]) -> Review:
        why = resize_refusal(node, pods, holding, self.pod, self.growth)
        return request.refused(why) if why else PASS


class ResizeReviewer:
    """For the embedded API server. Runs in the same step as the write, so that two resizes cannot both pass."""

    def __init__(self, objects: StoredObjects, *, honour_ignored: bool) -> None:
        self._objects = objects
        self._honour_ignored = honour_ignored
        self._reservations = Derived(objects, RESERVATIONS, _holding)

    def concerns(self, group: str, plural: str, subresource: str) -> bool:
        return (group, plural, subresource) == (PODS.group, PODS.plural, RESIZE)

    def review(self, request: Request) -> Review:
        growing = GrowingPod.of(request, honour_ignored=self._honour_ignored)
        if growing is None:
            return PASS
        holding = growing.holding(self._reservations.get())
        node = self._objects.peek(NODES, growing.node_name) if holding else None
        if node is None:
            return PASS
        return growing.review(
            request, decode(node.data, Node), stored_pods_on(self._objects, growing.node_name), holding
        )


def stored_pods_on(objects: Reads, node: str) -> list[Pod]:
    mentioned = f'"{node}"'.encode()  # most pods need not be decoded
    found = (decode(stored.data, Pod) for stored in objects.scan(PODS) if mentioned in stored.data)
    return [pod for pod in found if pod.spec.node_name == node]


def _holding(found: Sequence[ObjectVersion]) -> list[Reservation]:
    return [each for stored in found if (each := decode(stored.data, Reservation)).holds]
