"""The annotation in which client-side apply records the applied configuration, for the migration to server-side apply.

Upstream's field manager keeps it up to date for `kubectl` (lastappliedupdater.go), and lets that manager take over the
fields that client-side apply set and nobody changed since (lastappliedmanager.go).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from wharfinger.api.registry import Document
from wharfinger.api.schema.tree import Schema
from wharfinger.store import field_sets
from wharfinger.store.field_sets import FieldSet

if TYPE_CHECKING:
    from wharfinger.store.apply import Applied

MANAGER = "kubectl"
ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
_MOST_ANNOTATIONS = 256 * 1024  # bytes of all keys and values
_ENCODER = msgspec.json.Encoder(order="sorted")
_ESCAPES = (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026"), ("\u2028", "\\u2028"), ("\u2029", "\\u2029"))


def renewed(document: Document, config: Document) -> Document:
    """The document with the configuration in its annotation, if it has a non-empty one."""
    annotations = (document.get("metadata") or {}).get("annotations") or {}
    if not annotations.get(ANNOTATION):
        return document
    kept = {**annotations, ANNOTATION: _written(config)}
    if sum(len(key.encode()) + len(str(value).encode()) for key, value in kept.items()) > _MOST_ANNOTATIONS:
        del kept[ANNOTATION]
    return {**document, "metadata": {**document["metadata"], "annotations": kept}}


def _written(config: Document) -> str:
    """As Go encodes JSON: sorted keys, HTML characters escaped, and a newline at the end."""
    metadata = config["metadata"]
    if metadata.get("annotations"):
        others = {key: value for key, value in metadata["annotations"].items() if key != ANNOTATION}
        config = {**config, "metadata": {**metadata, "annotations": others}}
    text = _ENCODER.encode(config).decode()
    for plain, escaped in _ESCAPES:
        text = text.replace(plain, escaped)
    return text + "\n"


def unchanged_fields(schema: Schema, live: Document, request: Applied) -> FieldSet:
    """The fields that client-side apply set and that have not changed since."""
    text = ((live.get("metadata") or {}).get("annotations") or {}).get(ANNOTATION)
    try:
        last: Any = msgspec.json.decode(text or "null")
    except (msgspec.DecodeError, RecursionError):
        return frozenset()
    if not isinstance(last, dict) or last.get("apiVersion") != request.resource.api_version:
        return frozenset()
    if not isinstance(last.get("metadata"), dict):
        return frozenset()
    status = request.kind.status
    fields = field_sets.fields_of(schema, last, request.subresource, status=status)
    changed, removed = field_sets.compare(schema, last, live)
    return fields - changed - removed
