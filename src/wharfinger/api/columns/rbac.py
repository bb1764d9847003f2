"""Columns of roles and role bindings."""

from __future__ import annotations

from collections.abc import Callable

from wharfinger.api.columns.cells import AGE, CREATED_AT, computed
from wharfinger.api.registry import Document

ROLE_COLUMNS = (CREATED_AT,)


def _subjects(kind: str) -> Callable[[Document], str]:
    def of(binding: Document) -> str:
        names = []
        for subject in binding.get("subjects") or ():
            if subject.get("kind") == kind:
                prefix = f"{subject.get('namespace', '')}/" if kind == "ServiceAccount" else ""
                names.append(f"{prefix}{subject.get('name', '')}")
        return ", ".join(names)

    return of


def _role(binding: Document) -> str:
    reference = binding.get("roleRef") or {}
    return f"{reference.get('kind', '')}/{reference.get('name', '')}"


BINDING_COLUMNS = (
    computed("Role", _role),
    AGE,
    computed("Users", _subjects("User"), wide=True),
    computed("Groups", _subjects("Group"), wide=True),
    computed("ServiceAccounts", _subjects("ServiceAccount"), wide=True),
)
