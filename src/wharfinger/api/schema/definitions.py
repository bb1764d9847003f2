"""The OpenAPI (v2) definitions of Kubernetes' own types, and how schemas refer to them."""

from __future__ import annotations

import gzip
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

JsonSchema = dict[str, Any]
"""An OpenAPI schema as JSON, as it is served and as CustomResourceDefinitions carry it."""

PREFIX = "#/definitions/"
META = "io.k8s.apimachinery.pkg.apis.meta.v1."
OBJECT_META = META + "ObjectMeta"


@cache
def definitions() -> dict[str, JsonSchema]:
    """All definitions by full name, such as `io.k8s.api.core.v1.PodSpec`."""
    data = gzip.decompress((files("wharfinger.api") / "data" / "definitions.json.gz").read_bytes())
    found: dict[str, JsonSchema] = msgspec.json.decode(data)["definitions"]
    found.update(_DEVICES)
    for definition, properties in _EMBEDDED.items():
        found[definition]["properties"].update(properties)
    return found


@cache
def definition_name(group: str, version: str, kind: str) -> str | None:
    """The definition of a built-in kind; None for custom resources."""
    return _names_by_kind().get((group, version, kind))


@cache
def _names_by_kind() -> dict[tuple[str, str, str], str]:
    named = {}
    for name, schema in definitions().items():
        kinds = schema.get("x-kubernetes-group-version-kind", ())
        if len(kinds) == 1:  # DeleteOptions, WatchEvent and Status belong to every group
            named[kinds[0]["group"], kinds[0]["version"], kinds[0]["kind"]] = name
    return named


def reference(name: str) -> JsonSchema:
    """A schema that refers to a definition."""
    return {"$ref": PREFIX + name}


def target(schema: JsonSchema) -> str | None:
    """The definition that a schema refers to."""
    ref = schema.get("$ref")
    return ref[len(PREFIX) :] if isinstance(ref, str) else None


_CORE = "io.k8s.api.core.v1."
_STRING = {"type": "string"}
_STRINGS = {"type": "array", "items": _STRING}
_DEVICES: dict[str, JsonSchema] = {
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
        "description": "So many devices of one ComputeResource.",
        "type": "object",
        "required": ["computeResourceName", "count"],
        "properties": {"computeResourceName": _STRING, "count": {"type": "integer", "format": "int32"}},
    },
}
_EMBEDDED: dict[str, JsonSchema] = {
    f"{_CORE}NodeStatus": {
        "computeResources": {
            "description": "The node's devices by resource and properties.",
            "type": "array",
            "items": reference(f"{_CORE}ComputeResource"),
        }
    },
    f"{_CORE}Container": {
        "allocatedComputeResources": {
            "description": "The devices given to the container, by the name it asked for.",
            "type": "object",
            "additionalProperties": {"type": "array", "items": reference(f"{_CORE}AllocatedComputeResource")},
        }
    },
}
"""Fields that the embedded server has in addition to those of Kubernetes: devices of nodes and of containers."""
