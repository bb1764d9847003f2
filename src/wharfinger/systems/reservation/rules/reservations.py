"""The meaning of a reservation, independent of any cluster: annotations and labels, expiry, sizes, and its stand-in.

A reservation is scheduled as a *stand-in* (`wharfinger.framework.stand_ins`), which exists only in the scheduler.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeGuard

import msgspec

from wharfinger.api.defaults.pods import pod_of_template
from wharfinger.api.numbers import parse_int64
from wharfinger.api.quantity import BadQuantity, family, format_nano, parse_nano
from wharfinger.api.resources import Amounts, in_units, requests_nano
from wharfinger.api.times import parse_duration, parse_time
from wharfinger.api.views import ObjectMeta, Pod, view
from wharfinger.api.views.pods import Container, Quantities, ResourceRequirements
from wharfinger.framework.stand_ins import StandIn
from wharfinger.systems.reservation.kinds.views import PodTemplate, Reservation

DOMAIN = "scheduling.koordinator.sh"
ALLOCATED = f"{DOMAIN}/reservation-allocated"  # on a pod: {"name", "uid"} of the reservation it uses
AFFINITY = f"{DOMAIN}/reservation-affinity"
EXACT_MATCH = f"{DOMAIN}/exact-match-reservation"
IGNORED = f"{DOMAIN}/reservation-ignored"
ORDER = f"{DOMAIN}/reservation-order"
RESTRICTED_OPTIONS = f"{DOMAIN}/reservation-restricted-options"
RESIZE = f"{DOMAIN}/reservation-resize-allocatable"
INNER = "node.koordinator.sh/reservation"  # resources inside a reservation that no consumer may use
PRIORITY = "koordinator.sh/priority"
NOT_PREEMPTIBLE = f"{DOMAIN}/disable-preemptible"
PRE_ALLOCATION_REQUIRED = f"{DOMAIN}/pre-allocation-required"
PRE_ALLOCATABLE = "pod.koordinator.sh/is-pre-allocatable"
PRE_ALLOCATABLE_PRIORITY = "pod.koordinator.sh/pre-allocatable-priority"
PREEMPTOR = "wharfinger.dev/preemptor"  # label: uid of the preempting pod
MOVED_POD = "wharfinger.dev/moved-pod"  # annotation: uid of the pod whose replacement the reservation is for
RESERVE_POD = f"{DOMAIN}/reserve-pod"
RESERVATION_NODE = f"{DOMAIN}/reservation-node"

RESERVATION = "Reservation"
DEFAULT_TTL = "24h"
MAX_PRIORITY = (1 << 31) - 1
FOREIGN_NAMES = ("", "default-scheduler", "koord-scheduler")
"""Scheduler names in a template that select the default profile even if no profile has that name."""


class BadReservation(ValueError):
    """The reservation is invalid. The message names the field and the cause."""


# -- expiry


def expires_at(reservation: Reservation) -> float | None:
    """When the reservation expires; None if never. An explicit ttl of 0 disables expiry, including `expires`."""
    spec = reservation.spec
    moments = []
    if spec.ttl is not None or not spec.expires:
        ttl = ttl_seconds(DEFAULT_TTL if spec.ttl is None else spec.ttl)
        if ttl == 0:
            return None
        moments.append(parse_time(reservation.metadata.creation_timestamp) + ttl)
    if spec.expires:
        moments.append(parse_time(spec.expires))
    return min(moments)


def ttl_seconds(ttl: str | int) -> float:
    """The seconds of a ttl: a duration, or the number 0. Raises BadTime."""
    return parse_duration(str(ttl))


def expired(reservation: Reservation, now: float) -> bool:
    moment = expires_at(reservation)
    return moment is not None and now > moment


# -- sizes


def template_of(reservation: Reservation) -> PodTemplate:
    """The pod template with API server defaults applied, such as requests set from limits. Raises BadReservation if a
    field has the wrong type."""
    if reservation.spec.template is None:
        raise BadReservation("spec.template: Required value")
    try:
        return _template(msgspec.json.encode(reservation.spec.template))
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$")
        raise BadReservation(f"spec.template{path.rstrip('`')}: {message}") from None


@lru_cache(maxsize=256)  # several components ask, each several times
def _template(encoded: bytes) -> PodTemplate:
    return view(pod_of_template(msgspec.json.decode(encoded)), PodTemplate)


def annotated(metadata: ObjectMeta, annotation: str) -> dict[str, Any]:
    """The JSON object in an annotation; empty if the annotation is absent. Raises BadReservation."""
    text = metadata.annotations.get(annotation)
    if not text:
        return {}
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise BadReservation(f"metadata.annotations[{annotation}]: invalid JSON: {error}") from None
    if not isinstance(found, dict):
        raise BadReservation(f"metadata.annotations[{annotation}]: must be an object")
    return found


def annotated_quantities(metadata: ObjectMeta, annotation: str) -> Quantities:
    """The quantities under `resources` in a JSON annotation. Raises BadReservation."""
    resources = annotated(metadata, annotation).get("resources") or {}
    if not isinstance(resources, dict):
        raise BadReservation(f"metadata.annotations[{annotation}]: resources must be an object")
    for name, quantity in resources.items():
        try:
            if not isinstance(quantity, (str, int, float)) or parse_nano(quantity) < 0:
                raise BadQuantity("must be greater than or equal to 0")
        except BadQuantity as error:
            raise BadReservation(f"metadata.annotations[{annotation}]: resources[{name}]: {error}") from None
    return resources


def annotated_names(metadata: ObjectMeta, annotation: str, member: str) -> tuple[str, ...]:
    names = annotated(metadata, annotation).get(member) or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise BadReservation(f"metadata.annotations[{annotation}]: {member} must be a list of names")
    return tuple(names)


def wanted_quantities(reservation: Reservation) -> Quantities:
    """The requested resources in the form of `status.allocatable`: the template's requests, overridden by the resize
    annotation. Raises BadReservation."""
    template = template_of(reservation)
    try:
        amounts = requests_nano(Pod(ObjectMeta(), template.spec))
    except BadQuantity as error:
        raise BadReservation(f"spec.template.spec: {error}") from None
    families = _families(template)
    found: Quantities = {name: format_nano(amount, families.get(name, "decimal")) for name, amount in amounts.items()}
    for name, quantity in annotated_quantities(reservation.metadata, RESIZE).items():
        found[name] = format_nano(parse_nano(quantity), family(quantity))
    return found


def _families(template: PodTemplate) -> dict[str, str]:
    """The format of each resource's first quantity in the template; sums are written in that format."""
    spec = template.spec
    found: dict[str, str] = {}
    parts = [container.resources.requests for container in (*spec.containers, *spec.init_containers)]
    for quantities in (*([spec.resources.requests] if spec.resources else []), *parts, spec.overhead):
        for name, quantity in quantities.items():
            found.setdefault(name, family(quantity))
    return found


