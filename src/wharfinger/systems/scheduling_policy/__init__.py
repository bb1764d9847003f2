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
    from wharfinger.controllers.context import ControllerContext
    from wharfinger.webhook.handler import Context, Handler


class SchedulingPolicySystem(System):
    name = "scheduling_policy"

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

    def webhook_handlers(self, context: Context) -> Sequence[Handler]:
        from wharfinger.systems.scheduling_policy.admission.webhook import handlers

        return handlers(context)

    def controllers(self) -> Mapping[str, Callable[[ControllerContext], Controller[Any]]]:
        from wharfinger.systems.scheduling_policy.controllers.scheduling_policy import SchedulingPolicyController

        return {
            "schedulingpolicy": SchedulingPolicyController,
        }

    def commands(self) -> Mapping[str, Callable[[], click.Command]]:
        return {"policy": _policy}


system = SchedulingPolicySystem()


def _policy() -> click.Command:
    from wharfinger.systems.scheduling_policy.commands.policy import command

    return command
