"""Volumes where no cluster provides them (embedded and simulated): claims are bound, provisioned and reclaimed."""

from wharfinger.controllers.volumes.binder import VolumeBinder
from wharfinger.controllers.volumes.ephemeral import EphemeralVolumes

__all__ = ["EphemeralVolumes", "VolumeBinder"]
