"""The kinds we know: Kubernetes' own by family, a module each with a tuple `KINDS`, and those of the systems.

`registry()` makes a fresh registry of all of them; users' CustomResourceDefinitions are added to it later.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from wharfinger.api.registry import Kind, Registry
from wharfinger.system import systems


@cache
def known_kinds() -> tuple[Kind, ...]:
    """Every kind of every family, in the order of the file names, and those of the systems."""
    names = sorted(info.name for info in pkgutil.iter_modules(__path__))
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    builtin = [kind for module in modules for kind in getattr(module, "KINDS", ())]
    return (*builtin, *(kind for system in systems() for kind in system.kinds()))


def registry() -> Registry:
    return Registry.of(known_kinds())
