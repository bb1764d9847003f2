"""Hashes of pod templates, and what in a template counts for them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

POD_TEMPLATE_HASH = "pod-template-hash"
REVISION_HASH = "controller-revision-hash"
_SAFE = "bcdfghjklmnpqrstvwxz2456789"  # no vowels and no look-alikes, as Kubernetes writes hashes into names


def normal_template(template: Mapping[str, Any], without_label: str = POD_TEMPLATE_HASH) -> Any:
    """The template with absent, null and empty members made equal, and without its own hash label."""
    metadata = dict(template.get("metadata") or {})
    labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key != without_label}
    return normal({**template, "metadata": {**metadata, "labels": labels}})


def same_template(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    return bool(normal_template(first) == normal_template(second))


def template_hash(value: Any, collisions: int | None = None) -> str:
    """A short text that names a template; `collisions` makes another one where two templates got the same."""
    data = msgspec.json.encode(normal(value), order="sorted")
    if collisions is not None:
        data += collisions.to_bytes(8, "little", signed=True)
    return safe_text(str(fnv1a(data)))


def safe_text(text: str) -> str:
    return "".join(_SAFE[ord(letter) % len(_SAFE)] for letter in text)


def fnv1a(data: bytes) -> int:
    """FNV-1a, 32 bits."""
    digest = 0x811C9DC5
    for byte in data:
        digest = ((digest ^ byte) * 0x01000193) & 0xFFFFFFFF
    return digest


def normal(value: Any) -> Any:
    if isinstance(value, Mapping):
        members = ((key, normal(item)) for key, item in value.items())
        return {key: item for key, item in members if item is not None and item != {} and item != []}
    if isinstance(value, list | tuple):
        return [normal(item) for item in value]
    return value
