"""The live components of a simulated control plane, each a coroutine that runs until it is cancelled.

A separate module, because `wharf explain` uses a simulated cluster without running them and need not import them.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from wharfinger.api.configuration import Configuration
from wharfinger.api.registry import Registry
from wharfinger.client.controller import Controller, run_controllers
from wharfinger.client.events import EventRecorder
from wharfinger.client.fence import FencedClient
from wharfinger.client.informer import InformerSet
from wharfinger.client.interface import Client
from wharfinger.client.leases import Leader, stand_by_and_lead
from wharfinger.client.timers import Clock
from wharfinger.client.workqueue import WorkQueue
from wharfinger.controllers.context import ControllerContext
from wharfinger.controllers.provision_faults import ProvisionFaults
from wharfinger.controllers.registry import make_controllers
from wharfinger.node.heartbeats import Heartbeats
from wharfinger.node.kubelet import Kubelets, ManagedNodes
from wharfinger.scheduler import profiles
from wharfinger.scheduler.scheduler import Scheduler, SchedulerOptions


class NoEvents(EventRecorder):
    """For simulations whose events nobody reads."""

    def event(self, *args: Any, **details: Any) -> None:
        return


def recorder_type(records: bool) -> type[EventRecorder]:
    return EventRecorder if records else NoEvents


def make_scheduler(
    client: Client,
    clock: Clock,
    configuration: Configuration,
    registry: Registry,
    seed: int,
    rng: random.Random,
    recorder: type[EventRecorder] = EventRecorder,
) -> tuple[Scheduler, EventRecorder]:
    """A scheduler and its event recorder."""
    events = recorder(client, "default-scheduler", clock, rng=rng)
    scheduler = Scheduler(
        client,
        clock,
        profiles.load(configuration.scheduler, settings=configuration),
        registry,
        SchedulerOptions(seed=seed, rng=rng),
        recorder=events,
    )
    return scheduler, events


async def run_scheduler(
    scheduler: Scheduler, recorder: EventRecorder, turn: Callable[[], Awaitable[object]] | None = None
) -> None:
    recorder.start()
    try:
        await scheduler.run(turn)
    finally:
        await recorder.stop(0)


async def lead_scheduler(
    client: Client,
    identity: str,
    clock: Clock,
    steady: Callable[[], float],
    rng: random.Random,
    make: Callable[[Client], tuple[Scheduler, EventRecorder]],
) -> None:
    """A scheduler that takes part in a leader election: a new one for every term, through a fenced client."""
    leader = Leader(client, "wharfinger-scheduler", "kube-system", identity, clock, steady=steady, rng=rng)
    fenced = FencedClient(client, leader.check)

    def work(turn: Callable[[], Awaitable[object]]) -> Coroutine[Any, Any, None]:
        return run_scheduler(*make(fenced), turn)

    while not await stand_by_and_lead(leader, work):
        pass


async def run_all_controllers(
    client: Client,
    clock: Clock,
    configuration: Configuration,
    registry: Registry,
    rng: random.Random,
    *,
    provision_faults: ProvisionFaults,
    unseen_owners: frozenset[str],
    unseen_kinds: frozenset[str],
    queues: list[WorkQueue[Any]],
    names: Sequence[str] = ("*",),
    recorder: type[EventRecorder] = EventRecorder,
) -> None:
    """`queues` will hold those of the controllers."""
    events = recorder(client, "controllers", clock, rng=rng)
    events.start()
    informers = InformerSet(client, rng=rng)
    context = ControllerContext(
        client,
        informers,
        events,
        registry,
        clock,
        configuration,
        rng,
        implicit_heartbeats=True,
        provision_faults=provision_faults,
        unseen_owners=unseen_owners,
        unseen_kinds=unseen_kinds,
    )
    controllers = make_controllers(context, names)
    queues[:] = [each.queue for each in controllers]
    try:
        await run_controllers(controllers, informers)
    finally:
        await events.stop(0)


async def run_nodes(client: Client, clock: Clock, configuration: Configuration, rng: random.Random) -> None:
    informers = InformerSet(client, rng=rng)
    everything = ManagedNodes(everything=True, as_reported=True)
    kubelets: list[Controller[Any]] = [
        Kubelets(client, informers, clock, startup_seconds=configuration.nodes.startup_seconds, managed=everything),
        Heartbeats(client, informers, clock, implicit=True, managed=everything),
    ]
    await run_controllers(kubelets, informers)
