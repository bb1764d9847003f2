"""Resource classes in reports: what comparisons use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from wharfinger.api.conditions import statuses
from wharfinger.api.kinds.builtin import NODES, PODS, STATEFUL_SETS
from wharfinger.api.registry import Document, Resource
from wharfinger.contributions import ComparedKey, Sample, SystemReport
from wharfinger.systems.resource_class.kinds.names import NODE_COMPUTE_RESOURCES, RESOURCE_CLASSES


class ResourceClassReport(SystemReport):
    kinds = (RESOURCE_CLASSES,)
    compared_noun = "class"
    screen = "promises"
    screen_kinds = (RESOURCE_CLASSES, NODE_COMPUTE_RESOURCES, NODES, PODS)
    sample = Sample(
        files("wharfinger.systems.resource_class").joinpath("samples"),
        hints=("wharf classes",),
        # The pod that preempts comes after it.
        ready={STATEFUL_SETS.kind: lambda workload: (workload.get("status") or {}).get("readyReplicas") == 1},
    )

    def screen_view(self, objects: Callable[[Resource], Sequence[Document]], now: float) -> dict[str, list[Document]]:
        from wharfinger.systems.resource_class.screen import classes

        return classes(objects, now)

    def node_marks(self, objects: Callable[[Resource], Sequence[Document]]) -> dict[str, dict[str, Any]]:
        from wharfinger.systems.resource_class.screen import devices_of_nodes

        return devices_of_nodes(objects)

    def compared(self, objects: Callable[[Resource], Sequence[Document]]) -> dict[ComparedKey, Mapping[str, Any]]:
        """What each class matches."""
        state: dict[ComparedKey, Mapping[str, Any]] = {}
        for document in objects(RESOURCE_CLASSES):
            status = document.get("status") or {}
            state[RESOURCE_CLASSES.kind, "", document["metadata"]["name"]] = {
                "nodes": status.get("nodes", 0),
                "devices": status.get("devices", 0),
                "conditions": statuses(status.get("conditions") or ()),
            }
        return state
