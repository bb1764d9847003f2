"""Placement, live: the scheduling controller, and the hub's housekeeping of clusters, sets and bindings."""

from __future__ import annotations

from typing import Any

from wharfinger.client.controller import Controller
from wharfinger.controllers.context import ControllerContext
from wharfinger.controllers.placement.bindings import BindingController
from wharfinger.controllers.placement.clusters import ClusterController
from wharfinger.controllers.placement.scheduling import PlacementController, PlacementMetrics
from wharfinger.controllers.placement.sets import ClusterSetController


def placement_controllers(context: ControllerContext, metrics: PlacementMetrics | None = None) -> list[Controller[Any]]:
    """All controllers of placement, for one process."""
    return [
        ClusterController(context),
        ClusterSetController(context),
        BindingController(context),
        PlacementController(context, metrics),
    ]


__all__ = [
    "BindingController",
    "ClusterController",
    "ClusterSetController",
    "PlacementController",
    "PlacementMetrics",
    "placement_controllers",
]
