"""Running live components from the command line: configuration, health endpoint, leader election, and a clean end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from wharfinger.api.configuration import Configuration
    from wharfinger.api.metrics import Metrics
    from wharfinger.client.interface import Client
    from wharfinger.client.timers import Clock

LEASE_NAMESPACE = "kube-system"


def read_configuration(path: Path | None) -> Configuration:
    """A WharfingerConfiguration file; a faulty one ends the command with all its faults."""
    import yaml

    from wharfinger.api.configuration import BadConfiguration, load_configuration

    try:
        document = (yaml.safe_load(path.read_text()) or {}) if path is not None else {}
        if not isinstance(document, dict):
            raise click.ClickException(f"{path}: not a configuration document")
        return load_configuration(document)
    except BadConfiguration as error:
        raise click.ClickException("\n".join([f"{path}:", *(f"  {fault}" for fault in error.errors)])) from error
    except yaml.YAMLError as error:
        raise click.ClickException(f"{path}: not YAML: {error}") from error


async def run_until_stopped(work: Callable[[], Awaitable[None]]) -> None:
    """Runs until it ends or the process is told to stop."""
    task = asyncio.ensure_future(work())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        if not task.cancelled():
            raise


async def lead(
    client: Client,
    name: str,
    clock: Clock,
    work: Callable[[Client], Awaitable[None]],
    *,
    namespace: str = LEASE_NAMESPACE,
    **timing: float,
) -> None:
    """Works while this process holds the lease of that name, through a client that refuses to write without it."""
    from wharfinger.client.fence import fenced
    from wharfinger.client.leases import Leader, process_identity

    leader = Leader(client, name, namespace, process_identity(), clock, **timing)  # type: ignore[arg-type]  # only floats
    guarded = fenced(client, leader.check)
    await leader.run(lambda: work(guarded))


async def serving_health(
    metrics: Metrics, host: str, port: int | None, ready: Callable[[], str], work: Callable[[], Awaitable[None]]
) -> None:
    """Works with a metrics and health endpoint beside it, where a port is given."""
    from wharfinger.client.metrics import HealthServer

    if port is None:
        await work()
        return
    health = HealthServer(metrics, ready=ready, host=host, port=port)
    await health.start()
    try:
        await work()
    finally:
        await health.stop()
