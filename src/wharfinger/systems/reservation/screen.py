"""Reservations on the dashboard: who has what until when, and how much of it is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from wharfinger.api.quantity import BadQuantity, milli_value, value
from wharfinger.api.registry import Document, Resource
from wharfinger.api.resources import CPU
from wharfinger.api.times import time_or_none
from wharfinger.api.views import view
from wharfinger.systems.reservation.kinds.names import POD_MIGRATION_JOBS, RESERVATION_SETS, RESERVATIONS
from wharfinger.systems.reservation.kinds.views import Reservation
from wharfinger.systems.reservation.rules.reservations import expires_at

Objects = Callable[[Resource], Sequence[Document]]


def promises(objects: Objects, now: float) -> dict[str, list[Document]]:
    """Reservations with owner, node, time and use; sets of them; and migrations in progress."""
    return {
        "reservations": [_reservation(each, now) for each in objects(RESERVATIONS)],
        "sets": [_set(each) for each in objects(RESERVATION_SETS)],
        "migrations": [_migration(each) for each in objects(POD_MIGRATION_JOBS)],
    }


def reserved_on_nodes(objects: Objects) -> dict[str, dict[str, Any]]:
    """By node: what reservations hold and nobody uses yet, and the reservations themselves."""
    found: dict[str, dict[str, Any]] = {}
    for document in objects(RESERVATIONS):
        status = document.get("status") or {}
        node = status.get("nodeName")
        if not node or status.get("phase") not in ("Available", "Waiting"):
            continue
        mark = found.setdefault(node, {"reserved": {}, "reservations": []})
        held, used = _amounts(status.get("allocatable")), _amounts(status.get("allocated"))
        for name, amount in held.items():
            mark["reserved"][name] = mark["reserved"].get(name, 0) + max(0, amount - used.get(name, 0))
        mark["reservations"].append(
            {"name": document["metadata"]["name"], "allocatable": held, "allocated": used, "phase": status.get("phase")}
        )
    return found


def _reservation(document: Document, now: float) -> Document:
    status, metadata = document.get("status") or {}, document["metadata"]
    held, used = _amounts(status.get("allocatable")), _amounts(status.get("allocated"))
    percent = max((round(100 * used.get(name, 0) / amount) for name, amount in held.items() if amount), default=0)
    phase = status.get("phase") or "Pending"
    owners = [f"{each.get('namespace')}/{each.get('name')}" for each in status.get("currentOwners") or ()]
    node = status.get("nodeName") or ""
    return {
        "name": metadata["name"],
        "phase": phase,
        "node": node,
        "start": time_or_none(metadata.get("creationTimestamp")) or now,
        "end": _end(document),
        "owners": owners,
        "for": _wanted_owners(document),
        "allocatable": {name: str(amount) for name, amount in (status.get("allocatable") or {}).items()},
        "allocated": {name: str(amount) for name, amount in (status.get("allocated") or {}).items()},
        "usedPercent": percent,
        "summary": _summary(phase, node, owners, percent),
        "problem": _problem(status, phase),
    }


def _summary(phase: str, node: str, owners: list[str], percent: int) -> str:
    if phase in ("Available", "Waiting") and owners:
        return f"{percent}% used on {node} by {', '.join(owners[:3])}"
    if phase == "Available":
        return f"unused on {node}"
    return f"{phase}{f' on {node}' if node else ''}"


def _problem(status: Document, phase: str) -> str:
    if phase in ("Available", "Succeeded"):
        return ""
    wrong = [each for each in status.get("conditions") or () if each.get("status") == "False" and each.get("message")]
    return str(wrong[-1]["message"]) if wrong else ""


def _end(document: Document) -> float | None:
    try:
        return expires_at(view(document, Reservation))
    except (ValueError, msgspec.ValidationError):
        return None


def _wanted_owners(document: Document) -> list[str]:
    """Whom the reservation is for, in words."""
    found = []
    for owner in (document.get("spec") or {}).get("owners") or ():
        if labels := (owner.get("labelSelector") or {}).get("matchLabels"):
            found.append("pods with " + ",".join(f"{key}={value}" for key, value in sorted(labels.items())))
        elif controller := owner.get("controller"):
            found.append(
                f"pods of {controller.get('kind', '')} {controller.get('namespace', '')}/{controller.get('name', '')}"
            )
        elif object_ := owner.get("object"):
            found.append(f"pod {object_.get('namespace', '')}/{object_.get('name', '')}")
        else:
            found.append("pods that its selector matches")
    return found


def _set(document: Document) -> Document:
    status, spec = document.get("status") or {}, document.get("spec") or {}
    return {
        "name": document["metadata"]["name"],
        "replicas": spec.get("replicas", 0),
        **{name: status.get(name, 0) for name in ("available", "used", "waiting", "pending")},
    }


def _migration(document: Document) -> Document:
    status, spec = document.get("status") or {}, document.get("spec") or {}
    pod = spec.get("podRef") or {}
    return {
        "name": document["metadata"]["name"],
        "pod": f"{pod.get('namespace', '')}/{pod.get('name', '')}",
        "phase": status.get("phase") or "Pending",
        "paused": bool(spec.get("paused")),
        "node": status.get("nodeName") or "",
        "message": status.get("message") or status.get("reason") or "",
        "start": time_or_none(document["metadata"].get("creationTimestamp")),
    }


def _amounts(quantities: Mapping[str, Any] | None) -> dict[str, int]:
    found = {}
    for name, quantity in (quantities or {}).items():
        try:
            found[name] = milli_value(quantity) if name == CPU else value(quantity)
        except BadQuantity:
            continue
    return found
