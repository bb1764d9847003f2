"""The placement part of run reports: the clusters that each placement selects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

import msgspec

from wharfinger.api.conditions import find_condition, statuses
from wharfinger.api.encoded import of_kind
from wharfinger.api.registry import Document, Resource
from wharfinger.api.wording import listed, object_name
from wharfinger.contributions import ComparedKey, ReportSection, Sample, SystemReport
from wharfinger.systems.placement.kinds.names import PLACEMENT_DECISIONS, PLACEMENTS, RESOURCES
from wharfinger.systems.placement.kinds.views import GROUP_INDEX_LABEL, GROUP_NAME_LABEL, PLACEMENT_LABEL
from wharfinger.systems.placement.rules.extras import REPLICAS
from wharfinger.systems.placement.rules.pages import decided_clusters

_NAMED = 10  # clusters listed in a cell


class PlacementReport(SystemReport):
    kinds = (PLACEMENTS, PLACEMENT_DECISIONS)
    compared_noun = "placement"
    screen = "fleet"
    screen_kinds = RESOURCES
    sample = Sample(
        files("wharfinger.systems.placement").joinpath("samples"),
        hints=("wharf explain placement sample/roomiest",),
        awaited=(PLACEMENT_DECISIONS,),
    )

    def screen_view(self, objects: Callable[[Resource], Sequence[Document]], now: float) -> dict[str, list[Document]]:
        from wharfinger.systems.placement.screen import fleet_view

        return fleet_view(objects, now)

    def sections(self, objects: Sequence[Document]) -> list[ReportSection]:
        decided = _decided(of_kind(objects, PLACEMENT_DECISIONS.kind))
        rows: list[tuple[Any, ...]] = []
        for document in of_kind(objects, PLACEMENTS.kind):
            conditions = (document.get("status") or {}).get("conditions") or ()
            satisfied = find_condition(conditions, "PlacementSatisfied") or {}
            name = object_name(document)
            rows.append((name, satisfied.get("reason"), listed(decided.get(name, ()), _NAMED)))
        return [ReportSection("Placements", ("placement", "state", "clusters"), rows)]

    def compared(self, objects: Callable[[Resource], Sequence[Document]]) -> dict[ComparedKey, Mapping[str, Any]]:
        """The clusters of each placement, its decision groups, the replicas of each cluster, and its conditions."""
        pages = objects(PLACEMENT_DECISIONS)
        decided, groups, replicas = _decided(pages), _groups(pages), _replicas(pages)
        state: dict[ComparedKey, Mapping[str, Any]] = {}
        for document in objects(PLACEMENTS):
            metadata, name = document["metadata"], object_name(document)
            facts: dict[str, Any] = {"clusters": sorted(decided.get(name, ()))}
            if len(groups.get(name, ())) > 1:
                facts["groups"] = groups[name]
            if replicas.get(name):
                facts["replicas"] = replicas[name]
            facts["conditions"] = statuses((document.get("status") or {}).get("conditions") or ())
            state[PLACEMENTS.kind, metadata["namespace"], metadata["name"]] = facts
        return state


def _decided(decisions: Iterable[Document]) -> dict[str, list[str]]:
    """The selected clusters by namespace and name of the placement, in decision order."""
    found: dict[str, list[str]] = {}
    for document in decisions:
        metadata = document["metadata"]
        placement = (metadata.get("labels") or {}).get(PLACEMENT_LABEL, "")
        found.setdefault(f"{metadata.get('namespace')}/{placement}", []).extend(decided_clusters(document))
    return found


def _groups(decisions: Iterable[Document]) -> dict[str, dict[str, list[str]]]:
    """The clusters of each decision group by name of the placement; unnamed groups have their index."""
    found: dict[str, dict[str, list[str]]] = {}
    for document in decisions:
        labels = document["metadata"].get("labels") or {}
        group = labels.get(GROUP_NAME_LABEL) or labels.get(GROUP_INDEX_LABEL, "0")
        placement = f"{document['metadata'].get('namespace')}/{labels.get(PLACEMENT_LABEL, '')}"
        members = found.setdefault(placement, {}).setdefault(group, [])
        members[:] = sorted([*members, *decided_clusters(document)])
    return found


def _replicas(decisions: Iterable[Document]) -> dict[str, dict[str, int]]:
    """The replicas of each cluster by name of the placement, where replicas are divided."""
    found: dict[str, dict[str, int]] = {}
    for document in decisions:
        metadata = document["metadata"]
        text = (metadata.get("annotations") or {}).get(REPLICAS)
        if text:
            placement = (metadata.get("labels") or {}).get(PLACEMENT_LABEL, "")
            found.setdefault(f"{metadata.get('namespace')}/{placement}", {}).update(msgspec.json.decode(text))
    return found
