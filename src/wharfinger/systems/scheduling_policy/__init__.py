"""SchedulingPolicy: what a service account may ask of the scheduler. Start with the README in this folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wharfinger.system import System

if TYPE_CHECKING:
    import click

    from wharfinger.admission.extension import AdmissionContext, SystemReviewers
    from wharfinger.api.configuration import Block, Configuration
    from wharfinger.api.registry import Kind
    from wharfinger.client.controller import Controller
    from wharfinger.client.interface import Client
    from wharfinger.contributions import EmbeddedAccess, InstallComponent, Sample, StatusPart
    from wharfinger.controllers.context import ControllerContext
    from wharfinger.scenario.extension import ScenarioExtension
    from wharfinger.webhook.handler import WebhookContext, WebhookHandler


class SchedulingPolicySystem(System):
    name = "scheduling_policy"
    order = 50
    status_key = "schedulingPolicies"

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
        return {"policy": _policy}

    def sample(self) -> Sample:
        from wharfinger.systems.scheduling_policy.report import SAMPLE

        return SAMPLE

    def embedded_access(self) -> EmbeddedAccess:
        from wharfinger.systems.scheduling_policy.install import EMBEDDED

        return EMBEDDED

    def install_component(self) -> InstallComponent:
        from wharfinger.systems.scheduling_policy.install import component

        return component()

    def cluster_settings(self, block: Mapping[str, Any], *, enforce: bool, scheduler: str = "") -> Mapping[str, Any]:
        from wharfinger.systems.scheduling_policy.install import cluster_settings

        return cluster_settings(block, enforce=enforce, scheduler=scheduler)

    async def bootstrap(self, client: Client, *, required: bool = True) -> None:
        from wharfinger.systems.scheduling_policy.controllers.scheduling_policy import provision, provision_if_allowed

        await (provision(client) if required else provision_if_allowed(client))

    def explain_commands(self) -> Mapping[str, Callable[[], click.Command]]:
        return {"admission": _check}

    async def status(self, client: Client, configuration: Configuration) -> StatusPart:
        from wharfinger.systems.scheduling_policy.report import status

        return await status(client, configuration)

    def startup_note(self, configuration: Configuration) -> str:
        from wharfinger.systems.scheduling_policy.settings import SchedulingPolicySettings

        return f"scheduling policies: {configuration.of(SchedulingPolicySettings).mode}"

    def scenario_extension(self) -> ScenarioExtension:
        from wharfinger.systems.scheduling_policy.scenario import SchedulingPolicyScenario

        return SchedulingPolicyScenario()


system = SchedulingPolicySystem()


def _policy() -> click.Command:
    from wharfinger.systems.scheduling_policy.commands.policy import command

    return command


def _check() -> click.Command:
    from wharfinger.systems.scheduling_policy.commands.policy import check

    return check
