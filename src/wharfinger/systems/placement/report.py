"""The placement part of run reports: the clusters that each placement selects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from wharfinger.api.conditions import find_condition
from wharfinger.api.registry import Document, Resource
from wharfinger.api.wording import listed, object_name
from wharfinger.contributions import ComparedKey, ReportSection, Sample, SystemReport
from wharfinger.systems.placement.kinds.names import PLACEMENT_DECISIONS, PLACEMENTS
from wharfinger.systems.placement.kinds.views import PLACEMENT_LABEL
from wharfinger.systems.placement.rules.pages import decided_clusters

_NAMED = 10  # clusters listed in a cell


class PlacementReport(SystemReport):
    kinds = (PLACEMENTS, PLACEMENT_DECISIONS)
    compared_noun = "placement"
    sample = Sample(
        files("wharfinger.systems.placement").joinpath("samples"),
        hints=("wharf explain placement sample/roomiest",),
        awaited=(PLACEMENT_DECISIONS,),
    )

    def sections(self, objects: Sequence[Document]) -> list[ReportSection]:
        decided = _decided(each for each in objects if each.get("kind") == PLACEMENT_DECISIONS.kind)
        rows: list[tuple[Any, ...]] = []
        for document in objects:
            if document.get("kind") != PLACEMENTS.kind:
                continue
            conditions = (document.get("status") or {}).get("conditions") or ()
            satisfied = find_condition(conditions, "PlacementSatisfied") or {}
            name = object_name(document)
            rows.append((name, satisfied.get("reason"), listed(decided.get(name, ()), _NAMED)))
        return [ReportSection("Placements", ("placement", "state", "clusters"), rows)]

    def compared(self, objects: Callable[[Resource], Sequence[Document]]) -> dict[ComparedKey, Mapping[str, Any]]:
        """The clusters of each placement, by name."""
        decided = _decided(objects(PLACEMENT_DECISIONS))
        state: dict[ComparedKey, Mapping[str, Any]] = {}
        for document in objects(PLACEMENTS):
            metadata = document["metadata"]
            clusters = sorted(decided.get(object_name(document), ()))
            state[PLACEMENTS.kind, metadata["namespace"], metadata["name"]] = {"clusters": clusters}
        return state


def _decided(decisions: Iterable[Document]) -> dict[str, list[str]]:
    """The selected clusters by namespace and name of the placement, in decision order."""
    found: dict[str, list[str]] = {}
    for document in decisions:
        metadata = document["metadata"]
        placement = (metadata.get("labels") or {}).get(PLACEMENT_LABEL, "")
        found.setdefault(f"{metadata.get('namespace')}/{placement}", []).extend(decided_clusters(document))
    return found
