"""Names and references among the schemas of Kubernetes' own kinds (`wharfinger.api.shapes` reads the data file)."""

from __future__ import annotations

from wharfinger.api.registry import Document

PREFIX = "#/definitions/"
META = "io.k8s.apimachinery.pkg.apis.meta.v1."


def reference(name: str) -> Document:
    return {"$ref": PREFIX + name}


def target(schema: Document) -> str | None:
    """The definition that a schema refers to."""
    ref = schema.get("$ref")
    return ref[len(PREFIX) :] if isinstance(ref, str) else None
