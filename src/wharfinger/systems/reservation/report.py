"""Reservations in reports: the table of reservations and the state that comparisons use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from importlib.resources import files
from typing import Any

from wharfinger.api.conditions import find_condition
from wharfinger.api.encoded import of_kind
from wharfinger.api.kinds.builtin import NODES
from wharfinger.api.registry import Document, Resource
from wharfinger.api.resources import add_amounts, nano
from wharfinger.api.views import view
from wharfinger.api.wording import object_name
from wharfinger.contributions import ComparedKey, ReportSection, Sample, SystemReport
from wharfinger.systems.reservation.kinds.names import POD_MIGRATION_JOBS, RESERVATION_SETS, RESERVATIONS
from wharfinger.systems.reservation.kinds.views import Reservation
from wharfinger.systems.reservation.rules.reservations import ALLOCATED, expires_at


class ReservationReport(SystemReport):
    kinds = (RESERVATIONS,)
    compared_noun = "reservation"
    screen = "promises"
    screen_kinds = (RESERVATIONS, RESERVATION_SETS, POD_MIGRATION_JOBS)
    sample = Sample(
        files("wharfinger.systems.reservation").joinpath("samples"),
        hints=("wharf explain pod sample/checkout",),
        ready={RESERVATIONS.kind: lambda reservation: (reservation.get("status") or {}).get("phase") == "Available"},
    )

    def screen_view(self, objects: Callable[[Resource], Sequence[Document]], now: float) -> dict[str, list[Document]]:
        from wharfinger.systems.reservation.screen import promises

        return promises(objects, now)

    def node_marks(self, objects: Callable[[Resource], Sequence[Document]]) -> dict[str, dict[str, Any]]:
        from wharfinger.systems.reservation.screen import reserved_on_nodes

        return reserved_on_nodes(objects)

    def known_ends(self, objects: Callable[[Resource], Sequence[Document]]) -> dict[str, float]:
        """The expiry of reservations that hold a node."""
        found = {}
        for document in objects(RESERVATIONS):
            reservation = view(document, Reservation)
            if reservation.holds and (moment := expires_at(reservation)) is not None:
                found[f"Reservation {reservation.metadata.name} (expiry)"] = moment
        return found

    def lacking(self, pod_annotations: Collection[str]) -> dict[str, str]:
        if ALLOCATED not in pod_annotations:
            return {}
        return {RESERVATIONS.kind: "reserved resources look free"}

    def sections(self, objects: Sequence[Document]) -> list[ReportSection]:
        rows = []
        for document in of_kind(objects, RESERVATIONS.kind):
            status = document.get("status") or {}
            owners = ", ".join(
                f"{owner.get('namespace')}/{owner.get('name')}" for owner in status.get("currentOwners") or ()
            )
            phase = status.get("phase") or "Pending"
            rows.append((object_name(document), phase, status.get("nodeName"), owners, _reason(status)))
        return [ReportSection("Reservations", ("name", "phase", "node", "owners", "reason"), rows)]

    def measures(self, objects: Callable[[Resource], Sequence[Document]]) -> dict[str, float]:
        """The share of what reservations hold that their owners use, by resource."""
        held: dict[str, int] = {}
        taken: dict[str, int] = {}
        for document in objects(RESERVATIONS):
            status = document.get("status") or {}
            if status.get("phase") == "Available":
                add_amounts(held, nano(status.get("allocatable") or {}))
                add_amounts(taken, nano(status.get("allocated") or {}))
        return {f"reservation use {name}": taken.get(name, 0) / amount for name, amount in held.items() if amount}

    def compared(self, objects: Callable[[Resource], Sequence[Document]]) -> dict[ComparedKey, Mapping[str, Any]]:
        """The phase and node of each reservation, why it is not available, and whether its node accepts pods."""
        cordoned = {
            node["metadata"]["name"] for node in objects(NODES) if (node.get("spec") or {}).get("unschedulable")
        }
        state: dict[ComparedKey, Mapping[str, Any]] = {}
        for document in objects(RESERVATIONS):
            status = document.get("status") or {}
            facts = {"phase": status.get("phase"), "node": status.get("nodeName"), "message": _reason(status) or None}
            if status.get("phase") in ("Available", "Waiting") and status.get("nodeName") in cordoned:
                facts["usable"] = "no, its node is cordoned"
            state[RESERVATIONS.kind, "", document["metadata"]["name"]] = facts
        return state


def _reason(status: Document) -> str:
    """Why a reservation is not available; empty if it is."""
    kind = {"Available": "", "Waiting": "Ready", "Failed": "Ready"}.get(status.get("phase") or "Pending", "Scheduled")
    found = find_condition(status.get("conditions") or (), kind) or {}
    return str(found.get("message") or "") if found.get("status") == "False" else ""
