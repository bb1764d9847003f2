"""The kinds we know: Kubernetes' own by family, and ours a file each. A module here that has a tuple `KINDS` is found
by itself, so a new kind is a new file and no other change.

`registry()` makes a fresh registry of all of them; users' CustomResourceDefinitions are added to it later.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from wharfinger.api.registry import Kind, Registry


@cache
def known_kinds() -> tuple[Kind, ...]:
    """Every kind of every family, in the order of the file names."""
    names = sorted(info.name for info in pkgutil.iter_modules(__path__))
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    return tuple(kind for module in modules for kind in getattr(module, "KINDS", ()))


def registry() -> Registry:
    return Registry.of(known_kinds())
