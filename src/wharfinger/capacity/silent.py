"""New nodes that have not published their devices yet: they count as their template, so that no second node is requested
for the same pods."""

from __future__ import annotations

import copy
from collections.abc import Iterable

from wharfinger.api.node_groups import DeviceTemplate, NodeGroup
from wharfinger.api.registry import Document
from wharfinger.capacity.models import INVENTORY


def is_silent(node: Document, beside: Iterable[Document], group: NodeGroup) -> bool:
    """Whether the node has not yet published all devices of its template. Published ones may have more properties."""
    there = list((node.get("status") or {}).get("computeResources") or ())
    slices = dict[str, int]()
    for each in beside:
        spec = each.get("spec") or {}
        if each["kind"] == INVENTORY:
            there += spec.get("computeResources") or ()
        elif each["kind"] == "ResourceSlice":
            slices[spec.get("driver", "")] = slices.get(spec.get("driver", ""), 0) + len(spec.get("devices") or ())
    for wanted in group.spec.template.compute_resources:
        if sum(len(set(each.get("devices") or ())) for each in there if _is_one(each, wanted)) < wanted.count:
            return True
    return any(slices.get(each.driver, 0) < len(each.devices) for each in group.spec.template.resource_slices)


def promised(node: Document, group: NodeGroup) -> Document:
    """The node as it will be once started: with its devices and without taints."""
    name = node["metadata"]["name"]
    made = copy.deepcopy(group.documents(name)[0])
    made["metadata"] = copy.deepcopy(node["metadata"])
    made["status"]["allocatable"] |= (node.get("status") or {}).get("allocatable") or {}
    return made


def _is_one(published: Document, wanted: DeviceTemplate) -> bool:
    properties = published.get("properties") or {}
    return published.get("resourceName") == wanted.resource_name and wanted.properties.items() <= properties.items()
