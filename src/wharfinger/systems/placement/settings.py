"""The configuration block of this system."""

from __future__ import annotations

from wharfinger.api.configuration import Block, Count


class PlacementSettings(Block, frozen=True):
    resync_seconds: Count = 0  # interval at which all placements are decided again; 0: only on changes
    default_cluster_set: bool = True
