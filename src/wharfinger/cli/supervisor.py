"""Keeps the components of `wharf up` running: each is a process that is restarted when it exits, and all are stopped
together.

The API server starts first; the others follow when it is listening, each with its own kubeconfig and rights.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import click

from wharfinger.apiserver.credentials import component_kubeconfig, component_users
from wharfinger.apiserver.files import private_directory
from wharfinger.cli.run_state import ComponentState, RunState, read_server
from wharfinger.client.tasks import cancel
from wharfinger.system import systems

SERVER = "apiserver"
DASHBOARD = "dashboard"
_SHORTEST, _LONGEST = 1.0, 30.0  # seconds before a component is restarted
_SOUND = 60.0  # seconds of running after which the back-off is reset
_START = 60.0  # seconds for the API server to start listening; a large data file takes long to load
_STOP = 10.0  # seconds that components have to exit gracefully
_LOG_BYTES = 10 * 1024 * 1024  # a longer log is rotated at the next start
_SHOWN_LINES = 10

Say = Callable[[str], None]


class StartInterrupted(RuntimeError):
    """A signal arrived before everything was started; what was started has been stopped."""


class StartFailed(Exception):
    """The API server did not start; the message has the end of its log."""


@dataclass(slots=True)
class ControlPlaneOptions:
    """The options of `wharf up`."""

    data_dir: Path
    port: int
    nodes: int
    config: Path | None = None
    free_port: bool = False
    host: str = "127.0.0.1"
    server_arguments: list[str] = field(default_factory=list)  # more arguments of the API server
    dashboard: bool = True

    @property
    def link_file(self) -> Path:
        """Where the dashboard writes the link that was not used yet."""
        return self.data_dir / "dashboard-link"


@dataclass(slots=True)
class _Child:
    state: ComponentState
    arguments: list[str]
    process: asyncio.subprocess.Process | None = None
    log_start: int = 0  # size of the log in bytes when the process was started
    failures: int = field(default=0)


class Supervisor:
    def __init__(self, plan: ControlPlaneOptions, say: Say) -> None:
        self._plan = plan
        self._say = say
        self._logs = private_directory(private_directory(plan.data_dir) / "logs")
        self._stopping = asyncio.Event()
        self._children: list[_Child] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._dashboard: _Child | None = None
        self._mute = False  # whether it was reported that the state cannot be written
        config = "" if plan.config is None else str(plan.config)
        self.state = RunState(os.getpid(), str(plan.data_dir), started=time.time(), config=config, nodes=plan.nodes)

    async def start(self) -> None:
        """Starts all components; returns when the API server is listening and the others are started."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self.stop)
        plan = self._plan
        configured = [] if plan.config is None else ["--config", str(plan.config)]
        arguments = ["--data-dir", str(plan.data_dir), "--host", plan.host, *configured, *plan.server_arguments]
        server = self._add(SERVER, arguments)
        await self._launch(server, *(() if plan.free_port else ("--port", str(plan.port))))
        await self._await_server(server)
        # After a restart, clients must find it at the same port.
        server.arguments += ["--port", self.state.address.rpartition(":")[2]]
        self._watch(server)
        for name in component_commands():
            child = self._add(name, self._arguments(name))
            await self._launch(child)
            self._watch(child)
        if plan.dashboard:
            await self._start_dashboard()
        self._note()

    async def _start_dashboard(self) -> None:
        """The dashboard acts with the administrator's rights, as whoever reads the kubeconfig does."""
        plan = self._plan
        plan.link_file.unlink(missing_ok=True)
        configured = [] if plan.config is None else ["--config", str(plan.config)]
        arguments = ["--kubeconfig", self.state.kubeconfig, "--link-file", str(plan.link_file), *configured]
        self._dashboard = self._add(DASHBOARD, arguments)
        await self._launch(self._dashboard)
        self._watch(self._dashboard)

    async def dashboard_link(self) -> str:
        """The link that opens the dashboard; empty if it does not start in time."""
        if self._dashboard is None:
            return ""
        deadline = time.monotonic() + _START
        while time.monotonic() < deadline and not self._stopping.is_set():
            if self._plan.link_file.exists():
                link = self._plan.link_file.read_text().strip()
                # After a restart, an open page must find it at the same port.
                self._dashboard.arguments += ["--port", str(urlsplit(link).port)]
                return link
            await asyncio.sleep(0.05)
        return ""

    async def run(self) -> None:
        """Runs until a signal arrives, then stops all components, the API server last."""
        await self._stopping.wait()
        self._say("Stopping ...")
        await cancel(self._tasks)
        await self._end([child for child in self._children if child.state.name != SERVER])
        await self._end([child for child in self._children if child.state.name == SERVER])
        self._note()

    def stop(self) -> None:
        self._stopping.set()

    def _note(self) -> None:
        """Saves the run state. If that fails (a full disk), the components keep running, and the error is printed
        once."""
        try:
            self.state.write()
        except OSError as error:
            if not self._mute:
                self._say(f"cannot write {self._plan.data_dir}: {error.strerror}; `wharf status` may show what was")
            self._mute = True
        else:
            self._mute = False

    def _add(self, name: str, arguments: list[str]) -> _Child:
        log = self._logs / f"{name}.log"
        child = _Child(ComponentState(name, log=str(log)), arguments)
        self._children.append(child)
        self.state.components.append(child.state)
        return child

    def _arguments(self, name: str) -> list[str]:
        """The arguments of a component: those of our options that its command has."""
        known = options_of(name)
        wanted = {"--kubeconfig": str(component_kubeconfig(self._plan.data_dir, name))}
        if self._plan.config is not None:
            wanted["--config"] = str(self._plan.config)
        if name == "scheduler":
            wanted["--scheduler-names"] = "default-scheduler,wharfinger"
        if name == "controllers":
            processes = (process for system in systems() for process in system.installation().processes)
            elsewhere = (f"-{controller}" for process in processes for controller in process.controllers)
            wanted["--controllers"] = ",".join(["*", *elsewhere])
            authority = self._plan.data_dir / "pki"
            wanted["--root-ca-file"] = wanted["--cluster-signing-cert-file"] = str(authority / "ca.crt")
            wanted["--cluster-signing-key-file"] = str(authority / "ca.key")
        if name == "nodes":
            wanted["--count"] = str(self._plan.nodes)
        given = [part for option, value in wanted.items() if option in known for part in (option, value)]
        # Nodes that users create are simulated, too; the API server marks those of real kubelets.
        return [*given, "--all"] if name == "nodes" else given

    async def _launch(self, child: _Child, *more: str) -> None:
        command = [sys.executable, "-m", "wharfinger.cli.main", child.state.name, *child.arguments, *more]
        descriptor = open_log(Path(child.state.log))
        child.log_start = os.fstat(descriptor).st_size
        try:
            child.process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=descriptor,
                stderr=descriptor,
                # Only the supervisor handles Ctrl-C: it stops the components in order.
                start_new_session=True,
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )
        finally:
            os.close(descriptor)
        child.state.pid, child.state.since, child.state.state = child.process.pid, time.time(), "running"
        self._note()

    async def _await_server(self, server: _Child) -> None:
        assert server.process is not None
        ending = asyncio.ensure_future(server.process.wait())
        try:
            deadline = time.monotonic() + _START
            while time.monotonic() < deadline and not self._stopping.is_set():
                found = read_server(self._plan.data_dir)
                if found is not None and found.pid == server.process.pid:
                    self.state.address, self.state.kubeconfig = found.address, found.kubeconfig
                    self._note()
                    return
                if ending.done():
                    break
                await asyncio.sleep(0.05)
            await self._end([server])
            if self._stopping.is_set():
                raise StartInterrupted
            raise StartFailed(f"the API server did not start:\n{tail(Path(server.state.log), server.log_start)}")
        finally:
            ending.cancel()

    def _watch(self, child: _Child) -> None:
        self._tasks.append(asyncio.create_task(self._keep(child)))

    async def _keep(self, child: _Child) -> None:
        """Restarts a component whenever it exits, with exponential back-off that is reset after a while."""
        while True:
            assert child.process is not None
            code = await child.process.wait()
            state = child.state
            child.failures = 1 if time.time() - state.since > _SOUND else child.failures + 1
            delay = min(_LONGEST, _SHORTEST * 2 ** (child.failures - 1))
            state.state, state.pid, state.last_exit = "waiting", 0, describe_exit(code)
            self._note()
            self._say(
                f"{state.name} ended ({state.last_exit}); starting it again in {delay:g} s. The end of {state.log}:\n"
                f"{tail(Path(state.log), child.log_start)}"
            )
            await asyncio.sleep(delay)
            state.restarts += 1
            while True:
                try:
                    await self._launch(child)
                    break
                except OSError as error:  # no memory for a process, or no disk space for its log
                    self._say(f"{state.name} cannot be started: {error}; trying again in {_LONGEST:g} s")
                    await asyncio.sleep(_LONGEST)

    async def _end(self, children: list[_Child]) -> None:
        running = [child for child in children if child.process is not None and child.process.returncode is None]
        for child in running:
            with suppress(ProcessLookupError):
                child.process.terminate()  # type: ignore[union-attr]  # running ones have a process
        waits = [child.process.wait() for child in running if child.process is not None]
        try:
            async with asyncio.timeout(_STOP):
                await asyncio.gather(*waits)
        except TimeoutError:
            for child in running:
                if child.process is not None and child.process.returncode is None:
                    with suppress(ProcessLookupError):
                        child.process.kill()
                    await child.process.wait()
        for child in children:
            child.state.state, child.state.pid = "stopped", 0


def component_commands() -> list[str]:
    """The components whose commands are installed, in the order in which they start."""
    return [name for name in component_users() if _command(name) is not None]


def options_of(name: str) -> set[str]:
    command = _command(name)
    assert command is not None
    return {option for parameter in command.params for option in parameter.opts}


def _command(name: str) -> click.Command | None:
    from wharfinger.cli.main import wharf

    return wharf.get_command(click.Context(wharf), name)


def open_log(log: Path) -> int:
    """A descriptor that appends to a log; a long log is rotated first."""
    if log.exists() and log.stat().st_size > _LOG_BYTES:
        log.replace(log.with_suffix(".log.1"))
    return os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def describe_exit(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def tail(log: Path, start: int = 0, lines: int = _SHOWN_LINES) -> str:
    """The last lines of a log from a position on, indented for the terminal."""
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(start, file.tell() - 16 * 1024))
            text = file.read().decode(errors="replace")
    except OSError:
        return "  (no log)"
    return "\n".join(f"  {line}" for line in text.splitlines()[-lines:]) or "  (empty)"


def _die_with_parent() -> None:
    """Asks Linux to terminate this process when the supervisor exits, even if it was killed."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
