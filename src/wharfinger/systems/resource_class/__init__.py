"""ResourceClass: devices requested by portable names. Start with the README in this folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wharfinger.system import System

if TYPE_CHECKING:
    import click

    from wharfinger.admission.extension import AdmissionContext, SystemReviewers
    from wharfinger.admission.quota import QuotaExtension
    from wharfinger.admission.scheduler_records import SchedulerRecord
    from wharfinger.api.configuration import Block
    from wharfinger.api.registry import Kind, KindExtension
    from wharfinger.client.controller import Controller
    from wharfinger.controllers.context import ControllerContext
    from wharfinger.framework.plugin import Plugin
    from wharfinger.webhook.handler import Context, Handler


class ResourceClassSystem(System):
    name = "resource_class"

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
        from wharfinger.admission.scheduler_records import SchedulerRecord
        from wharfinger.systems.resource_class.rules.compute_resources import RECORD

        return (SchedulerRecord(RECORD, with_node=True),)

    def kind_extensions(self) -> Mapping[tuple[str, str], KindExtension]:
        from wharfinger.systems.resource_class.kinds.nodes import NODE_EXTENSION

        return {("", "nodes"): NODE_EXTENSION}

    def webhook_handlers(self, context: Context) -> Sequence[Handler]:
        from wharfinger.systems.resource_class.admission.webhook import handlers

        return handlers(context)

    def controllers(self) -> Mapping[str, Callable[[ControllerContext], Controller[Any]]]:
        from wharfinger.systems.resource_class.controllers.resource_class import ResourceClassController

        return {
            "resourceclass": ResourceClassController,
        }

    def commands(self) -> Mapping[str, Callable[[], click.Command]]:
        return {"classes": _classes, "device-agent": _device_agent}


system = ResourceClassSystem()


def _classes() -> click.Command:
    from wharfinger.systems.resource_class.commands.classes import command

    return command


def _device_agent() -> click.Command:
    from wharfinger.systems.resource_class.commands.device_agent import command

    return command
