"""The run state that `wharf up` keeps in its data directory, and how other commands read it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO, TypeVar

import msgspec

from wharfinger.apiserver.files import private_directory, write_private

T = TypeVar("T")

RUN_FILE = "run.json"
SERVER_FILE = "apiserver.json"
_LOCK_FILE = "up.lock"


class ComponentState(msgspec.Struct, rename="camel"):
    name: str
    state: str = "starting"  # starting, running, waiting (to be started again), stopped
    pid: int = 0
    since: float = 0.0  # seconds since the epoch
    restarts: int = 0
    last_exit: str = ""
    log: str = ""


class RunState(msgspec.Struct, rename="camel"):
    pid: int
    data_dir: str
    address: str = ""
    kubeconfig: str = ""
    started: float = 0.0
    components: list[ComponentState] = []
    config: str = ""  # the file of `--config`
    nodes: int = 0  # wanted number of simulated nodes

    def write(self) -> None:
        data = msgspec.json.format(msgspec.json.encode(self), indent=2)
        write_private(Path(self.data_dir) / RUN_FILE, data)


class ServerState(msgspec.Struct):
    """Written by the API server when it is listening."""

    pid: int
    address: str
    kubeconfig: str


class AlreadyRuns(Exception):
    """Another `wharf up` uses the directory."""


def lock(directory: Path) -> IO[str]:
    """Locks the directory for this process; the lock is released whenever the process ends."""
    private_directory(directory)
    holder = (directory / _LOCK_FILE).open("a+", encoding="utf-8")
    try:
        fcntl.flock(holder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder.seek(0)
        pid = holder.read().strip() or "unknown"
        holder.close()
        raise AlreadyRuns(
            f"`wharf up` already runs on {directory} (process {pid}); stop it, or use another --data-dir"
        ) from None
    holder.seek(0)
    holder.truncate()
    holder.write(str(os.getpid()))
    holder.flush()
    return holder


def is_locked(directory: Path) -> bool:
    path = directory / _LOCK_FILE
    if not path.exists():
        return False
    with path.open("a+", encoding="utf-8") as holder:
        try:
            fcntl.flock(holder, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        return False


def seen_state(component: ComponentState) -> str:
    """The state according to the operating system: a process may be gone or suspended before the supervisor notices."""
    if component.state != "running":
        return component.state
    try:
        os.kill(component.pid, 0)
        told = Path(f"/proc/{component.pid}/stat").read_text()
    except ProcessLookupError:
        return "gone"
    except OSError:
        return component.state  # no /proc on this platform
    letter = told.rpartition(")")[2].split()[0]
    return {"T": "suspended", "t": "suspended", "Z": "gone"}.get(letter, component.state)


def read_run(directory: Path) -> RunState | None:
    return _read(directory / RUN_FILE, RunState)


def read_server(directory: Path) -> ServerState | None:
    return _read(directory / SERVER_FILE, ServerState)


def write_server(directory: Path, state: ServerState) -> None:
    write_private(directory / SERVER_FILE, msgspec.json.encode(state))


def _read(path: Path, as_type: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=as_type)
    except (OSError, msgspec.DecodeError):
        return None
