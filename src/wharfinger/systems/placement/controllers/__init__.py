"""The placement controllers: scheduling, maintenance of clusters, sets and bindings on the hub, and questions to
the agents of clusters."""

from __future__ import annotations

from typing import Any

from wharfinger.client.controller import Controller
from wharfinger.controllers.context import ControllerContext
from wharfinger.systems.placement.controllers.bindings import BindingController
from wharfinger.systems.placement.controllers.capacity import CapacityController
from wharfinger.systems.placement.controllers.clusters import ClusterController
from wharfinger.systems.placement.controllers.scheduling import PlacementController, PlacementMetrics
from wharfinger.systems.placement.controllers.sets import ClusterSetController


def placement_controllers(context: ControllerContext, metrics: PlacementMetrics | None = None) -> list[Controller[Any]]:
    """All placement controllers, for one process."""
    return [
        ClusterController(context),
        ClusterSetController(context),
        BindingController(context),
        PlacementController(context, metrics),
        CapacityController(context),
    ]


__all__ = [
    "BindingController",
    "CapacityController",
    "ClusterController",
    "ClusterSetController",
    "PlacementController",
    "PlacementMetrics",
    "placement_controllers",
]
