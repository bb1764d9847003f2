"""Shows a pod's allocated devices in its container fields when it is bound."""

from __future__ import annotations

from wharfinger.api.registry import Document
from wharfinger.systems.resource_class.rules.compute_resources import RECORD, BadRecord, as_fields, parse_record


def show_devices(pod: Document) -> None:
    """Copies the pod's device record to `containers[].allocatedComputeResources`."""
    text = (pod["metadata"].get("annotations") or {}).get(RECORD)
    try:
        fields = as_fields(parse_record(text)) if text else {}
    except BadRecord:
        return
    for container in (*(pod["spec"].get("initContainers") or ()), *(pod["spec"].get("containers") or ())):
        if container.get("name") in fields:
            container["allocatedComputeResources"] = fields[container["name"]]
