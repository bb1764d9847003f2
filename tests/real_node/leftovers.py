"""What runs that were killed have left on this machine: containers, network interfaces, mounts and cgroups.

Interfaces of an earlier run keep the routes to its pods, which have the same addresses as those of the next one. The
cgroups of a run are named after its process, and the CNI library remembers the cgroup of each pod that it connected, so
nothing of others and nothing of a run that still goes on is touched.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NETWORK = "wharfinger-test"  # in the CNI configuration of a machine
CGROUPS = Path("/sys/fs/cgroup")
CONNECTED = Path("/var/lib/cni/results")  # a file for each interface of each pod
_OWN_CGROUP = re.compile(r"(?:^|/)wharfinger-test-(\d+)(?:/|$)")


def cgroup_of(process: int) -> str:
    """Relative to the root of each hierarchy."""
    return f"wharfinger-test-{process}"


def is_left(cgroup: str, since: float) -> bool:
    """Whether a cgroup is one of a run whose process is gone. Something was in it at the given time, so a process that
    started later is another one with the same number."""
    found = _OWN_CGROUP.search(cgroup)
    if found is None:
        return False
    started = started_at(int(found[1]))
    return started is None or started > since


def started_at(process: int) -> float | None:
    """When a process started, in seconds since the epoch; None if there is none."""
    try:
        ticks = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return None
    booted = re.search(r"^btime (\d+)$", Path("/proc/stat").read_text(), re.MULTILINE)
    assert booted is not None
    return int(booted[1]) + ticks / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class PodNetwork:
    """What the CNI library noted about one interface of a pod."""

    file: Path
    noted: dict[str, Any]

    @property
    def is_left(self) -> bool:
        return is_left(str(self.noted.get("capabilityArgs", {}).get("cgroupPath", "")), self.file.stat().st_mtime)

    @property
    def machine(self) -> str:
        """The folder of the machine; empty for the loopback interface."""
        plugins = json.loads(base64.b64decode(self.noted["config"])).get("plugins", ())
        folders = (each.get("ipam", {}).get("dataDir", "") for each in plugins)
        return next((str(Path(folder).parent) for folder in folders if folder), "")

    def remove(self) -> None:
        for interface in self.noted.get("result", {}).get("interfaces", ()):
            name, inside = str(interface["name"]), interface.get("sandbox")
            if not inside and _has_address(name, str(interface.get("mac"))):  # names are given again, addresses are not
                subprocess.run(["ip", "link", "delete", name], check=False, capture_output=True)
        namespace = Path(self.noted["netns"])
        subprocess.run(["umount", str(namespace)], check=False, capture_output=True)
        with contextlib.suppress(OSError):  # another interface of the pod was in it, too
            namespace.unlink()
        self.file.unlink(missing_ok=True)


def _has_address(interface: str, address: str) -> bool:
    with contextlib.suppress(OSError):
        return Path("/sys/class/net", interface, "address").read_text().strip() == address
    return False


def remove_leftovers(connected: Path = CONNECTED) -> None:
    networks = [each for each in pod_networks(connected) if each.is_left]
    machines = {each.machine for each in networks} - {""}
    end_processes(machines)
    for network in networks:
        network.remove()
    for machine in machines:
        unmount(machine)
    for cgroup in (*CGROUPS.glob("wharfinger-test-*"), *CGROUPS.glob("*/wharfinger-test-*")):
        if is_left(cgroup.name, cgroup.stat().st_ctime):
            remove_cgroup(cgroup)


def pod_networks(connected: Path) -> Iterator[PodNetwork]:
    for file in connected.glob("*") if connected.is_dir() else ():
        with contextlib.suppress(OSError, ValueError):
            yield PodNetwork(file, json.loads(file.read_text()))


def end_processes(machines: Iterable[str]) -> None:
    """The containers of runs that are gone, and the shims that would report their end to one of these machines."""
    deadline = time.monotonic() + 20
    while found := {*_in_left_cgroups(), *_shims(machines)}:
        for process in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        assert time.monotonic() < deadline, f"processes of an earlier run do not end: {sorted(found)}"
        time.sleep(0.1)


def _in_left_cgroups() -> Iterator[int]:
    for file in Path("/proc").glob("[0-9]*/cgroup"):
        with contextlib.suppress(OSError):
            process = int(file.parent.name)
            cgroups = {line.split(":", 2)[2] for line in file.read_text().splitlines()}
            if any(_OWN_CGROUP.search(each) for each in cgroups) and not _is_zombie(file.parent):
                since = started_at(process) or 0
                if any(is_left(each, since) for each in cgroups):
                    yield process


def _shims(machines: Iterable[str]) -> Iterator[int]:
    sockets = {f"{machine}/containerd.sock" for machine in machines}
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            arguments = set(file.read_bytes().decode(errors="replace").split("\0"))
            if arguments & sockets and not _is_zombie(file.parent):
                yield int(file.parent.name)


def _is_zombie(process: Path) -> bool:
    return "\nState:\tZ" in (process / "status").read_text()


def unmount(folder: Path | str) -> None:
    """Everything that is mounted below a folder."""
    for line in Path("/proc/mounts").read_text().splitlines():
        if (mounted := line.split()[1]).startswith(f"{folder}/"):
            subprocess.run(["umount", "-l", mounted], check=False, capture_output=True)


def remove_cgroup(cgroup: Path) -> None:
    for folder, _, _ in os.walk(cgroup, topdown=False):
        with contextlib.suppress(OSError):
            Path(folder).rmdir()
