"""The finalizers through which a propagation policy reaches the garbage collector."""

from __future__ import annotations

from collections.abc import Iterable

ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"


def with_propagation(finalizers: Iterable[str], policy: str, *, orphans: bool = False) -> list[str]:
    """The finalizers under a propagation policy; without a policy they stay as they are, except that objects of some
    kinds are deleted without their dependents then (`orphans`)."""
    finalizers = list(finalizers)
    if not policy:
        undecided = orphans and ORPHAN not in finalizers and FOREGROUND not in finalizers
        return [*finalizers, ORPHAN] if undecided else finalizers
    kept = [name for name in finalizers if name not in (ORPHAN, FOREGROUND)]
    return kept + {"Orphan": [ORPHAN], "Foreground": [FOREGROUND]}.get(policy, [])