def amounts(quantities: Quantities) -> Amounts:
    """Quantities converted to the scheduler's units."""
    return in_units({name: parse_nano(quantity) for name, quantity in quantities.items()})


def written(nano: Mapping[str, int], like: Quantities) -> dict[str, str]:
    """Nano-unit sums as quantities, each in the format that `like` uses for the resource."""
    return {
        name: format_nano(amount, family(like[name]) if name in like else "decimal") for name, amount in nano.items()
    }


def order_of(reservation: Reservation) -> int:
    """The value of the order label; 0 if absent or not an integer."""
    return parse_int64(reservation.metadata.labels.get(ORDER, "")) or 0


# -- stand-ins


def stand_in_name(uid: str) -> str:
    return f"reservation/{uid}"


def mover_name(uid: str) -> str:
    return f"{stand_in_name(uid)}/mover"


def is_mover(pod: Pod) -> bool:
    """Whether the pod stands for a Waiting reservation that looks for a node where it need not wait."""
    return is_reservation(pod) and pod.metadata.name == mover_name(pod.metadata.uid)


def mover(reservation: Reservation, *, scheduler_name: str) -> StandIn:
    """The item for a Waiting reservation that looks for a node with enough room. Raises BadReservation."""
    status = msgspec.structs.replace(reservation.status, phase="Pending", node_name="", allocatable={})
    found = stand_in(msgspec.structs.replace(reservation, status=status), scheduler_name=scheduler_name)
    return msgspec.structs.replace(
        found, metadata=msgspec.structs.replace(found.metadata, name=mover_name(found.metadata.uid))
    )


def is_reservation(pod: Pod) -> TypeGuard[StandIn]:
    """Whether the pod is the stand-in of a reservation."""
    return isinstance(pod, StandIn) and pod.kind == RESERVATION


