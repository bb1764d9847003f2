"""Device classes, and which of them serves an extended resource."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from wharfinger.api.times import parse_time
from wharfinger.devices.slices import Document

IMPLICIT_PREFIX = "deviceclass.resource.kubernetes.io/"
GROUPED_RESOURCE = "wharfinger.dev/grouped-resource-name"
GROUP_BY = "wharfinger.dev/group-by"
GROUP_SIZE = "wharfinger.dev/group-size"
"""Annotations of a DeviceClass that serves an extended resource in groups. A stock scheduler does not know them, and does
not serve the resource."""


class DeviceGrouping(NamedTuple):
    """One unit of the resource is `size` devices of a node with the same value of the attribute."""

    resource: str
    attribute: str
    size: int


class DeviceClass:
    __slots__ = ("config", "created", "extended_resource", "grouping", "name", "selectors")

    def __init__(self, document: Document) -> None:
        spec: Document = document.get("spec") or {}
        self.name: str = document["metadata"]["name"]
        created = document["metadata"].get("creationTimestamp")
        self.created = parse_time(created) if created else None
        self.grouping = _grouping(document["metadata"].get("annotations") or {})
        named: str | None = spec.get("extendedResourceName")
        self.extended_resource = self.grouping.resource if named is None and self.grouping is not None else named
        self.selectors: tuple[str | None, ...] = tuple(
            (each.get("cel") or {}).get("expression") for each in spec.get("selectors") or ()
        )
        self.config: Sequence[Document] = spec.get("config") or ()

    def newer_than(self, other: DeviceClass) -> bool:
        """Which of two classes serves a resource that both name: the newer one, then the one with the lower name."""
        if self.created != other.created:
            return other.created is None or (self.created is not None and self.created > other.created)
        return self.name < other.name

    def grouping_of(self, resource: str) -> DeviceGrouping | None:
        """How the class serves an extended resource in groups; None if single devices serve it."""
        return self.grouping if self.grouping is not None and self.grouping.resource == resource else None


def _grouping(annotations: Document) -> DeviceGrouping | None:
    resource, attribute, size = (annotations.get(name) for name in (GROUPED_RESOURCE, GROUP_BY, GROUP_SIZE))
    if not resource or not attribute or not size or not (size.isascii() and size.isdigit()) or int(size) < 1:
        return None
    return DeviceGrouping(resource, attribute, int(size))


class DeviceClasses:
    """The classes by name, and by the extended resource that they serve.

    As in upstream's extendedresourcecache, a class that loses its resource name to another does not get its implicit
    name either, and classes are taken in as they come.
    """

    def __init__(self) -> None:
        self.by_name: dict[str, DeviceClass] = {}
        self._serving: dict[str, DeviceClass] = {}

    def __bool__(self) -> bool:
        return bool(self.by_name)

    @property
    def served(self) -> Collection[str]:
        """The extended resources that classes serve, as they come and go."""
        return self._serving.keys()

    def serving(self, resource: str) -> DeviceClass | None:
        """The class that serves an extended resource."""
        return self._serving.get(resource)

    def set(self, new: DeviceClass) -> None:
        old = self.by_name.get(new.name)
        self.by_name[new.name] = new
        rival = self._serving.get(new.extended_resource) if new.extended_resource is not None else None
        if rival is not None and rival.name != new.name and not new.newer_than(rival):
            return
        if old is not None:
            self._drop(old)
        if new.extended_resource is not None:
            self._serving[new.extended_resource] = new
        self._serving[IMPLICIT_PREFIX + new.name] = new

    def remove(self, name: str) -> None:
        old = self.by_name.pop(name, None)
        if old is not None:
            self._drop(old)

    def _drop(self, old: DeviceClass) -> None:
        self._serving.pop(IMPLICIT_PREFIX + old.name, None)
        if old.extended_resource is not None:
            self._serving.pop(old.extended_resource, None)
