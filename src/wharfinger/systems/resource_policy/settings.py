"""The `resourcePolicy` block of the configuration document."""

from __future__ import annotations

from wharfinger.api.configuration import Block


class ResourcePolicySettings(Block, frozen=True):
    deletion_cost: bool = True  # the controller sets pod deletion costs
