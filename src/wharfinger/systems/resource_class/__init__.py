"""ResourceClass: portable names for devices with certain properties. See the README in this folder."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wharfinger.system import System, command_of

if TYPE_CHECKING:
    import click

    from wharfinger.admission.extension import AdmissionContext, SystemReviewers
    from wharfinger.admission.quota import QuotaExtension
    from wharfinger.admission.scheduler_records import SchedulerRecord
    from wharfinger.api.configuration import Block
    from wharfinger.api.registry import Kind, KindExtension
    from wharfinger.client.controller import Controller
    from wharfinger.client.informer import InformerSet
    from wharfinger.contributions import Installation, SystemReport
    from wharfinger.controllers.context import ControllerContext
    from wharfinger.framework.plugin import Plugin
    from wharfinger.scenario.extension import ScenarioExtension
    from wharfinger.webhook.handler import WebhookContext, WebhookHandler


class ResourceClassSystem(System):
    name = "resource_class"
    order = 30

    def settings(self) -> type[Block]:
        from wharfinger.systems.resource_class.settings import ResourceClassSettings

        return ResourceClassSettings

    def kinds(self) -> Sequence[Kind]:
        from wharfinger.systems.resource_class.kinds import resource_class

        return resource_class.KINDS

    def plugins(self) -> Sequence[type[Plugin]]:
        from wharfinger.systems.resource_class.plugin.resource_class import ResourceClasses

        return (ResourceClasses,)

    def reviewers(self, context: AdmissionContext) -> SystemReviewers:
        from wharfinger.systems.resource_class.admission.reviewers import stored_reviewers

        return stored_reviewers(context)

    def quota(self, context: ControllerContext, changed: Callable[[str | None], None]) -> QuotaExtension:
        from wharfinger.systems.resource_class.controllers.quota import WatchedAliases

        return WatchedAliases(context, changed)

    def scheduler_records(self) -> Sequence[SchedulerRecord]:
        from wharfinger.systems.resource_class.admission.records import RECORDS

        return RECORDS

    def openapi_definitions(self) -> Mapping[str, dict[str, Any]]:
        from wharfinger.systems.resource_class.kinds.openapi import DEFINITIONS

        return DEFINITIONS

    def kind_extensions(self) -> Mapping[tuple[str, str], KindExtension]:
        from wharfinger.systems.resource_class.kinds.nodes import NODE_EXTENSION

        return {("", "nodes"): NODE_EXTENSION}

    def webhook_handlers(self, context: WebhookContext) -> Sequence[WebhookHandler]:
        from wharfinger.systems.resource_class.admission.webhook import handlers

        return handlers(context)

    def allocated_resources(self, informers: InformerSet) -> Callable[[str], Collection[str]]:
        from wharfinger.systems.resource_class.kinds.names import NODE_COMPUTE_RESOURCES
        from wharfinger.systems.resource_class.kinds.views import NodeComputeResources

        inventories = informers.of(NODE_COMPUTE_RESOURCES, NodeComputeResources)
        inventories.optional = True  # the cluster may not have the kind

        def published(node: str) -> Collection[str]:
            found = inventories.get(node)
            return () if found is None else {each.resource_name for each in found.spec.compute_resources}

        return published

    def controllers(self) -> Mapping[str, Callable[[ControllerContext], Controller[Any]]]:
        from wharfinger.systems.resource_class.controllers.device_classes import DeviceClassKeeper
        from wharfinger.systems.resource_class.controllers.resource_class import ResourceClassController

        return {
            "resourceclass": ResourceClassController,
            "resourceclass-devices": DeviceClassKeeper,
        }

    def commands(self) -> Mapping[str, Callable[[], click.Command]]:
        return {
            "classes": command_of("wharfinger.systems.resource_class.commands.classes"),
            "device-agent": command_of("wharfinger.systems.resource_class.commands.device_agent"),
        }

    def scenario_extension(self) -> ScenarioExtension:
        from wharfinger.systems.resource_class.scenario import ResourceClassScenario

        return ResourceClassScenario()

    def report(self) -> SystemReport:
        from wharfinger.systems.resource_class.report import ResourceClassReport

        return ResourceClassReport()

    def installation(self) -> Installation:
        from wharfinger.systems.resource_class.install import INSTALLATION

        return INSTALLATION


system = ResourceClassSystem()
