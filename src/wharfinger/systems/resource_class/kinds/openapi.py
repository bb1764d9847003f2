"""Fields that the embedded API server adds to nodes and containers: devices and their allocation."""

from __future__ import annotations

from typing import Any

_CORE = "io.k8s.api.core.v1."
_STRING = {"type": "string"}
_STRINGS = {"type": "array", "items": _STRING}

DEFINITIONS: dict[str, dict[str, Any]] = {
    f"{_CORE}ComputeResource": {
        "description": "Devices of one raw resource that have the same properties.",
        "type": "object",
        "required": ["resourceName"],
        "properties": {
            "name": _STRING,
            "resourceName": _STRING,
            "properties": {"type": "object", "additionalProperties": _STRING},
            "devices": _STRINGS,
            "allocatableDevices": _STRINGS,
            **{name: {"description": "Reserved."} for name in ("deviceUnits", "owner", "isolationGuarantee")},
        },
    },
    f"{_CORE}AllocatedComputeResource": {
        "description": "A number of devices of one ComputeResource.",
        "type": "object",
        "required": ["computeResourceName", "count"],
        "properties": {"computeResourceName": _STRING, "count": {"type": "integer", "format": "int32"}},
    },
    f"{_CORE}NodeStatus": {
        "properties": {
            "computeResources": {
                "description": "The node's devices, grouped by resource and properties.",
                "type": "array",
                "items": {"$ref": f"#/definitions/{_CORE}ComputeResource"},
            }
        }
    },
    f"{_CORE}Container": {
        "properties": {
            "allocatedComputeResources": {
                "description": "The devices allocated to the container, by requested resource name.",
                "type": "object",
                "additionalProperties": {
                    "type": "array",
                    "items": {"$ref": f"#/definitions/{_CORE}AllocatedComputeResource"},
                },
            }
        }
    },
}
