"""Where a claim can be provisioned: the topologies its class allows, and the capacity its driver reports."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from wharfinger.api.quantity import NANO, value
from wharfinger.api.selectors import BadSelector, Requirements
from wharfinger.api.views import CSIStorageCapacity, StorageClass
from wharfinger.framework.columns import Bools, Rows
from wharfinger.plugins.volumes.catalogue import VolumeCatalogue
from wharfinger.plugins.volumes.rules import NO_PROVISIONER, on_rows, topologies


class Provisioning:
    """Of claims of one class and size."""

    def __init__(self, catalogue: VolumeCatalogue, class_name: str, size: int) -> None:
        self._catalogue = catalogue
        self._class_name = class_name
        self._bytes = -(-size // NANO)

    def possible(self, rows: Rows) -> Bools:
        """The rows where the class provisions at all."""
        found = self._class()
        if found is None:
            return np.zeros(len(rows), dtype=np.bool_)
        return on_rows(self._catalogue.tables, topologies(found), rows)

    def sufficient(self, rows: Rows) -> Bools:
        """The rows that reach enough capacity, where the driver wants that looked at."""
        found = self._class()
        driver = None if found is None else self._catalogue.drivers.get(found.provisioner)
        if driver is None or not driver.spec.storage_capacity:
            return np.ones(len(rows), dtype=np.bool_)
        reachable = np.zeros(len(rows), dtype=np.bool_)
        for selector in self._pools():
            reachable |= self._catalogue.tables.labelled(selector, rows)
        return reachable

    def _class(self) -> StorageClass | None:
        found = self._catalogue.classes.get(self._class_name)
        return None if found is None or found.provisioner in ("", NO_PROVISIONER) else found

    def _pools(self) -> Iterator[Requirements]:
        """The nodes of each pool that is large enough."""
        for each in self._catalogue.capacities.values():
            limit = volume_limit(each)
            if each.storage_class_name != self._class_name or limit is None or limit < self._bytes:
                continue
            if each.node_topology is not None:
                try:
                    yield each.node_topology.compile()
                except BadSelector:
                    continue


def volume_limit(capacity: CSIStorageCapacity) -> int | None:
    """The size of the largest volume a pool can take, in bytes; the stated maximum is more precise than what is free."""
    stated = capacity.capacity if capacity.maximum_volume_size is None else capacity.maximum_volume_size
    return None if stated is None else value(stated)
