"""Resource policies in reports: the number of pods in each unit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from importlib.resources import files
from typing import Any

from wharfinger.api.conditions import statuses
from wharfinger.api.registry import Document, Resource
from wharfinger.api.wording import object_name
from wharfinger.contributions import ComparedKey, ReportSection, Sample, SystemReport
from wharfinger.systems.resource_policy.kinds.names import RESOURCE_POLICIES
from wharfinger.systems.resource_policy.rules.costs import POLICY


class ResourcePolicyReport(SystemReport):
    kinds = (RESOURCE_POLICIES,)
    compared_noun = "unit"
    sample = Sample(files("wharfinger.systems.resource_policy").joinpath("samples"))

    def lacking(self, pod_annotations: Collection[str]) -> dict[str, str]:
        if POLICY not in pod_annotations:
            return {}
        return {RESOURCE_POLICIES.kind: "new pods go to any node, and pods keep the deletion costs they have"}

    def sections(self, objects: Sequence[Document]) -> list[ReportSection]:
        rows: list[tuple[Any, ...]] = []
        for document in objects:
            if document.get("kind") != RESOURCE_POLICIES.kind:
                continue
            counts = _counts(document)
            for index, unit in enumerate((document.get("spec") or {}).get("units") or ()):
                name, maximum = unit.get("name") or f"unit-{index}", unit.get("maxCount")
                limit = "unlimited" if maximum is None else maximum
                rows.append((object_name(document), name, unit.get("priority", 0), counts.get(name, 0), limit))
        return [ReportSection("Resource policies", ("policy", "unit", "priority", "pods", "max"), rows)]

    def compared(self, objects: Callable[[Resource], Sequence[Document]]) -> dict[ComparedKey, Mapping[str, Any]]:
        """The number of pods in each unit of each policy, and its conditions."""
        state: dict[ComparedKey, Mapping[str, Any]] = {}
        for document in objects(RESOURCE_POLICIES):
            metadata = document["metadata"]
            counts = _counts(document)
            facts: dict[str, Any] = {"units": counts}
            if over := _over(document, counts):
                facts["over"] = over
            facts["conditions"] = statuses((document.get("status") or {}).get("conditions") or ())
            state[RESOURCE_POLICIES.kind, metadata["namespace"], metadata["name"]] = facts
        return state


def _over(document: Document, counts: Mapping[str, int]) -> dict[str, str]:
    """Units that hold more pods than their limit, which keeps them: no pod is evicted for a lower limit."""
    found = {}
    for index, unit in enumerate((document.get("spec") or {}).get("units") or ()):
        name, maximum = unit.get("name") or f"unit-{index}", unit.get("maxCount")
        if maximum is not None and counts.get(name, 0) > maximum:
            found[name] = f"{counts[name]} of {maximum}"
    return found


def _counts(policy: Document) -> dict[str, int]:
    return {unit.get("name"): unit.get("count", 0) for unit in (policy.get("status") or {}).get("units") or ()}
