"""Injected faults of the simulated provisioner: the next n provisionings fail, or those with an annotation."""

from __future__ import annotations

import msgspec

PROVISIONING = "wharfinger.dev/provisioning"  # on a claim or its class: `fail`
PROVISIONING_TIME = "wharfinger.dev/provisioning-time"  # on a claim or its class: a duration, or `never`


class ProvisionFaults(msgspec.Struct):
    """How many provisionings are still to fail. Shared by a scenario and the provisioner."""

    failures: int = 0

    def fails(self) -> bool:
        if self.failures <= 0:
            return False
        self.failures -= 1
        return True
