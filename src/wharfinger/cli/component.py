"""Runs live components from the command line: configuration, health endpoint, leader election, and graceful shutdown."""

from __future__ import annotations

import asyncio
import functools
import signal
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wharfinger.cli.exit_status import InputError
from wharfinger.cli.options import EXISTING_FILE

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from wharfinger.api.configuration import Configuration
    from wharfinger.client.http import HttpClient
    from wharfinger.client.informer import InformerSet
    from wharfinger.client.interface import Client
    from wharfinger.client.timers import Clock

LEASE_NAMESPACE = "kube-system"


@dataclass(frozen=True, slots=True)
class HealthEndpoint:
    """Where a component serves metrics and health, if it does: by plain HTTP to everybody, or by TLS and metrics only to
    callers with a token of a user who may read them."""

    port: int | None
    host: str
    tls: bool = False


@dataclass(frozen=True, slots=True)
class Running:
    """How a component runs: with leader election or without, and where it serves metrics."""

    leader_elect: bool
    endpoint: HealthEndpoint
    leader_elect_namespace: str = LEASE_NAMESPACE


def metrics_options(function: Callable[..., None]) -> Callable[..., None]:
    """Adds `--metrics-port`, `--metrics-host` and `--metrics-tls`; the command gets `endpoint`, a HealthEndpoint."""

    @click.option(
        "--metrics-port", type=click.IntRange(0, 65535), help="Serve /metrics, /healthz and /readyz on this port."
    )
    @click.option("--metrics-host", default="127.0.0.1", show_default=True, help="Address for --metrics-port.")
    @click.option(
        "--metrics-tls",
        is_flag=True,
        help="Serve them by TLS, and /metrics only to users with the right to get that path.",
    )
    @functools.wraps(function)
    def measured(metrics_port: int | None, metrics_host: str, metrics_tls: bool, **options: Any) -> None:
        function(endpoint=HealthEndpoint(metrics_port, metrics_host, metrics_tls), **options)

    return measured


def running_options(function: Callable[..., None]) -> Callable[..., None]:
    """Adds `--config`, `--leader-elect`, and where metrics are served; the command gets `config`, and `running`, a
    Running."""

    @click.option("--config", type=EXISTING_FILE, help="A WharfingerConfiguration file.")
    @click.option("--leader-elect", is_flag=True, help="Let only one of several replicas work.")
    @metrics_options
    @functools.wraps(function)
    def run(leader_elect: bool, endpoint: HealthEndpoint, **options: Any) -> None:
        function(running=Running(leader_elect, endpoint), **options)

    return run


def read_configuration(path: Path | None) -> Configuration:
    """Reads a WharfingerConfiguration file; an invalid one ends the command with all its errors."""
    import yaml

    from wharfinger.api.configuration import BadConfiguration, load_configuration

    try:
        document = (yaml.safe_load(path.read_text()) or {}) if path is not None else {}
        if not isinstance(document, dict):
            raise InputError(f"{path}: not a configuration document")
        return load_configuration(document)
    except BadConfiguration as error:
        raise InputError("\n".join([f"{path}:", *(f"  {fault}" for fault in error.errors)])) from error
    except yaml.YAMLError as error:
        raise InputError(f"{path}: not YAML: {error}") from error


async def run_until_stopped(work: Callable[[], Awaitable[None]]) -> None:
    """Runs until the work ends or the process receives a signal."""
    task = asyncio.ensure_future(work())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        if not task.cancelled():
            raise


Turn = Callable[[], Awaitable[object]]
"""Awaited before working: returns when this process is the leader."""


async def at_once() -> None:
    """For a process without leader election: returns at once."""


async def lead(
    client: Client,
    name: str,
    clock: Clock,
    work: Callable[[Client, Turn], Awaitable[None]],
    *,
    namespace: str = LEASE_NAMESPACE,
    **timing: float,
) -> None:
    """Works while this process holds the named lease, through a client that refuses to write without it.

    `work` is started before that, so that it can fill its caches while it waits; it is restarted when the lease is
    lost.
    """
    from wharfinger.client.fence import FencedClient
    from wharfinger.client.leases import Leader, process_identity, stand_by_and_lead

    leader = Leader(client, name, namespace, process_identity(), clock, **timing)  # type: ignore[arg-type]  # only floats
    guarded = FencedClient(client, leader.check)
    while not await stand_by_and_lead(leader, lambda turn: work(guarded, turn)):
        pass


async def serving_health(
    client: Client,
    metrics: CollectorRegistry,
    endpoint: HealthEndpoint,
    ready: Callable[[], str],
    work: Callable[[], Awaitable[None]],
) -> None:
    """Works, and serves metrics and health if a port is given. `client` asks whether a token may read metrics."""
    from wharfinger.client.metrics import HealthServer
    from wharfinger.client.metrics_access import MetricsAccess
    from wharfinger.http.tls import self_signed_context

    if endpoint.port is None:
        await work()
        return
    tls = self_signed_context((socket.gethostname(), "localhost"), datetime.now(UTC)) if endpoint.tls else None
    may_read = MetricsAccess(client).check if endpoint.tls else None
    health = HealthServer(metrics, ready=ready, host=endpoint.host, port=endpoint.port, tls=tls, may_read=may_read)
    await health.start()
    try:
        await work()
    finally:
        await health.stop()


async def run_component(
    client: HttpClient,
    name: str,
    work: Callable[[Client, InformerSet, Turn], Awaitable[None]],
    *,
    clock: Clock,
    metrics: CollectorRegistry,
    running: Running,
) -> None:
    """Works with its own informers until stopped, as the leader if one is elected; closes the client.

    `work` may start the informers at once and must await its turn before it writes.
    """
    from wharfinger.client.informer import InformerSet

    current: list[InformerSet] = []

    async def informed(writer: Client, turn: Turn) -> None:
        informers = InformerSet(writer)
        current[:] = [informers]
        await work(writer, informers, turn)

    async def led() -> None:
        if running.leader_elect:
            await lead(client, name, clock, informed, namespace=running.leader_elect_namespace)
        else:
            await informed(client, at_once)

    def ready() -> str:
        return "" if current and current[0].synced else "the cluster is not loaded yet"

    try:
        await run_until_stopped(lambda: serving_health(client, metrics, running.endpoint, ready, led))
    finally:
        await client.close()
