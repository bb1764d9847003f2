"""Defaults of role bindings."""

from __future__ import annotations

from wharfinger.api.defaults.walk import child, children, fill_text
from wharfinger.api.registry import Document

RBAC = "rbac.authorization.k8s.io"


def default_binding(document: Document) -> None:
    """Role bindings of both scopes."""
    reference = child(document, "roleRef")
    if reference:
        fill_text(reference, apiGroup=RBAC)
    for subject in children(document, "subjects"):
        if subject.get("kind") in ("User", "Group"):
            fill_text(subject, apiGroup=RBAC)
