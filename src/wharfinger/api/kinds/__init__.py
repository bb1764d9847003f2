"""The kinds we know: Kubernetes' own by family, and ours a file each, every file with its tuple `KINDS`.

`registry()` makes a fresh registry of all of them; users' CustomResourceDefinitions are added to it later.
"""

from __future__ import annotations

from wharfinger.api.registry import Registry


def registry() -> Registry:
    return Registry.of(())
