"""Controllers of dynamic resource allocation: claims made from templates and their end, and eviction by device taints."""

from wharfinger.controllers.devices.resource_claims import ResourceClaimController
from wharfinger.controllers.devices.taint_eviction import DeviceTaintEvictionController

__all__ = ["DeviceTaintEvictionController", "ResourceClaimController"]
