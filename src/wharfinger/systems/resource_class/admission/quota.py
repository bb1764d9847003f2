"""The names under which quota counts devices: a class and its alias are counted together, raw resources separately."""

from __future__ import annotations

from wharfinger.admission.quota import QuotaExtension, StoredObjects
from wharfinger.admission.reads import Derived
from wharfinger.api.resource_names import ResourceNames
from wharfinger.api.views import decode
from wharfinger.systems.resource_class.kinds.names import RESOURCE_CLASSES
from wharfinger.systems.resource_class.kinds.views import ResourceClass
from wharfinger.systems.resource_class.rules.counted_names import CountedNames


class StoredAliases(QuotaExtension):
    """The aliases of the classes in an in-process store."""

    def __init__(self, objects: StoredObjects) -> None:
        self._names = Derived(
            objects, RESOURCE_CLASSES, lambda found: CountedNames(decode(each.data, ResourceClass) for each in found)
        )

    def names(self) -> ResourceNames:
        return self._names.get()
