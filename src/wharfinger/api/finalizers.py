"""The finalizers through which a propagation policy reaches the garbage collector."""

from __future__ import annotations

from collections.abc import Iterable

ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"


def with_propagation(finalizers: Iterable[str], policy: str) -> list[str]:
    """The finalizers under a propagation policy; without a policy they stay as they are."""
    if not policy:
        return list(finalizers)
    kept = [name for name in finalizers if name not in (ORPHAN, FOREGROUND)]
    return kept + {"Orphan": [ORPHAN], "Foreground": [FOREGROUND]}.get(policy, [])
