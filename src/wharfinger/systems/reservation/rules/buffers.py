"""What a CapacityBuffer comes to: the number of its chunks, its ReservationSet, and which chunks give way. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

from wharfinger.api.defaults.pods import pod_of_template
from wharfinger.api.quantity import parse_nano
from wharfinger.api.registry import Document
from wharfinger.api.resources import Amounts, requests_nano
from wharfinger.api.views import Pod, view
from wharfinger.systems.reservation.kinds.names import RESERVATION_SETS

BUFFER_LABEL = "wharfinger.dev/capacity-buffer"  # on the set and its reservations: NAMESPACE.NAME
LOWEST_PRIORITY = -(1 << 31)  # every pod is scheduled before a chunk
_LONGEST = 63


class UnclearBuffer(ValueError):
    """The buffer does not say how large it is."""


def set_name(namespace: str, name: str) -> str:
    """The name of the ReservationSet of a buffer."""
    plain = f"buffer-{namespace}.{name}"
    if len(plain) <= _LONGEST:
        return plain
    return f"buffer-{hashlib.sha256(plain.encode()).hexdigest()[:32]}"


def template_name(buffer: str) -> str:
    """The name of the PodTemplate that is kept for a buffer of a workload."""
    head, tail = "capacitybuffer-", "-pod-template"
    return f"{head}{buffer[: 253 - len(head) - len(tail)]}{tail}"


def chunk_of(template: Document) -> Pod:
    """A pod of the size of one chunk."""
    return view(pod_of_template(template), Pod)


def chunks(spec: Document, chunk: Pod, scalable_replicas: int | None) -> int:
    """How many chunks are wanted: the greater of replicas and percentage, within the limits. Raises UnclearBuffer."""
    found: list[int] = []
    if spec.get("replicas") is not None:
        found.append(max(0, spec["replicas"]))
    if spec.get("percentage") is not None and scalable_replicas is not None:
        found.append(max(0, spec["percentage"] * scalable_replicas // 100))
    if spec.get("limits") is not None:
        most = _within_limits(chunk, spec["limits"])
        return min(max(found, default=most), most)
    if not found:
        raise UnclearBuffer("replicas, percentage and limits are not defined")
    return max(found)


def _within_limits(chunk: Pod, limits: Mapping[str, str]) -> int:
    needs = requests_nano(chunk)
    found = [parse_nano(limits[name]) // amount for name, amount in needs.items() if amount > 0 and name in limits]
    if not found:
        raise UnclearBuffer("resources in configured limits not found in the pod template")
    return max(min(found), 0)


def reservation_set(namespace: str, name: str, template: Document, replicas: int) -> Document:
    """The chunks as reservations that every pod may use, and that are replaced once they are used."""
    metadata = template.get("metadata") or {}
    kept = {key: dict(metadata[key]) for key in ("labels", "annotations") if metadata.get(key)}
    return {
        "apiVersion": RESERVATION_SETS.api_version,
        "kind": RESERVATION_SETS.kind,
        "metadata": {"name": set_name(namespace, name), "labels": {BUFFER_LABEL: _label(namespace, name)}},
        "spec": {
            "replicas": replicas,
            "replaceUsed": True,
            "ttl": "0s",
            "owners": [{"labelSelector": {}}],
            "template": {
                "metadata": {**kept, "namespace": namespace},
                "spec": {**(template.get("spec") or {}), "priority": LOWEST_PRIORITY, "preemptionPolicy": "Never"},
            },
        },
    }


def _label(namespace: str, name: str) -> str:
    text = f"{namespace}.{name}"
    return text if len(text) <= _LONGEST else set_name(namespace, name)


def giving_way(
    needs: Amounts, free: Mapping[str, int], held: Sequence[tuple[str, Mapping[str, int]]]
) -> list[str] | None:
    """The fewest chunks on a node that have to go so that a pod fits; None if even all of them are too few. `held` has
    their names and what each keeps."""
    lacking = {name: amount - free.get(name, 0) for name, amount in needs.items() if amount > free.get(name, 0)}
    chosen: list[str] = []
    for name, amounts in sorted(held, key=lambda each: _helps(each[1], lacking), reverse=True):
        if not any(amount > 0 for amount in lacking.values()):
            break
        chosen.append(name)
        lacking = {resource: amount - amounts.get(resource, 0) for resource, amount in lacking.items()}
    return None if any(amount > 0 for amount in lacking.values()) else chosen


def _helps(amounts: Mapping[str, int], lacking: Mapping[str, int]) -> float:
    return sum(min(amounts.get(name, 0) / amount, 1.0) for name, amount in lacking.items() if amount > 0)


def total(many: Iterable[Mapping[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for amounts in many:
        for name, amount in amounts.items():
            found[name] = found.get(name, 0) + amount
    return found