def stand_in(reservation: Reservation, *, scheduler_name: str = "", preempts: bool = False) -> StandIn:
    """The stand-in of a reservation. Once the reservation has a node, the stand-in requests what is reserved there.

    Without an explicit priority it goes to the front of the queue and never preempts; with one, it preempts only if
    `preempts` is set. Raises BadReservation.
    """
    template = template_of(reservation)
    metadata, spec = reservation.metadata, template.spec
    stated = spec.priority if spec.priority is not None else parse_int64(metadata.labels.get(PRIORITY, ""))
    annotations = {
        **template.metadata.annotations,
        **metadata.annotations,
        RESERVE_POD: "true",
    }
    annotations.pop(AFFINITY, None)  # a stand-in never uses a reservation itself
    if spec.node_name:
        annotations[RESERVATION_NODE] = spec.node_name
    sized = reservation.status.allocatable if reservation.holds else annotated_quantities(metadata, RESIZE)
    if sized:
        spec = _sized(spec, sized if reservation.holds else wanted_quantities(reservation))
    labels = {**template.metadata.labels, **metadata.labels}
    priority = MAX_PRIORITY if stated is None else stated
    return StandIn(
        ObjectMeta(
            name=stand_in_name(metadata.uid),
            namespace=template.metadata.namespace or "default",
            uid=metadata.uid,
            resource_version=metadata.resource_version,
            generation=metadata.generation,
            creation_timestamp=metadata.creation_timestamp,
            deletion_timestamp=metadata.deletion_timestamp,
            labels=labels,
            annotations=annotations,
        ),
        msgspec.structs.replace(
            spec,
            node_name=reservation.status.node_name if reservation.holds else "",
            scheduler_name=scheduler_name or spec.scheduler_name,
            priority=priority,
            preemption_policy=spec.preemption_policy if preempts and stated is not None else "Never",
            scheduling_gates=(),
        ),
        kind=RESERVATION,
        object_name=metadata.name,
        # A stand-in without an explicit priority goes to the front of the queue but does not take room nominated for
        # pods. A preemption guarantee may, because it acts on behalf of the preemptor.
        room_priority=0 if priority == MAX_PRIORITY and PREEMPTOR not in labels else priority,
    )


def _sized(spec: Any, quantities: Quantities) -> Any:
    """The pod spec with requests that add up to exactly these quantities."""
    first, *rest = spec.containers or (Container(name="reserved"),)
    bare = ResourceRequirements()
    return msgspec.structs.replace(
        spec,
        containers=(
            msgspec.structs.replace(first, resources=ResourceRequirements(requests=quantities)),
            *(msgspec.structs.replace(container, resources=bare) for container in rest),
        ),
        init_containers=tuple(msgspec.structs.replace(container, resources=bare) for container in spec.init_containers),
        overhead={},
        resources=None,
    )


# -- preemption guarantees

GUARANTEE_SLACK = 60.0  # seconds that a guarantee lasts beyond the time that its victims may take to stop


def guarantee_name(uid: str) -> str:
    """The name of the reservation that guarantees room for the preemptor with this uid."""
    return f"preemption-{uid}"


def is_guarantee(reservation: Reservation) -> bool:
    """Whether the scheduler created the reservation for a preemptor, which is its only owner."""
    uid, owners = reservation.metadata.labels.get(PREEMPTOR), reservation.spec.owners
    return (
        bool(uid)
        and reservation.metadata.name == guarantee_name(uid or "")
        and len(owners) == 1
        and owners[0].object is not None
        and owners[0].object.uid == uid
    )


# -- the allocation annotation of a pod


class Allocation(msgspec.Struct, frozen=True):
    """The reservation that a pod uses."""

    name: str
    uid: str


def allocation_of(metadata: ObjectMeta) -> Allocation | None:
    """The allocation recorded in the pod's annotation; None if absent or malformed."""
    text = metadata.annotations.get(ALLOCATED)
    if not text:
        return None
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None
    if not isinstance(found, dict) or not found.get("uid"):
        return None
    return Allocation(str(found.get("name") or ""), str(found["uid"]))


def uses(pod: Pod) -> str:
    """The uid of the reservation that a pod uses; empty if none. Only bound pods that have not terminated use one."""
    if not pod.spec.node_name or pod.terminal:
        return ""
    found = allocation_of(pod.metadata)
    return "" if found is None else found.uid


def allocation_text(name: str, uid: str) -> str:
    return msgspec.json.encode({"name": name, "uid": uid}).decode()
