"""Warnings about ingresses."""

from __future__ import annotations

from collections.abc import Iterator

from wharfinger.api.registry import Document
from wharfinger.api.warnings.common import (
    annotations_of,
)

_INGRESS_CLASS = "kubernetes.io/ingress.class"


def ingress_warnings(new: Document, old: Document | None) -> Iterator[str]:
    if (
        old is None
        and _INGRESS_CLASS in annotations_of(new)
        and (new.get("spec") or {}).get("ingressClassName") is None
    ):
        yield f"annotation \"{_INGRESS_CLASS}\" is deprecated, please use 'spec.ingressClassName' instead"
