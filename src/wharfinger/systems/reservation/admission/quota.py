"""ResourceQuota for reservations, if enabled: unused reserved resources are charged to the namespace of the template.
Once a pod uses a reservation, the pod is charged for its share instead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Protocol

from wharfinger.admission.quota import QuotaExtension
from wharfinger.admission.reads import Reads
from wharfinger.admission.request import PASS, Request, Review
from wharfinger.api import quota as rules
from wharfinger.api.device_quota import device_claim_usage
from wharfinger.api.errors import forbidden
from wharfinger.api.kinds.builtin import NODES, PODS, RESOURCE_QUOTAS
from wharfinger.api.quantity import BadQuantity, parse_nano
from wharfinger.api.registry import Document
from wharfinger.api.resource_names import PLAIN, ResourceNames
from wharfinger.api.resources import Amounts
from wharfinger.api.selectors import BadSelector
from wharfinger.api.views import Node, Pod, ResourceQuota, decode, view
from wharfinger.api.views.pods import Container, PodSpec, ResourceRequirements
from wharfinger.systems.reservation.admission.device_quota import (
    ClaimTemplates,
    StoredClaimTemplates,
    devices_of,
    left_of,
)
from wharfinger.systems.reservation.admission.resizing import stored_pods_on
from wharfinger.systems.reservation.kinds.names import RESERVATIONS
from wharfinger.systems.reservation.kinds.views import Reservation
from wharfinger.systems.reservation.rules.owners import compile_owners, owned_by
from wharfinger.systems.reservation.rules.reservations import (
    BadReservation,
    template_of,
    uses,
    wanted_quantities,
)
from wharfinger.systems.reservation.rules.shares import ReservedShare, free_on, shares_of
from wharfinger.systems.reservation.rules.usable import can_use


def charged_namespace(reservation: Reservation) -> str:
    try:
        return template_of(reservation).metadata.namespace or "default"
    except BadReservation:
        return "default"


class ClusterLookup(Protocol):
    """The objects that decide whether a pod can use a reservation."""

    def pod(self, namespace: str, name: str) -> Pod | None: ...

    def node(self, name: str) -> Node | None: ...

    def pods_on(self, node: str) -> Iterable[Pod]: ...

    @property
    def claims(self) -> ClaimTemplates: ...


def reserved(
    reservations: Iterable[Reservation],
    pods: Iterable[Pod],
    namespace: str,
    lookup: ClusterLookup,
    names: ResourceNames = PLAIN,
) -> Amounts:
    """Quota usage of the reservations in a namespace, by quota resource name. `pods` are the pods of the namespace;
    consumers in other namespaces are looked up from the status of the reservation."""
    known = list(reservations)
    found = [each for each in known if not each.ended and charged_namespace(each) == namespace]
    if not found:
        return {}
    running = [pod for pod in pods if not pod.terminal]
    waiting = sorted(
        (pod for pod in running if not pod.spec.node_name),
        key=lambda pod: (pod.metadata.creation_timestamp or "~", pod.metadata.name),
    )
    total: Amounts = {}
    devices: Amounts = {}
    for reservation in sorted(found, key=lambda each: (each.metadata.creation_timestamp, each.metadata.name)):
        elsewhere = [
            pod
            for owner in reservation.status.current_owners
            if owner.namespace != namespace and (pod := lookup.pod(owner.namespace, owner.name)) is not None
        ]
        share = _share(reservation, [*running, *(pod for pod in elsewhere if not pod.terminal)])
        if share is None:
            continue
        node = lookup.node(reservation.status.node_name) if reservation.holds else None
        free = _free_on(node, known, lookup)
        users = [pod for pod in (*running, *elsewhere) if uses(pod) == reservation.metadata.uid]
        for pod in _owners_among(reservation, waiting):
            # An unscheduled owner that can use the reservation is expected to, so it is charged instead of it.
            if not can_use(pod, share, node, free):
                continue
            waiting.remove(pod)
            share.add(pod)
            users.append(pod)
            if reservation.once or not any(share.unused(name) for name in share.reserved):
                break
        for name in share.reserved:
            if amount := share.unused(name):
                total[name] = total.get(name, 0) + amount
        rules.add(devices, _devices_left(reservation, namespace, users, lookup.claims))
    charged = _quota_names(total, names)
    rules.add(charged, devices)
    return charged


def _devices_left(reservation: Reservation, namespace: str, users: Iterable[Pod], templates: ClaimTemplates) -> Amounts:
    """What is charged for devices that the reservation holds for claims, and that no user has yet."""
    wanted = devices_of(template_of(reservation).spec, namespace, templates)
    if not wanted:
        return {}
    return left_of(wanted, (devices_of(pod.spec, pod.metadata.namespace, templates) for pod in users))


def _free_on(node: Node | None, reservations: Sequence[Reservation], lookup: ClusterLookup) -> Callable[[], Amounts]:
    """What is free on a node, computed when it is needed, which is rare."""

    @cache
    def free() -> Amounts:
        if node is None:
            return {}
        name = node.metadata.name
        pods = [pod for pod in lookup.pods_on(name) if not pod.terminal]
        holding = (each for each in reservations if each.holds and each.status.node_name == name)
        return free_on(node, pods, shares_of(holding, pods).values())

    return free


def _share(reservation: Reservation, pods: Iterable[Pod]) -> ReservedShare | None:
    """What the reservation holds, or will hold according to its template, and what pods use; None if that is known not
    to be charged."""
    try:
        held = {name: parse_nano(quantity) for name, quantity in wanted_quantities(reservation).items()}
        for name, quantity in reservation.status.allocatable.items() if reservation.holds else ():
            held[name] = max(held.get(name, 0), parse_nano(quantity))
    except (BadReservation, BadQuantity):
        return None
    consumers = [pod for pod in pods if uses(pod) == reservation.metadata.uid]
    if consumers and reservation.once:
        return None  # used up: the remainder is about to be released
    return ReservedShare(reservation, consumers, held)


def _owners_among(reservation: Reservation, pods: Iterable[Pod]) -> list[Pod]:
    try:
        owners = compile_owners(reservation.spec.owners)
    except BadSelector:
        return []
    return [pod for pod in pods if owned_by(owners, pod)]


def _quota_names(amounts: Mapping[str, int], names: ResourceNames) -> Amounts:
    """Amounts by the quota names that a pod with these requests is charged under, without the pod count."""
    requests = {name: f"{amount}n" for name, amount in amounts.items()}
    pod = Pod(
        spec=PodSpec(containers=(Container(name="reserved", resources=ResourceRequirements(requests=dict(requests))),))
    )
    usage = rules.pod_usage(pod, 0.0, names)
    return {name: amount for name, amount in usage.items() if name not in ("pods", "count/pods")}


class ReservedQuotaLookup(ClusterLookup, Protocol):
    """The objects that quota decisions for reservations depend on."""

    def reservations(self) -> Iterable[Reservation]: ...

    def pods(self, namespace: str) -> Iterable[Pod]: ...

    def quotas(self, namespace: str) -> Iterable[ResourceQuota]: ...


class StoredReservedQuota:
    """A lookup that reads from the store."""

    def __init__(self, objects: Reads) -> None:
        self._objects = objects
        self.claims: ClaimTemplates = StoredClaimTemplates(objects)

    def reservations(self) -> list[Reservation]:
        return [decode(kept.data, Reservation) for kept in self._objects.scan(RESERVATIONS)]

    def pods(self, namespace: str) -> list[Pod]:
        return [decode(kept.data, Pod) for kept in self._objects.scan(PODS, namespace)]

    def pod(self, namespace: str, name: str) -> Pod | None:
        kept = self._objects.peek(PODS, name, namespace)
        return None if kept is None else decode(kept.data, Pod)

    def node(self, name: str) -> Node | None:
        kept = self._objects.peek(NODES, name)
        return None if kept is None else decode(kept.data, Node)

    def pods_on(self, node: str) -> list[Pod]:
        return stored_pods_on(self._objects, node)

    def quotas(self, namespace: str) -> list[ResourceQuota]:
        return [decode(kept.data, ResourceQuota) for kept in self._objects.scan(RESOURCE_QUOTAS, namespace)]


class ReservationQuotaReviewer:
    """Rejects reservations that exceed a quota, and reports reserved amounts to the quota reviewer for pods."""

    def __init__(self, lookup: ReservedQuotaLookup, now: Callable[[], float]) -> None:
        self._lookup = lookup
        self._now = now
        self.names: Callable[[], ResourceNames] = lambda: PLAIN  # names that mean the same resource

    def concerns(self, group: str, plural: str, subresource: str) -> bool:
        return (group, plural, subresource) == (RESERVATIONS.group, RESERVATIONS.plural, "")

    def used(self, namespace: str, pod: Pod | None = None) -> Amounts:
        """Reserved amounts in a namespace, assuming that `pod` has been created."""
        pods = _with(self._lookup.pods(namespace), pod)
        return reserved(self._lookup.reservations(), pods, namespace, self._lookup, self.names())

    def review(self, request: Request) -> Review:
        if request.object is None or request.operation not in ("CREATE", "UPDATE"):
            return PASS
        new = view(request.object, Reservation)
        namespace = charged_namespace(new)
        current, pods = list(self._lookup.reservations()), list(self._lookup.pods(namespace))
        others = [each for each in current if each.metadata.name != new.metadata.name]
        names = self.names()
        after = reserved([*others, new], pods, namespace, self._lookup, names)
        before = reserved(current, pods, namespace, self._lookup, names)
        wanted = {name: amount - before.get(name, 0) for name, amount in after.items()}
        used = _pods_used(pods, self._now(), names)
        rules.add(used, before)
        why = _refusal(self._lookup.quotas(namespace), wanted, used)
        return Review(denied=forbidden(RESERVATIONS.group, RESERVATIONS.plural, request.name, why)) if why else PASS


class ReservedRoomReviewer:
    """Rejects new pods that would need quota reserved in their namespace, for clusters whose own quota ignores
    reservations. The cluster's quota controller still checks the usage of the pods themselves."""

    def __init__(self, lookup: ReservedQuotaLookup, now: Callable[[], float]) -> None:
        self._lookup = lookup
        self._now = now

    def review(self, request: Request) -> Review:
        if request.object is None or request.operation != "CREATE" or request.subresource:
            return PASS
        pod, pods = view(request.object, Pod), list(self._lookup.pods(request.namespace))
        kept = reserved(self._lookup.reservations(), _with(pods, pod), request.namespace, self._lookup)
        wanted = {name: amount for name, amount in rules.pod_usage(pod, self._now()).items() if name in kept}
        if not wanted:
            return PASS
        used = _pods_used((each for each in pods if each.metadata.name != pod.metadata.name), self._now())
        rules.add(used, kept)
        why = _refusal(self._lookup.quotas(request.namespace), wanted, used)
        return Review(denied=forbidden(PODS.group, PODS.plural, request.name, why)) if why else PASS


