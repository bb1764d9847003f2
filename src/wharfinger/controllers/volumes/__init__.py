"""Volume controllers for embedded and simulated clusters: binding, provisioning, protection and reclaiming."""

from wharfinger.controllers.volumes.binder import VolumeBinder
from wharfinger.controllers.volumes.ephemeral import EphemeralVolumes
from wharfinger.controllers.volumes.protection import ClaimProtection, VolumeProtection

__all__ = ["ClaimProtection", "EphemeralVolumes", "VolumeBinder", "VolumeProtection"]
