"""The configuration block of this system."""

from __future__ import annotations

from wharfinger.api.configuration import Block, Count


class ResourceClassSettings(Block, frozen=True):
    groups: bool = False  # allow groupBy and groupSize
    rewrite_names: bool = False  # webhook: rewrite unqualified names to aliases
    overlay: bool = False  # webhook: add the raw request next to the class
    startup_grace_seconds: Count = 15 * 60  # how long a new node may take to publish its devices