class ReservedDevicesLookup(ReservedQuotaLookup, Protocol):
    def claims_in(self, namespace: str) -> Iterable[Document]: ...


class ReservedDevicesReviewer:
    """The same for new ResourceClaims, which would need devices that are reserved."""

    def __init__(self, lookup: ReservedDevicesLookup) -> None:
        self._lookup = lookup

    def review(self, request: Request) -> Review:
        if request.object is None or request.operation != "CREATE" or request.subresource:
            return PASS
        namespace, lookup = request.namespace, self._lookup
        kept = reserved(lookup.reservations(), lookup.pods(namespace), namespace, lookup)
        extended = lookup.claims.extended()
        charge = device_claim_usage(request.object, extended, {})
        wanted = {name: amount for name, amount in charge.items() if name in kept}
        if not wanted:
            return PASS
        used: Amounts = {}
        for claim in lookup.claims_in(namespace):
            rules.add(used, device_claim_usage(claim, extended, {}))
        rules.add(used, kept)
        why = _refusal(lookup.quotas(namespace), wanted, used)
        resource = request.resource
        return Review(denied=forbidden(resource.group, resource.plural, request.name, why)) if why else PASS


def _with(pods: Iterable[Pod], coming: Pod | None) -> list[Pod]:
    if coming is None:
        return list(pods)
    return [*(pod for pod in pods if pod.metadata.name != coming.metadata.name), coming]


