"""Volumes where no cluster provides them (embedded and simulated): claims are bound, provisioned, protected and reclaimed."""

from wharfinger.controllers.volumes.binder import VolumeBinder
from wharfinger.controllers.volumes.ephemeral import EphemeralVolumes
from wharfinger.controllers.volumes.protection import ClaimProtection, VolumeProtection

__all__ = ["ClaimProtection", "EphemeralVolumes", "VolumeBinder", "VolumeProtection"]
