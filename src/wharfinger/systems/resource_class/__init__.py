"""ResourceClass: devices requested by portable names. Start with the README in this folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wharfinger.system import System

if TYPE_CHECKING:
    import click

    from wharfinger.api.registry import Kind
    from wharfinger.client.controller import Controller
    from wharfinger.contributions import EmbeddedAccess, InstallComponent, Sample
    from wharfinger.controllers.context import ControllerContext
    from wharfinger.framework.plugin import Plugin
    from wharfinger.webhook.handler import Context, Handler


class ResourceClassSystem(System):
    name = "resource_class"
    order = 30

    def kinds(self) -> Sequence[Kind]:
        from wharfinger.systems.resource_class.kinds import resource_class

        return resource_class.KINDS

    def plugins(self) -> Sequence[type[Plugin]]:
        from wharfinger.systems.resource_class.plugin.resource_class import ResourceClasses

        return (ResourceClasses,)

    def webhook_handlers(self, context: Context) -> Sequence[Handler]:
        from wharfinger.systems.resource_class.admission.webhook import handlers

        return handlers(context)

    def controllers(self) -> Mapping[str, Callable[[ControllerContext], Controller[Any]]]:
        from wharfinger.systems.resource_class.controllers.resource_class import ResourceClassController

        return {
            "resourceclass": ResourceClassController,
        }

    def commands(self) -> Mapping[str, Callable[[], click.Command]]:
        return {"capacity": _capacity, "classes": _classes, "device-agent": _device_agent}

    def sample(self) -> Sample:
        from wharfinger.systems.resource_class.report import SAMPLE

        return SAMPLE

    def embedded_access(self) -> EmbeddedAccess:
        from wharfinger.systems.resource_class.install import EMBEDDED

        return EMBEDDED

    def install_component(self) -> InstallComponent:
        from wharfinger.systems.resource_class.install import COMPONENT

        return COMPONENT


system = ResourceClassSystem()


def _classes() -> click.Command:
    from wharfinger.systems.resource_class.commands.classes import command

    return command


def _device_agent() -> click.Command:
    from wharfinger.systems.resource_class.commands.device_agent import command

    return command


def _capacity() -> click.Command:
    from wharfinger.systems.resource_class.commands.capacity import command

    return command
