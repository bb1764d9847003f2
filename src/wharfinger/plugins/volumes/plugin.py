"""The base class of the volume plugins, which share one catalogue."""

from __future__ import annotations

from typing import Any

from wharfinger.framework.plugin import Plugin
from wharfinger.framework.tables import Tables
from wharfinger.plugins.volumes.catalogue import catalogue_of


class VolumePlugin(Plugin):
    keys_volumes = True

    def __init__(self, tables: Tables, args: Any) -> None:
        super().__init__(tables, args)
        self._catalogue = catalogue_of(tables)

    def observe(self, kind: str, old: Any, new: Any) -> None:
        self._catalogue.observe(kind, old, new)
