"""Reservations in reports: the table of reservations and the state that comparisons use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from importlib.resources import files
from typing import Any

from wharfinger.api.registry import Document, Resource
from wharfinger.api.wording import object_name
from wharfinger.contributions import ComparedKey, ReportSection, Sample, SystemReport
from wharfinger.systems.reservation.kinds.names import RESERVATIONS
from wharfinger.systems.reservation.rules.reservations import ALLOCATED


class ReservationReport(SystemReport):
    kinds = (RESERVATIONS,)
    compared_noun = "reservation"
    sample = Sample(
        files("wharfinger.systems.reservation").joinpath("samples"),
        hints=("wharf explain pod sample/checkout",),
        ready={RESERVATIONS.kind: lambda reservation: (reservation.get("status") or {}).get("phase") == "Available"},
    )

    def lacking(self, pod_annotations: Collection[str]) -> dict[str, str]:
        if ALLOCATED not in pod_annotations:
            return {}
        return {RESERVATIONS.kind: "reserved resources look free"}

    def sections(self, objects: Sequence[Document]) -> list[ReportSection]:
        rows = []
        for document in objects:
            if document.get("kind") != RESERVATIONS.kind:
                continue
            status = document.get("status") or {}
            owners = ", ".join(
                f"{owner.get('namespace')}/{owner.get('name')}" for owner in status.get("currentOwners") or ()
            )
            rows.append((object_name(document), status.get("phase") or "Pending", status.get("nodeName"), owners))
        return [ReportSection("Reservations", ("name", "phase", "node", "owners"), rows)]

    def compared(self, objects: Callable[[Resource], Sequence[Document]]) -> dict[ComparedKey, Mapping[str, Any]]:
        """The phase and node of each reservation."""
        state: dict[ComparedKey, Mapping[str, Any]] = {}
        for document in objects(RESERVATIONS):
            status = document.get("status") or {}
            facts = {"phase": status.get("phase"), "node": status.get("nodeName")}
            state[RESERVATIONS.kind, "", document["metadata"]["name"]] = facts
        return state
