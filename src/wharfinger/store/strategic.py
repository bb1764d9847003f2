"""Strategic merge patches for Kubernetes' own kinds."""

from __future__ import annotations

from wharfinger.api.errors import UnsupportedMediaType
from wharfinger.api.registry import Document


def merged(target: Document, patch: Document, kind: str) -> Document:
    raise UnsupportedMediaType("strategic merge patches are not supported yet")
