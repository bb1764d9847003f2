"""Warnings about runtime classes."""

from __future__ import annotations

from collections.abc import Iterator

from wharfinger.api.registry import Document
from wharfinger.api.warnings.common import deprecated_label


def runtime_class_warnings(new: Document, old: Document | None) -> Iterator[str]:
    for key in (new.get("scheduling") or {}).get("nodeSelector") or ():
        if why := deprecated_label(key):
            yield f"scheduling.nodeSelector: {why}"
