"""The OpenAPI (v2) definitions of Kubernetes' own types, and how schemas refer to them."""

from __future__ import annotations

import gzip
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from wharfinger.system import systems

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
    for system in systems():
        for name, definition in system.openapi_definitions().items():
            known = found.setdefault(name, definition)
            if known is not definition:
                known["properties"].update(definition["properties"])
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
