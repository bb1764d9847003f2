"""Shows a pod's allocated devices in its container fields when it is bound."""

from __future__ import annotations

from wharfinger.api.registry import Document
from wharfinger.systems.resource_class.rules.compute_resources import (
    RECORD,
    RECORD_FIELD,
    BadRecord,
    as_fields,
    parse_record,
)

SHOWN_BY = (RECORD.encode(), RECORD_FIELD.encode())
"""What is in the JSON of a pod that `show_devices` changes."""


def show_devices(pod: Document) -> None:
    """Copies the pod's device record to `containers[].allocatedComputeResources`, in place of what was there."""
    text = (pod["metadata"].get("annotations") or {}).get(RECORD)
    try:
        fields = as_fields(parse_record(text)) if text else {}
    except BadRecord:
        fields = {}
    for container in (*(pod["spec"].get("initContainers") or ()), *(pod["spec"].get("containers") or ())):
        container.pop(RECORD_FIELD, None)
        if container.get("name") in fields:
            container[RECORD_FIELD] = fields[container["name"]]
