"""The configuration block of this system."""

from __future__ import annotations

from wharfinger.api.configuration import Block


class ResourceClassSettings(Block, frozen=True):
    groups: bool = False  # allow groupBy and groupSize
    rewrite_names: bool = False  # webhook: rewrite unqualified names to aliases
    overlay: bool = False  # webhook: add the raw request next to the class
