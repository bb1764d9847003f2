"""Placement: selects clusters of a fleet by filters and weighted scores. See the README in this folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wharfinger.system import System

if TYPE_CHECKING:
    import click

    from wharfinger.admission.extension import AdmissionContext, SystemReviewers
    from wharfinger.api.configuration import Block
    from wharfinger.api.registry import Document, Kind, Resource
    from wharfinger.client.controller import Controller
    from wharfinger.contributions import (
        ComparedKey,
        EmbeddedAccess,
        InstallComponent,
        ReportSection,
        Sample,
        SystemProcess,
    )
    from wharfinger.controllers.context import ControllerContext
    from wharfinger.scenario.extension import ScenarioExtension
    from wharfinger.webhook.handler import WebhookContext, WebhookHandler


class PlacementSystem(System):
    name = "placement"
    order = 40
    compared = "placement"

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
        from wharfinger.systems.placement.controllers.clusters import ClusterController
        from wharfinger.systems.placement.controllers.scheduling import PlacementController
        from wharfinger.systems.placement.controllers.sets import ClusterSetController

        return {
            "managedcluster": ClusterController,
            "managedclusterset": ClusterSetController,
            "managedclustersetbinding": BindingController,
            "placement": PlacementController,
        }

    def commands(self) -> Mapping[str, Callable[[], click.Command]]:
        return {"placement": _placement, "rollout": _rollout, "score": _score}

    def report_kinds(self) -> Sequence[Resource]:
        from wharfinger.systems.placement.kinds.names import PLACEMENT_DECISIONS, PLACEMENTS

        return (
            PLACEMENTS,
            PLACEMENT_DECISIONS,
        )

    def report_sections(self, objects: Sequence[Document]) -> Sequence[ReportSection]:
        from wharfinger.systems.placement.report import sections

        return sections(objects)

    def compared_state(
        self, objects: Callable[[Resource], Sequence[Document]]
    ) -> Mapping[ComparedKey, Mapping[str, Any]]:
        from wharfinger.systems.placement.report import compared

        return compared(objects)

    def sample(self) -> Sample:
        from wharfinger.systems.placement.report import SAMPLE

        return SAMPLE

    def embedded_access(self) -> EmbeddedAccess:
        from wharfinger.systems.placement.install import EMBEDDED

        return EMBEDDED

    def install_component(self) -> InstallComponent:
        from wharfinger.systems.placement.install import COMPONENT

        return COMPONENT

    def processes(self) -> Sequence[SystemProcess]:
        from wharfinger.systems.placement.install import PROCESS

        return (PROCESS,)

    def explain_commands(self) -> Mapping[str, Callable[[], click.Command]]:
        return {"placement": _explain}

    def scenario_extension(self) -> ScenarioExtension:
        from wharfinger.systems.placement.scenario import PlacementScenario

        return PlacementScenario()


system = PlacementSystem()


def _placement() -> click.Command:
    from wharfinger.systems.placement.commands.placement import command

    return command


def _score() -> click.Command:
    from wharfinger.systems.placement.commands.score import command

    return command


def _explain() -> click.Command:
    from wharfinger.systems.placement.commands.explain import command

    return command


def _rollout() -> click.Command:
    from wharfinger.systems.placement.commands.rollout import command

    return command