def _refusal(quotas: Iterable[ResourceQuota], wanted: Amounts, used: Amounts) -> str:
    """Why the request exceeds an unscoped quota; empty if it exceeds none."""
    for quota in quotas:
        limits = rules.hard(quota)
        over = sorted(
            name
            for name, amount in wanted.items()
            if name in limits and amount > 0 and used.get(name, 0) + amount > limits[name]
        )
        if over and not rules.is_scoped(quota):
            numbers = ", ".join(
                f"{word}: {','.join(f'{name}={rules.shown(name, amounts.get(name, 0))}' for name in over)}"
                for word, amounts in (("requested", wanted), ("used", used), ("limited", limits))
            )
            return f"exceeded quota: {quota.metadata.name}, {numbers}"
    return ""


def _pods_used(pods: Iterable[Pod], now: float, names: ResourceNames = PLAIN) -> Amounts:
    total: Amounts = {}
    for pod in pods:
        rules.add(total, rules.pod_usage(pod, now, names))
    return total


class ReservedQuota(QuotaExtension):
    """Charges unused reserved resources to the namespace of the template."""

    def __init__(self, reviewer: ReservationQuotaReviewer) -> None:
        self._reviewer = reviewer
        reviewer.names = self.names_of_all

    def held(self, namespace: str, coming: Pod | None = None) -> Amounts:
        return self._reviewer.used(namespace, coming)
