"""Known kinds: the built-in ones, a module with a tuple `KINDS` for each family, and those of the systems.

`registry()` makes a new registry of all of them, to which kinds defined by users are added later.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from wharfinger.api.registry import Kind, Registry
from wharfinger.system import systems


@cache
def known_kinds() -> tuple[Kind, ...]:
    """The built-in kinds, by module name, and those of the systems."""
    names = sorted(info.name for info in pkgutil.iter_modules(__path__))
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    builtin = [_extended(kind) for module in modules for kind in getattr(module, "KINDS", ())]
    return (*builtin, *(kind for system in systems() for kind in system.kinds()))


def _extended(kind: Kind) -> Kind:
    for system in systems():
        extension = system.kind_extensions().get((kind.group, kind.plural))
        if extension is not None:
            kind = kind.extended(extension)
    return kind


@cache
def pod_templates() -> dict[tuple[str, str], Kind]:
    """Kinds with a pod template, by group and plural."""
    return {(kind.group, kind.plural): kind for kind in known_kinds() if kind.pod_template}


def registry() -> Registry:
    return Registry.of(known_kinds())
