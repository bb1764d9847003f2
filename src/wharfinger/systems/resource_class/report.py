"""Resource classes in reports: what comparisons use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from wharfinger.api.conditions import statuses
from wharfinger.api.registry import Document, Resource
from wharfinger.contributions import ComparedKey, Sample, SystemReport
from wharfinger.systems.resource_class.kinds.names import RESOURCE_CLASSES


class ResourceClassReport(SystemReport):
    kinds = (RESOURCE_CLASSES,)
    compared_noun = "class"
    sample = Sample(files("wharfinger.systems.resource_class").joinpath("samples"), hints=("wharf classes",))

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
