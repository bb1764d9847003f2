"""Endpoints and EndpointSlices of Services.

Three controllers, as in kube-controller-manager: slices from pods, Endpoints from pods, and slices that mirror the
Endpoints which users write for Services without a selector.
"""

from wharfinger.controllers.endpoints.controllers import EndpointsController, EndpointSliceController
from wharfinger.controllers.endpoints.mirroring import EndpointSliceMirroringController

__all__ = ["EndpointSliceController", "EndpointSliceMirroringController", "EndpointsController"]
