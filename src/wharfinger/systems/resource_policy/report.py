"""Resource policies in reports: the number of pods in each unit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from importlib.resources import files
from typing import Any

from wharfinger.api.conditions import statuses
from wharfinger.api.encoded import of_kind
from wharfinger.api.kinds.builtin import NODES, PODS
from wharfinger.api.registry import Document, Resource
from wharfinger.api.wording import object_name
from wharfinger.contributions import ComparedKey, ReportSection, Sample, SystemReport
from wharfinger.systems.resource_policy.kinds.names import RESOURCE_POLICIES
from wharfinger.systems.resource_policy.rules.costs import POLICY
from wharfinger.systems.resource_policy.rules.wording import maximum


class ResourcePolicyReport(SystemReport):
    kinds = (RESOURCE_POLICIES,)
    compared_noun = "unit"
    screen = "units"
    screen_kinds = (RESOURCE_POLICIES, NODES, PODS)
    sample = Sample(files("wharfinger.systems.resource_policy").joinpath("samples"))

    def screen_view(self, objects: Callable[[Resource], Sequence[Document]], now: float) -> dict[str, list[Document]]:
        from wharfinger.systems.resource_policy.screen import units_view

        return units_view(objects, now)

    def node_marks(self, objects: Callable[[Resource], Sequence[Document]]) -> dict[str, dict[str, Any]]:
        from wharfinger.systems.resource_policy.screen import units_of_nodes

        return units_of_nodes(objects)

    def lacking(self, pod_annotations: Collection[str]) -> dict[str, str]:
        if POLICY not in pod_annotations:
            return {}
        return {RESOURCE_POLICIES.kind: "new pods go to any node, and pods keep the deletion costs they have"}

    def sections(self, objects: Sequence[Document]) -> list[ReportSection]:
        rows: list[tuple[Any, ...]] = []
        for document in of_kind(objects, RESOURCE_POLICIES.kind):
            counts, spec = _counts(document), document.get("spec") or {}
            for index, unit in enumerate(spec.get("units") or ()):
                name = unit.get("name") or f"unit-{index}"
                most = maximum(unit.get("maxCount"), unit.get("maxPercent"), unit.get("maxResources") or {})
                each = " per group" if most and spec.get("matchLabelKeys") else ""
                pods, limit = counts.get(name, 0), f"{most}{each}" or "unlimited"
                state = ", ".join(_problems(document))
                rows.append((object_name(document), name, unit.get("priority", 0), pods, limit, state))
        return [ReportSection("Resource policies", ("policy", "unit", "priority", "pods", "max", "problems"), rows)]

    def measures(self, objects: Callable[[Resource], Sequence[Document]]) -> dict[str, float]:
        """How full each unit is: the share of its maximum, or the number of pods where it has none."""
        found: dict[str, float] = {}
        for document in objects(RESOURCE_POLICIES):
            counts = _counts(document)
            for index, unit in enumerate((document.get("spec") or {}).get("units") or ()):
                name = unit.get("name") or f"unit-{index}"
                most, pods = unit.get("maxCount"), counts.get(name, 0)
                title = f"{object_name(document)} {name}"
                found[f"unit fill {title}" if most else f"unit pods {title}"] = pods / most if most else pods
        return found

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


def _problems(policy: Document) -> list[str]:
    """The conditions that say that something is wrong."""
    conditions = (policy.get("status") or {}).get("conditions") or ()
    wrong = {
        ("Valid", "False"): "Invalid",
        ("Conflicting", "True"): "Conflicting",
        ("Overlapping", "True"): "Overlapping",
    }
    found = {wrong.get((each.get("type"), each.get("status"))) for each in conditions}
    return [name for name in wrong.values() if name in found]


def _over(document: Document, counts: Mapping[str, int]) -> dict[str, str]:
    """Units that hold more pods than their limit, which keeps them: no pod is evicted for a lower limit. With groups, the
    limit holds for each of them."""
    found = {}
    groups = {unit.get("name"): unit.get("groups") for unit in (document.get("status") or {}).get("units") or ()}
    for index, unit in enumerate((document.get("spec") or {}).get("units") or ()):
        name, most = unit.get("name") or f"unit-{index}", unit.get("maxCount")
        count = max((group.get("count", 0) for group in groups.get(name) or ()), default=counts.get(name, 0))
        if most is not None and count > most:
            found[name] = f"{count} of {most}"
    return found


def _counts(policy: Document) -> dict[str, int]:
    return {unit.get("name"): unit.get("count", 0) for unit in (policy.get("status") or {}).get("units") or ()}
