"""The block of this system in the configuration document."""

from __future__ import annotations

from wharfinger.api.configuration import Block, Count


class PlacementSettings(Block, frozen=True):
    resync_seconds: Count = 0  # every placement is decided anew that often; 0: only when something that matters changed
    default_cluster_set: bool = True
