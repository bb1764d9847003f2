"""The schemas of Kubernetes' own kinds, from the data file that `scripts/openapi.py` makes."""

from __future__ import annotations

import gzip
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from wharfinger.api.registry import Document

PREFIX = "#/definitions/"
META = "io.k8s.apimachinery.pkg.apis.meta.v1."


@cache
def definitions() -> dict[str, Document]:
    """Every definition by its full name, as OpenAPI v2 schemas."""
    packed = files("wharfinger.apiserver").joinpath("data/definitions.json.gz").read_bytes()
    data: dict[str, Any] = msgspec.json.decode(gzip.decompress(packed))
    found: dict[str, Document] = data["definitions"]
    return found


@cache
def by_kind() -> dict[tuple[str, str, str], str]:
    """Group, version and kind to the name of the definition."""
    return {
        (entry["group"], entry["version"], entry["kind"]): name
        for name, schema in definitions().items()
        for entry in schema.get("x-kubernetes-group-version-kind", ())
    }


def definition_of(group: str, version: str, kind: str) -> str | None:
    return by_kind().get((group, version, kind))


def reference(name: str) -> Document:
    return {"$ref": PREFIX + name}


def target(schema: Document) -> str | None:
    """The definition that a schema refers to."""
    ref = schema.get("$ref")
    return ref[len(PREFIX) :] if isinstance(ref, str) else None
