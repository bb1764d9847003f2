"""Class aliases for the ResourceQuota controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from wharfinger.admission.quota import QuotaExtension
from wharfinger.controllers.context import ControllerContext
from wharfinger.systems.resource_class.admission.quota import alias_names
from wharfinger.systems.resource_class.kinds.names import RESOURCE_CLASSES
from wharfinger.systems.resource_class.kinds.views import ResourceClass


class WatchedAliases(QuotaExtension):
    """Watches classes; recalculates all quotas when an alias changes."""

    def __init__(self, context: ControllerContext, changed: Callable[[str | None], None]) -> None:
        self._classes = context.informers.of(RESOURCE_CLASSES, ResourceClass)
        self._classes.optional = True  # the cluster may not have the ResourceClass CRD
        self._changed = changed
        self._classes.add_handler(self._class_changed, self._class_updated, self._class_changed)

    def aliases(self) -> Mapping[str, str]:
        return alias_names(self._classes)

    def _class_changed(self, changed: ResourceClass) -> None:
        self._changed(None)

    def _class_updated(self, old: ResourceClass, new: ResourceClass) -> None:
        if old.alias != new.alias:
            self._changed(None)
