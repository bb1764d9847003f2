"""Runs the dashboard: connects, follows the cluster, and serves until stopped."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import NAMESPACES
from wharfinger.api.kubernetes_version import KubernetesVersion
from wharfinger.client.http import HttpClient
from wharfinger.client.timers import SystemClock
from wharfinger.dashboard.application import application, is_built
from wharfinger.dashboard.context import Dashboard
from wharfinger.dashboard.follower import Follower
from wharfinger.dashboard.held_client import HeldClient
from wharfinger.dashboard.history import History
from wharfinger.dashboard.rights import Rights
from wharfinger.dashboard.sessions import Sessions
from wharfinger.dashboard.state import ClusterState
from wharfinger.dashboard.workers import Workers, WorkLimits

if TYPE_CHECKING:
    from wharfinger.scheduler.configuration import SchedulerConfiguration

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class DashboardOptions:
    host: str = "127.0.0.1"
    port: int = 0
    namespaces: tuple[str, ...] = ()  # followed where the caller may not list all of them
    links: bool = True  # whether one-time links open a session with the kubeconfig; otherwise only tokens count
    link_file: Path | None = None
    config: str = ""
    limits: WorkLimits = field(default_factory=WorkLimits)


Configure = Callable[[KubernetesVersion], "SchedulerConfiguration"]
"""The scheduler's configuration, given the version of the API server."""


async def serve(client: HttpClient, configure: Configure, options: DashboardOptions, say: Say) -> None:
    """Serves until cancelled. Raises ApiError if the cluster does not answer, OSError if the port is taken."""
    import uvicorn

    listener = _listen(options.host, options.port)
    host, port = options.host, listener.getsockname()[1]
    rights = Rights(client)
    user = await rights.user()  # the first request: an error is told before anything is served
    kubernetes = await client.kubernetes_version()
    state = ClusterState(client, registry())
    sessions = Sessions(client, links=options.links, link_file=options.link_file)
    sessions.address = f"http://{host}:{port}"
    if sessions.own is not None:
        sessions.own.name = user
    workers, history = Workers(options.limits), History(state)
    dashboard = Dashboard(
        state, sessions, workers, history, config=options.config, server=client.access.server, kubernetes=kubernetes
    )
    await state.start(rights, await _namespaces(client, rights, options.namespaces))
    if state.whole:
        dashboard.follow(Follower(HeldClient(state, client), SystemClock(), configure(kubernetes), state.registry))
    history.start()
    local = options.host in ("127.0.0.1", "::1", "localhost")
    hosts = [f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")] if local else []
    settings = uvicorn.Config(
        application(dashboard, hosts),
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=2,
    )
    server = uvicorn.Server(settings)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]  # our caller handles them
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        _tell(sessions, say)
        await workers.prepare()
        await serving
    finally:
        server.should_exit = server.force_exit = True
        await asyncio.gather(serving, return_exceptions=True)
        await history.stop()
        await dashboard.stop()
        await workers.close()
        await sessions.close()
        await state.stop()


def _tell(sessions: Sessions, say: Say) -> None:
    if sessions.own is not None:
        say(f"Dashboard: {sessions.link()}")
    else:
        say(f"Dashboard: {sessions.address}; log in with a bearer token")
    if not is_built():
        say("The page itself was not built (`make web` builds it); the endpoints under /api work.")


async def _namespaces(client: HttpClient, rights: Rights, named: tuple[str, ...]) -> list[str]:
    """Where to look for objects that may not be listed everywhere."""
    found = list(named) or [client.access.namespace]
    if not named and await rights.may("list", NAMESPACES):
        found += [each["metadata"]["name"] for each in (await client.list(NAMESPACES)).items]
    return found


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    return listener
