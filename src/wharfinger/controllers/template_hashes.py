"""Hashes of pod templates, and which differences between templates count. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

POD_TEMPLATE_HASH = "pod-template-hash"
REVISION_HASH = "controller-revision-hash"
_SAFE = "bcdfghjklmnpqrstvwxz2456789"  # apimachinery's rand.SafeEncodeString: no vowels, no look-alikes


def same_template(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    ours, theirs = _without_hash(first), _without_hash(second)
    return ours == theirs or bool(normalized(ours) == normalized(theirs))


def _without_hash(template: Mapping[str, Any]) -> dict[str, Any]:
    metadata = dict(template.get("metadata") or {})
    labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key != POD_TEMPLATE_HASH}
    return {**template, "metadata": {**metadata, "labels": labels}}


def template_hash(template: Mapping[str, Any], collisions: int | None = None) -> str:
    """A short name for a template; `collisions` changes it if another template has the same hash."""
    data = msgspec.json.encode(normalized(template), order="sorted")
    if collisions is not None:
        data += collisions.to_bytes(8, "little", signed=True)
    return "".join(_SAFE[ord(digit) % len(_SAFE)] for digit in str(_fnv1a(data)))


def _fnv1a(data: bytes) -> int:
    """FNV-1a, 32 bits."""
    digest = 0x811C9DC5
    for byte in data:
        digest = ((digest ^ byte) * 0x01000193) & 0xFFFFFFFF
    return digest


def normalized(value: Any) -> Any:
    """The value without null and empty members, which mean the same as absent ones."""
    if isinstance(value, Mapping):
        members = ((key, normalized(item)) for key, item in value.items())
        return {key: item for key, item in members if item is not None and item != {} and item != []}
    if isinstance(value, list | tuple):
        return [normalized(item) for item in value]
    return value
