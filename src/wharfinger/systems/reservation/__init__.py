"""Reservation: node resources held for their owners before the pods exist. Start with the README in this folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wharfinger.system import System, command_of

if TYPE_CHECKING:
    import click

    from wharfinger.admission.extension import AdmissionContext, SystemReviewers
    from wharfinger.admission.quota import QuotaExtension
    from wharfinger.admission.scheduler_records import SchedulerRecord
    from wharfinger.api.configuration import Block, Configuration
    from wharfinger.api.registry import Kind
    from wharfinger.client.controller import Controller
    from wharfinger.contributions import Installation, SystemReport
    from wharfinger.controllers.context import ControllerContext
    from wharfinger.framework.plugin import Plugin
    from wharfinger.scenario.extension import ScenarioExtension
    from wharfinger.scheduler.schedulable import Schedulable
    from wharfinger.webhook.handler import WebhookContext, WebhookHandler


class ReservationSystem(System):
    name = "reservation"
    order = 10

    def settings(self) -> type[Block]:
        from wharfinger.systems.reservation.settings import ReservationSettings

        return ReservationSettings

    def kinds(self) -> Sequence[Kind]:
        from wharfinger.systems.reservation.kinds import (
            capacity_buffer,
            pod_migration_job,
            repack_policy,
            reservation,
            reservation_set,
        )

        return (
            *pod_migration_job.KINDS,
            *reservation.KINDS,
            *reservation_set.KINDS,
            *repack_policy.KINDS,
            *capacity_buffer.KINDS,
        )

    def plugins(self) -> Sequence[type[Plugin]]:
        from wharfinger.systems.reservation.plugin.reservation import ReservationPlugin

        return (ReservationPlugin,)

    def schedulables(self) -> Sequence[type[Schedulable]]:
        from wharfinger.systems.reservation.scheduling.items import ReservationItems

        return (ReservationItems,)

    def plugin_arguments(self, configuration: Configuration) -> Mapping[str, Mapping[str, Any]]:
        from wharfinger.systems.reservation.settings import ReservationSettings

        settings = configuration.of(ReservationSettings)
        return {
            "Reservation": {
                "enablePreemption": settings.enable_preemption,
                "honourIgnoredLabel": settings.honour_ignored_label,
            }
        }

    def reviewers(self, context: AdmissionContext) -> SystemReviewers | None:
        from wharfinger.systems.reservation.admission.stored import stored_reviewers

        return stored_reviewers(context)

    def quota(self, context: ControllerContext, changed: Callable[[str | None], None]) -> QuotaExtension | None:
        from wharfinger.systems.reservation.controllers.quotas import watched_quota

        return watched_quota(context, changed)

    def scheduler_records(self) -> Sequence[SchedulerRecord]:
        from wharfinger.admission.scheduler_records import SchedulerRecord
        from wharfinger.systems.reservation.rules.reservations import ALLOCATED

        return (SchedulerRecord(ALLOCATED),)

    def webhook_handlers(self, context: WebhookContext) -> Sequence[WebhookHandler]:
        from wharfinger.systems.reservation.admission.webhook import handlers

        return handlers(context)

    def controllers(self) -> Mapping[str, Callable[[ControllerContext], Controller[Any]]]:
        from wharfinger.systems.reservation.controllers.buffers import CapacityBufferController
        from wharfinger.systems.reservation.controllers.lifecycle import ReservationController
        from wharfinger.systems.reservation.controllers.migration import PodMigrationController
        from wharfinger.systems.reservation.controllers.quotas import ReservedQuotaController
        from wharfinger.systems.reservation.controllers.repack_policies import RepackPolicyController
        from wharfinger.systems.reservation.controllers.sets import ReservationSetController

        return {
            "reservation": ReservationController,
            "reservationset": ReservationSetController,
            "podmigration": PodMigrationController,
            "reservedquota": ReservedQuotaController,
            "repackpolicy": RepackPolicyController,
            "capacitybuffer": CapacityBufferController,
        }

    def commands(self) -> Mapping[str, Callable[[], click.Command]]:
        return {
            "reserve": command_of("wharfinger.systems.reservation.commands.reserve"),
            "migrate": command_of("wharfinger.systems.reservation.commands.migrate"),
        }

    def explain_commands(self) -> Mapping[str, Callable[[], click.Command]]:
        return {"reservation": command_of("wharfinger.systems.reservation.commands.explain")}

    def scenario_extension(self) -> ScenarioExtension:
        from wharfinger.systems.reservation.scenario import ReservationScenario

        return ReservationScenario()

    def report(self) -> SystemReport:
        from wharfinger.systems.reservation.report import ReservationReport

        return ReservationReport()

    def installation(self) -> Installation:
        from wharfinger.systems.reservation.install import INSTALLATION

        return INSTALLATION


system = ReservationSystem()
