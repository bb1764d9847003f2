"""ResourcePolicy: fills groups of nodes in order of priority, each up to a limit. Start with the README in this folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wharfinger.system import System, command_of

if TYPE_CHECKING:
    import click

    from wharfinger.api.configuration import Block
    from wharfinger.api.registry import Kind
    from wharfinger.client.controller import Controller
    from wharfinger.contributions import Installation, SystemReport
    from wharfinger.controllers.context import ControllerContext
    from wharfinger.framework.plugin import Plugin


class ResourcePolicySystem(System):
    name = "resource_policy"
    order = 20

    def settings(self) -> type[Block]:
        from wharfinger.systems.resource_policy.settings import ResourcePolicySettings

        return ResourcePolicySettings

    def kinds(self) -> Sequence[Kind]:
        from wharfinger.systems.resource_policy.kinds import resource_policy

        return resource_policy.KINDS

    def plugins(self) -> Sequence[type[Plugin]]:
        from wharfinger.systems.resource_policy.plugin.resource_policy import ResourcePolicyPlugin

        return (ResourcePolicyPlugin,)

    def controllers(self) -> Mapping[str, Callable[[ControllerContext], Controller[Any]]]:
        from wharfinger.systems.resource_policy.controllers.resource_policy import ResourcePolicyController

        return {
            "resourcepolicy": ResourcePolicyController,
        }

    def explain_commands(self) -> Mapping[str, Callable[[], click.Command]]:
        return {"policy": command_of("wharfinger.systems.resource_policy.commands.explain")}

    def report(self) -> SystemReport:
        from wharfinger.systems.resource_policy.report import ResourcePolicyReport

        return ResourcePolicyReport()

    def installation(self) -> Installation:
        from wharfinger.systems.resource_policy.install import INSTALLATION

        return INSTALLATION


system = ResourcePolicySystem()
