"""The names under which quota counts devices: a class and its alias are counted together, raw resources separately."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from wharfinger.admission.quota import QuotaExtension, StoredObjects
from wharfinger.admission.reads import Derived
from wharfinger.api.views import decode
from wharfinger.systems.resource_class.kinds.names import RESOURCE_CLASSES
from wharfinger.systems.resource_class.kinds.views import ResourceClass


def alias_names(classes: Iterable[ResourceClass]) -> Mapping[str, str]:
    """Class names by alias. If classes share an alias, the first class by name gets it, as in scheduling."""
    return {each.alias: each.name for each in sorted(classes, key=lambda each: each.name, reverse=True)}


class StoredAliases(QuotaExtension):
    """The aliases of the classes in an in-process store."""

    def __init__(self, objects: StoredObjects) -> None:
        self._aliases = Derived(
            objects, RESOURCE_CLASSES, lambda found: alias_names(decode(each.data, ResourceClass) for each in found)
        )

    def aliases(self) -> Mapping[str, str]:
        return self._aliases.get()
