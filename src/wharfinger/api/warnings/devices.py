"""Warnings about the kinds of dynamic resource allocation."""

from __future__ import annotations

from collections.abc import Iterator

from wharfinger.api.fields import show
from wharfinger.api.registry import Document


def slice_warnings(new: Document, old: Document | None) -> Iterator[str]:
    driver = (new.get("spec") or {}).get("driver") or ""
    if driver != driver.lower():
        yield f"spec.driver: driver names should be lowercase; {show(driver)} contains uppercase characters"
