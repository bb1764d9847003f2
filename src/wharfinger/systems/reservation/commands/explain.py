"""`wharf explain reservation`: what a reservation holds and who uses it, or why it does not hold anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from wharfinger.cli.asking import ExplainOptions, explain_options, scheduler_config_option
from wharfinger.cli.completing import names_of

if TYPE_CHECKING:
    from wharfinger.api.configuration import Configuration
    from wharfinger.api.registry import Document, Registry
    from wharfinger.client.interface import Client
    from wharfinger.client.timers import Clock
    from wharfinger.simulate.explaining import PodExplanation
    from wharfinger.systems.reservation.kinds.views import Reservation


@click.command("reservation")
@click.argument("reservation", metavar="NAME", shell_complete=names_of("reservations"))
@explain_options
@scheduler_config_option
def command(
    reservation: str,
    options: ExplainOptions,
) -> None:
    """Show what a reservation holds, who uses it and how much is left. For one that is pending or waiting, show for each
    node why it is rejected, or its score, as for a pod.

    Exit status: 2 if there is no such reservation, 1 on other errors.

    \b
    Examples:
      wharf explain reservation for-web -f cluster.yaml
    """
    story = options.ask(
        lambda client, clock, configuration, registry: explain_reservation(
            client, clock, configuration, registry, reservation
        )
    )
    options.show("ReservationExplanation", story, reservation_text)


@dataclass(frozen=True, slots=True)
class ReservationExplanation:
    """`placing` explains the nodes for a reservation that is pending, or waits and could move."""

    reservation: Reservation
    reason: str  # why it is not available; empty if it is
    left: dict[str, str]  # what no consumer uses, by resource
    placing: PodExplanation | None

    @property
    def devices(self) -> list[str]:
        from wharfinger.devices.held_record import held_devices

        return [f"{each.pool}/{each.device}" for each in held_devices(self.reservation.metadata.annotations)]

    def document(self) -> Document:
        status = self.reservation.status
        found: Document = {
            "reservation": self.reservation.metadata.name,
            "phase": self.reservation.phase,
            "node": status.node_name or None,
            "reserved": dict(status.allocatable),
            "left": self.left,
            **({"devices": self.devices} if self.devices else {}),
            "consumers": [f"{owner.namespace}/{owner.name}" for owner in status.current_owners],
        }
        if self.reason:
            found["message"] = self.reason
        if self.placing is not None:
            explained = self.placing.document()
            found |= {key: explained[key] for key in ("nodes", "choice", "notes") if key in explained}
        return found


async def explain_reservation(
    client: Client, clock: Clock, configuration: Configuration, registry: Registry, name: str
) -> ReservationExplanation:
    """Loads the cluster like the scheduler and explains the reservation."""
    from wharfinger.api.errors import not_found
    from wharfinger.api.kinds.builtin import PODS
    from wharfinger.api.views import Pod
    from wharfinger.scheduler import profiles
    from wharfinger.scheduler.scheduler import Scheduler, SchedulerOptions
    from wharfinger.simulate.explaining import explain_in
    from wharfinger.systems.reservation.kinds.names import RESERVATIONS
    from wharfinger.systems.reservation.rules.reservations import uses, written
    from wharfinger.systems.reservation.rules.shares import ReservedShare
    from wharfinger.systems.reservation.scheduling.items import ReservationItems

    settings = profiles.load(configuration.scheduler, settings=configuration)
    scheduler = Scheduler(client, clock, settings, registry, SchedulerOptions(writes=False))
    await scheduler.load()
    try:
        items = scheduler.state.kinds.others[RESERVATIONS.kind]
        assert isinstance(items, ReservationItems)
        found, item = items.find(name)
        if found is None:
            raise not_found(RESERVATIONS.group, RESERVATIONS.plural, name)
        page = await client.list(PODS, view=Pod)
        share = ReservedShare(found, [pod for pod in page.items if uses(pod) == found.metadata.uid])
        left = written({each: share.unused(each) for each in share.reserved}, found.status.allocatable)
        reason = next((each.message for each in found.status.conditions if each.status == "False"), "")
        placing = None if item is None else explain_in(scheduler, item)
        return ReservationExplanation(found, reason, left, placing)
    finally:
        await scheduler.stop()


def reservation_text(story: ReservationExplanation, *, everything: bool) -> str:
    from wharfinger.cli.explain_text import pod_text

    found = story.document()
    where = f" on node {found['node']}" if found["node"] else ""
    lines = [f"Reservation {found['reservation']}: {found['phase']}{where}"]
    if story.reason:
        lines.append(f"Reason: {story.reason}")
    if found["reserved"] or story.devices:
        amounts = (f"{name} {quantity} ({story.left[name]} left)" for name, quantity in found["reserved"].items())
        devices = [f"devices {', '.join(story.devices)}"] if story.devices else []
        lines.append(f"Holds: {', '.join([*amounts, *devices])}")
        lines.append(f"Used by: {', '.join(found['consumers']) or 'nobody'}")
    if story.placing is not None:
        verdict, _, rest = pod_text(story.placing, everything=everything).partition("\n")
        lines.append(f"Scheduled now: {verdict.partition(': ')[2]}")
        lines += [rest] if rest else []
    return "\n".join(lines)
