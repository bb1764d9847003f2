"""The block of this system in the configuration document."""

from __future__ import annotations

from wharfinger.api.configuration import Block, Count


class ResourceClassSettings(Block, frozen=True):
    groups: bool = False  # groupBy and groupSize
    rewrite_names: bool = False  # the webhook rewrites unqualified names to aliases
    overlay: bool = False  # the webhook adds the raw request beside the class
    startup_grace_seconds: Count = 15 * 60  # how long a new node may stay silent before it counts without devices
