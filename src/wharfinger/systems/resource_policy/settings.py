"""The block of this system in the configuration document."""

from __future__ import annotations

from wharfinger.api.configuration import Block


class ResourcePolicySettings(Block, frozen=True):
    deletion_cost: bool = True  # whether the controller writes pod deletion costs
