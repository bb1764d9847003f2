"""Which plugins there are: the stock ones, those of the systems, and those that other packages register.

Other packages register plugin classes through the entry-point group `wharfinger.plugins`.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from wharfinger import plugins as package
from wharfinger.api.kubernetes_version import REFERENCE, KubernetesVersion
from wharfinger.engine.unsupported import Unsupported
from wharfinger.entry_points import entry_points
from wharfinger.framework.plugin import Plugin
from wharfinger.system import systems

GROUP = "wharfinger.plugins"


class BadPlugin(ValueError):
    """A registered plugin is invalid."""


@cache
def known_plugins(kubernetes: KubernetesVersion = REFERENCE) -> dict[str, type[Plugin]]:
    """All plugin classes by name, in the order in which they run by default in this version."""
    found: list[type[Plugin]] = []
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        found += getattr(importlib.import_module(info.name), "plugins", ())
    found.append(Unsupported)
    for system in systems():
        found += system.plugins()
    for point in entry_points(GROUP):
        found.append(_checked(point.load(), f"{GROUP}: {point.name} = {point.value}"))
    return in_order(found, kubernetes)


def in_order(classes: list[type[Plugin]], kubernetes: KubernetesVersion = REFERENCE) -> dict[str, type[Plugin]]:
    ordered: dict[str, type[Plugin]] = {}
    for each in sorted(classes, key=lambda each: each.earlier_positions.get(kubernetes, each.position)):
        if each.name in ordered and ordered[each.name] is not each:
            raise BadPlugin(f"two plugins are called {each.name}: {ordered[each.name].__module__}, {each.__module__}")
        ordered[each.name] = each
    return ordered


def _checked(loaded: object, where: str) -> type[Plugin]:
    if not (isinstance(loaded, type) and issubclass(loaded, Plugin) and loaded.name):
        raise BadPlugin(f"{where}: not a subclass of Plugin with a name")
    return loaded
