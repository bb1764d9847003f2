"""SchedulingPolicy: what a service account may ask of the scheduler. Start with the README in this folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wharfinger.system import System, command_of

if TYPE_CHECKING:
    import click

    from wharfinger.admission.extension import AdmissionContext, SystemReviewers
    from wharfinger.api.configuration import Block, Configuration
    from wharfinger.api.registry import Kind
    from wharfinger.client.controller import Controller
    from wharfinger.client.interface import Client
    from wharfinger.contributions import Installation, SystemReport
    from wharfinger.controllers.context import ControllerContext
    from wharfinger.scenario.extension import ScenarioExtension
    from wharfinger.webhook.handler import WebhookContext, WebhookHandler


class SchedulingPolicySystem(System):
    name = "scheduling_policy"
    order = 50
    webhook_suffices = True

    def settings(self) -> type[Block]:
        from wharfinger.systems.scheduling_policy.settings import SchedulingPolicySettings

        return SchedulingPolicySettings

    def kinds(self) -> Sequence[Kind]:
        from wharfinger.systems.scheduling_policy.kinds import scheduling_policy

        return scheduling_policy.KINDS

    def reviewers(self, context: AdmissionContext) -> SystemReviewers:
        from wharfinger.systems.scheduling_policy.admission.stored import stored_reviewers

        return stored_reviewers(context)

    def scheduler_identities(self, configuration: Configuration) -> Sequence[str]:
        from wharfinger.systems.scheduling_policy.settings import SchedulingPolicySettings

        return configuration.of(SchedulingPolicySettings).scheduler_identities

    def webhook_handlers(self, context: WebhookContext) -> Sequence[WebhookHandler]:
        from wharfinger.systems.scheduling_policy.admission.webhook import handlers

        return handlers(context)

    def controllers(self) -> Mapping[str, Callable[[ControllerContext], Controller[Any]]]:
        from wharfinger.systems.scheduling_policy.controllers.scheduling_policy import SchedulingPolicyController

        return {
            "schedulingpolicy": SchedulingPolicyController,
        }

    def commands(self) -> Mapping[str, Callable[[], click.Command]]:
        return {"policy": command_of("wharfinger.systems.scheduling_policy.commands.policy")}

    def cluster_settings(self, block: Mapping[str, Any], *, enforce: bool, scheduler: str = "") -> Mapping[str, Any]:
        from wharfinger.systems.scheduling_policy.install import cluster_settings

        return cluster_settings(block, enforce=enforce, scheduler=scheduler)

    async def bootstrap(self, client: Client, *, required: bool = True) -> None:
        from wharfinger.systems.scheduling_policy.controllers.scheduling_policy import provision, provision_if_allowed

        await (provision(client) if required else provision_if_allowed(client))

    def explain_commands(self) -> Mapping[str, Callable[[], click.Command]]:
        return {"admission": command_of("wharfinger.systems.scheduling_policy.commands.policy", "check")}

    def scenario_extension(self) -> ScenarioExtension:
        from wharfinger.systems.scheduling_policy.scenario import SchedulingPolicyScenario

        return SchedulingPolicyScenario()

    def report(self) -> SystemReport:
        from wharfinger.systems.scheduling_policy.report import SchedulingPolicyReport

        return SchedulingPolicyReport()

    def installation(self) -> Installation:
        from wharfinger.systems.scheduling_policy.install import installation

        return installation()


system = SchedulingPolicySystem()
