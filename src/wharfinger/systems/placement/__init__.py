"""Placement: selects clusters of a fleet by filters and weighted scores. See the README in this folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wharfinger.system import System, command_of

if TYPE_CHECKING:
    import click

    from wharfinger.admission.extension import AdmissionContext, SystemReviewers
    from wharfinger.api.configuration import Block
    from wharfinger.api.registry import Kind
    from wharfinger.client.controller import Controller
    from wharfinger.contributions import Installation, SystemReport
    from wharfinger.controllers.context import ControllerContext
    from wharfinger.scenario.extension import ScenarioExtension
    from wharfinger.webhook.handler import WebhookContext, WebhookHandler


class PlacementSystem(System):
    name = "placement"
    order = 40

    def settings(self) -> type[Block]:
        from wharfinger.systems.placement.settings import PlacementSettings

        return PlacementSettings

    def kinds(self) -> Sequence[Kind]:
        from wharfinger.systems.placement.kinds import clusters, placement

        return (*clusters.KINDS, *placement.KINDS)

    def reviewers(self, context: AdmissionContext) -> SystemReviewers:
        from wharfinger.systems.placement.admission.reviewers import stored_reviewers

        return stored_reviewers(context)

    def webhook_handlers(self, context: WebhookContext) -> Sequence[WebhookHandler]:
        from wharfinger.systems.placement.admission.webhook import handlers

        return handlers(context)

    def controllers(self) -> Mapping[str, Callable[[ControllerContext], Controller[Any]]]:
        from wharfinger.systems.placement.controllers.bindings import BindingController
        from wharfinger.systems.placement.controllers.capacity import CapacityController
        from wharfinger.systems.placement.controllers.clusters import ClusterController
        from wharfinger.systems.placement.controllers.scheduling import PlacementController
        from wharfinger.systems.placement.controllers.sets import ClusterSetController

        return {
            "managedcluster": ClusterController,
            "managedclusterset": ClusterSetController,
            "managedclustersetbinding": BindingController,
            "placement": PlacementController,
            "capacity": CapacityController,
        }

    def commands(self) -> Mapping[str, Callable[[], click.Command]]:
        return {
            "placement": command_of("wharfinger.systems.placement.commands.placement"),
            "rollout": command_of("wharfinger.systems.placement.commands.rollout"),
            "score": command_of("wharfinger.systems.placement.commands.score"),
        }

    def explain_commands(self) -> Mapping[str, Callable[[], click.Command]]:
        return {"placement": command_of("wharfinger.systems.placement.commands.explain")}

    def scenario_extension(self) -> ScenarioExtension:
        from wharfinger.systems.placement.scenario import PlacementScenario

        return PlacementScenario()

    def report(self) -> SystemReport:
        from wharfinger.systems.placement.report import PlacementReport

        return PlacementReport()

    def installation(self) -> Installation:
        from wharfinger.systems.placement.install import INSTALLATION

        return INSTALLATION


system = PlacementSystem()
