"""Provisioning that fails on purpose: so many times for whichever claim comes, or always, by an annotation."""

from __future__ import annotations

from dataclasses import dataclass

PROVISIONING = "wharfinger.dev/provisioning"  # on a claim or its class: `fail`
PROVISIONING_TIME = "wharfinger.dev/provisioning-time"  # on a claim or its class: how long it takes; `never` ends it


@dataclass(slots=True)
class ProvisionFaults:
    """What is still to go wrong; shared between a scenario and the provisioner."""

    failures: int = 0

    def fails(self) -> bool:
        if self.failures <= 0:
            return False
        self.failures -= 1
        return True
