"""Class aliases for the ResourceQuota controller."""

from __future__ import annotations

from collections.abc import Callable

from wharfinger.admission.quota import QuotaExtension
from wharfinger.api.resource_names import ResourceNames
from wharfinger.controllers.context import ControllerContext
from wharfinger.systems.resource_class.kinds.names import RESOURCE_CLASSES
from wharfinger.systems.resource_class.kinds.views import ResourceClass
from wharfinger.systems.resource_class.rules.counted_names import CountedNames


class WatchedAliases(QuotaExtension):
    """Watches classes; recalculates all quotas when an alias changes."""

    def __init__(self, context: ControllerContext, changed: Callable[[str | None], None]) -> None:
        self._classes = context.informers.of(RESOURCE_CLASSES, ResourceClass)
        self._classes.optional = True  # the cluster may not have the ResourceClass CRD
        self._changed = changed
        self._names: CountedNames | None = None
        self._classes.add_handler(self._class_changed, self._class_updated, self._class_changed)

    def names(self) -> ResourceNames:
        if self._names is None:
            self._names = CountedNames(self._classes)
        return self._names

    def _class_changed(self, changed: ResourceClass) -> None:
        self._names = None
        self._changed(None)

    def _class_updated(self, old: ResourceClass, new: ResourceClass) -> None:
        if (old.alias, old.former_aliases) != (new.alias, new.former_aliases):
            self._class_changed(new)
