"""Where a claim can be provisioned: the allowed topologies of its class, and the capacity that its driver reports."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from wharfinger.api.quantity import NANO, value
from wharfinger.api.selectors import BadSelector, Requirements
from wharfinger.api.views import CSIDriver, CSIStorageCapacity, StorageClass
from wharfinger.framework.columns import Bools, Ints, Rows
from wharfinger.plugins.volumes.catalogue import VolumeCatalogue
from wharfinger.plugins.volumes.rules import NO_PROVISIONER, on_rows, topologies


class Provisioning:
    """For claims of one class and size."""

    def __init__(self, catalogue: VolumeCatalogue, class_name: str, size: int) -> None:
        self._catalogue = catalogue
        self._class_name = class_name
        self.bytes = -(-size // NANO)

    def possible(self, rows: Rows) -> Bools:
        """The rows in the allowed topologies of the class."""
        found = self._class()
        if found is None:
            return np.zeros(len(rows), dtype=np.bool_)
        return on_rows(self._catalogue.tables, topologies(found), rows)

    def sufficient(self, rows: Rows) -> Bools:
        """The rows with enough capacity, or all rows if the driver does not want its capacity checked."""
        if self._checked_driver() is None:
            return np.ones(len(rows), dtype=np.bool_)
        reachable = np.zeros(len(rows), dtype=np.bool_)
        for _, selector in self._pools():
            reachable |= self._catalogue.tables.labelled(selector, rows)
        return reachable

    def _class(self) -> StorageClass | None:
        found = self._catalogue.classes.get(self._class_name)
        return None if found is None or found.provisioner in ("", NO_PROVISIONER) else found

    def capacity(self, rows: Rows) -> Ints:
        """The capacity in bytes of the pool that would serve each row; -1 where no capacity is checked or stated."""
        found = np.full(len(rows), -1, dtype=np.int64)
        driver = self._checked_driver()
        if driver is None:
            return found
        served = np.zeros(len(rows), dtype=np.bool_)
        for pool, selector in self._pools():
            here = self._catalogue.tables.labelled(selector, rows) & ~served
            served |= here
            # Upstream ends with an error where a pool states a maximum volume size, but no capacity.
            found[here] = -1 if pool.capacity is None else value(pool.capacity)
        return found

    def _checked_driver(self) -> CSIDriver | None:
        """The driver of the class, if it wants its capacity checked."""
        found = self._class()
        driver = None if found is None else self._catalogue.drivers.get(found.provisioner)
        return driver if driver is not None and driver.spec.storage_capacity else None

    def _pools(self) -> Iterator[tuple[CSIStorageCapacity, Requirements]]:
        """Each pool with enough capacity, and its node topology."""
        for each in self._catalogue.capacities.values():
            limit = volume_limit(each)
            if each.storage_class_name != self._class_name or limit is None or limit < self.bytes:
                continue
            if each.node_topology is not None:
                try:
                    yield each, each.node_topology.compile()
                except BadSelector:
                    continue


def volume_limit(capacity: CSIStorageCapacity) -> int | None:
    """The size of the largest volume that a pool can provision, in bytes: its maximum volume size, or else its capacity."""
    stated = capacity.capacity if capacity.maximum_volume_size is None else capacity.maximum_volume_size
    return None if stated is None else value(stated)
