"""A class and its aliases are one name: the class name, under which quota and limit ranges count."""

from __future__ import annotations

from collections.abc import Iterable

from wharfinger.api.resource_names import ResourceNames
from wharfinger.systems.resource_class.kinds.views import ALIAS_PREFIX, ResourceClass, default_alias


class CountedNames(ResourceNames):
    """An alias names the class that has it now, else one that had it before. If classes share an alias, the first class
    by name gets it, as in scheduling. The default alias names its class also while there is no such class."""

    def __init__(self, classes: Iterable[ResourceClass]) -> None:
        self._classes: dict[str, str] = {}  # by alias
        self._aliases: dict[str, list[str]] = {}  # by class
        found = sorted(classes, key=lambda each: each.name, reverse=True)
        for each in found:
            self._classes |= dict.fromkeys(each.former_aliases, each.name)
        for each in found:
            self._classes[each.alias] = each.name
        for alias, name in sorted(self._classes.items()):
            self._aliases.setdefault(name, []).append(alias)

    def canonical(self, name: str) -> str:
        found = self._classes.get(name)
        if found is None:
            return name[len(ALIAS_PREFIX) :] if name.startswith(ALIAS_PREFIX) else name
        return found

    def others(self, name: str) -> Iterable[str]:
        if "/" in name:
            return ()
        default = default_alias(name)
        aliases = self._aliases.get(name, [])
        return aliases if default in self._classes else [*aliases, default]
