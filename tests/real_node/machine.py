"""A real node on this machine: containerd, an image made of busybox, and a kubelet that joins `wharf up`.

Images are imported, and pods use `imagePullPolicy: Never`. Nothing outside the given folder
is changed, except for network interfaces and cgroups of containers.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.kubernetes.cluster import die_with_parent
from tests.real_node.images import IMAGE, busybox, make_image
from tests.real_node.leftovers import CGROUPS, NETWORK, cgroup_of, remove_cgroup, remove_leftovers, unmount

SERVICE_ADDRESS = ("10.96.0.1", 443)  # of the Service `kubernetes`
_CGROUP = cgroup_of(os.getpid())  # a kubelet kills whatever it does not know below its own root
_CNI = ("/usr/lib/cni", "/opt/cni/bin")
_PLUGINS = ("ptp", "host-local", "loopback")


def lacking() -> str:
    """What this machine lacks to run containers, in one line; empty if it can."""
    if os.geteuid() != 0:
        return "real nodes need root"
    if not all(os.access(folder, os.W_OK) for folder in _hierarchies()):
        return "real nodes need cgroups"
    for program in ("runc", "ip"):
        if shutil.which(program) is None:
            return f"real nodes need {program}"
    if cni_folder() is None:
        return "real nodes need the CNI plugins (containernetworking-plugins)"
    if busybox() is None:
        return "real nodes need a static busybox (busybox-static)"
    return ""


def _hierarchies() -> list[Path]:
    """The roots of all cgroup hierarchies that a kubelet uses: one with version 2, one for each controller with version 1."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return [CGROUPS / name for name in ("cpu", "cpuacct", "cpuset", "memory", "pids", "systemd")]


def make_cgroups() -> None:
    for root in _hierarchies():
        (root / _CGROUP).mkdir(exist_ok=True)
        for name in ("cpuset.cpus", "cpuset.mems"):  # empty in a new cgroup of version 1
            mine = root / _CGROUP / name
            if root.name == "cpuset" and not mine.read_text().strip():
                mine.write_text((root / name).read_text())


def remove_cgroups() -> None:
    """The runtime may have made more of them than the kubelet."""
    for root in (CGROUPS, *CGROUPS.iterdir()):
        remove_cgroup(root / _CGROUP)


def cni_folder() -> str | None:
    return next((folder for folder in _CNI if all(os.access(f"{folder}/{name}", os.X_OK) for name in _PLUGINS)), None)


def until(what: str, check: Callable[[], Any], seconds: float = 120.0, every: float = 0.25) -> Any:
    """Polls until the check returns something true, which is returned. Errors of kubectl, and fields that are not there yet, count as no."""
    deadline = time.monotonic() + seconds
    last: object = None
    while time.monotonic() < deadline:
        try:
            last = check()
            if last:
                return last
        except subprocess.CalledProcessError as error:
            last = error.stderr or error.stdout
        except (KeyError, IndexError) as error:
            last = f"no {error}"
        time.sleep(every)
    raise AssertionError(f"{what} did not happen within {seconds:g} s; last seen: {last}")


class Program:
    """A running program whose output is in a file. It ends with us, even if we are killed."""

    def __init__(self, name: str, command: list[str], log: Path, **environment: str) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                command,
                stdout=out,
                stderr=out,
                env={**os.environ, **environment},
                start_new_session=True,
                preexec_fn=die_with_parent,
            )

    def check(self) -> None:
        assert self.process.poll() is None, f"{self.name} has ended:\n{self.tail()}"

    def tail(self, lines: int = 40) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def stop(self, number: signal.Signals = signal.SIGTERM, seconds: float = 30.0) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Machine:
    """containerd, whose programs are in a given folder, and its images. Several kubelets would need one each."""

    def __init__(self, containerd: Path, folder: Path, pods: str = "10.88.0.0/24") -> None:
        self.folder = folder
        self._programs = containerd
        self.pods = pods  # their addresses
        self.socket = folder / "containerd.sock"
        self._containerd: Program | None = None
        self._snapshotter = ""
        self._service: socket.socket | None = None
        self._networks: set[str] = set()  # of pods that ran

    @property
    def cdi(self) -> Path:
        """Where DRA drivers tell containerd about devices."""
        return self.folder / "cdi"

    @property
    def _registries(self) -> Path:
        return self.folder / "registries"

    @property
    def runtime(self) -> str:
        return f"unix://{self.socket}"

    def start(self) -> None:
        remove_leftovers()
        (self.folder / "cni").mkdir(parents=True)
        (self.folder / "cni" / "10-ptp.conflist").write_text(json.dumps(_network(self.folder, self.pods)))
        self._snapshotter = self._find_snapshotter()
        (self.folder / "containerd.toml").write_text(self._configuration())
        self._start_containerd()
        archive = self.folder / "image.tar"
        make_image().save(archive, IMAGE)
        self.import_images(archive)

    def mirror(self, registry: str, url: str) -> None:
        """Images of this registry are pulled from there instead."""
        folder = self._registries / registry
        folder.mkdir(parents=True)
        (folder / "hosts.toml").write_text(f"server = '{url}'\n")

    def import_images(self, archive: Path, *options: str) -> None:
        self.ctr("image", "import", "--local", "--snapshotter", self._snapshotter, *options, str(archive))

    def _start_containerd(self) -> None:
        make_cgroups()
        command = [str(self._programs / "containerd"), "--config", str(self.folder / "containerd.toml")]
        path = f"{self._programs}:{os.environ['PATH']}"  # of its shim
        self._containerd = Program("containerd", command, self.folder / "containerd.log", PATH=path)
        until("containerd serves", lambda: self._containerd_answers(), 60)

    def reboot(self) -> None:
        """What a reboot leaves: no process, no network and nothing in /run, but images and what kubelets wrote."""
        assert self._containerd is not None
        self._kill_containers()
        self._containerd.stop()
        self._remove_networks()
        unmount(self.folder / "state")
        shutil.rmtree(self.folder / "state")
        self._start_containerd()

    def _containerd_answers(self) -> bool:
        assert self._containerd is not None
        self._containerd.check()
        return self.socket.exists() and bool(self.ctr("version"))

    def ctr(self, *arguments: str) -> str:
        command = [str(self._programs / "ctr"), "--address", str(self.socket), "--namespace", "k8s.io", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=180).stdout

    def _find_snapshotter(self) -> str:
        """overlayfs may be missing, or not work on overlayfs; copies of whole images work everywhere."""
        layers = [self.folder / "overlay" / name for name in ("lower", "upper", "work", "merged")]
        for each in layers:
            each.mkdir(parents=True)
        lower, upper, work, merged = map(str, layers)
        command = [
            "mount",
            "-t",
            "overlay",
            "overlay",
            "-o",
            f"lowerdir={lower},upperdir={upper},workdir={work}",
            merged,
        ]
        if subprocess.run(command, check=False, capture_output=True).returncode:
            return "native"
        subprocess.run(["umount", merged], check=True)
        return "overlayfs"

    def _configuration(self) -> str:
        """Everything is in the folder; the plugins that are switched off would use other ones."""
        images, runtime = "plugins.'io.containerd.cri.v1.images'", "plugins.'io.containerd.cri.v1.runtime'"
        return "\n".join(
            [
                "version = 4",
                f"root = '{self.folder}/root'",
                f"state = '{self.folder}/state'",
                "disabled_plugins = ['io.containerd.internal.v1.opt']",
                "[plugins.'io.containerd.nri.v1.nri']",
                "disable = true",
                "[plugins.'io.containerd.server.v1.grpc']",
                f"address = '{self.socket}'",
                "[plugins.'io.containerd.server.v1.ttrpc']",
                f"address = '{self.socket}.ttrpc'",
                f"[{images}]",
                f"snapshotter = '{self._snapshotter}'",
                "use_local_image_pull = true",  # the other way knows one snapshotter only
                f"[{images}.pinned_images]",
                f"sandbox = '{IMAGE}'",
                f"[{images}.registry]",
                f"config_path = '{self._registries}'",
                f"[{runtime}]",
                "restrict_oom_score_adj = true",  # where CAP_SYS_RESOURCE is missing
                f"cdi_spec_dirs = ['{self.cdi}']",
                f"[{runtime}.cni]",
                f"bin_dirs = ['{cni_folder()}']",
                f"conf_dir = '{self.folder}/cni'",
                f"[{runtime}.containerd.runtimes.runc]",
                "runtime_type = 'io.containerd.runc.v2'",
                f"[{runtime}.containerd.runtimes.runc.options]",
                "SystemdCgroup = false",
                "",
            ]
        )

    # The network

    def serve_api(self, address: str) -> None:
        """Makes the Service `kubernetes` reachable from pods, as kube-proxy would: its address becomes one of this
        machine, and connections are passed on to the API server."""
        host, _, port = address.rpartition(":")
        subprocess.run(["ip", "address", "replace", f"{SERVICE_ADDRESS[0]}/32", "dev", "lo"], check=True)
        self._service = socket.create_server(SERVICE_ADDRESS)
        threading.Thread(target=_pass_on, args=(self._service, (host, int(port))), daemon=True).start()

    def stop(self) -> None:
        if self._service is not None:
            # Closing alone would leave the address in use: the thread that accepts connections holds the socket.
            self._service.shutdown(socket.SHUT_RDWR)
            self._service.close()
            subprocess.run(["ip", "address", "delete", f"{SERVICE_ADDRESS[0]}/32", "dev", "lo"], check=False)
        if self._containerd is not None:
            with contextlib.suppress(subprocess.SubprocessError):
                self._end_containers()
            self._containerd.stop()
        self._remove_networks()
        unmount(self.folder)
        remove_cgroups()

    def _remove_networks(self) -> None:
        """The network namespaces of pods, and with them their interfaces."""
        for network in self._networks:
            subprocess.run(["umount", network], check=False, capture_output=True)
            Path(network).unlink(missing_ok=True)
        self._networks.clear()

    def _kill_containers(self) -> None:
        for container in self.ctr("container", "ls", "-q").split():
            with contextlib.suppress(subprocess.SubprocessError):
                namespaces = json.loads(self.ctr("container", "info", container))["Spec"]["linux"]["namespaces"]
                paths = (each.get("path", "") for each in namespaces if each["type"] == "network")
                self._networks |= {path for path in paths if "/netns/" in path}
        for task in self.ctr("task", "ls", "-q").split():
            with contextlib.suppress(subprocess.SubprocessError):
                self.ctr("task", "kill", "-s", "SIGKILL", "-a", task)
        until("all containers end", lambda: "RUNNING" not in self.ctr("task", "ls"), 30)

    def _end_containers(self) -> None:
        self._kill_containers()
        for container in self.ctr("container", "ls", "-q").split():
            with contextlib.suppress(subprocess.SubprocessError):
                self.ctr("task", "delete", "-f", container)
            with contextlib.suppress(subprocess.SubprocessError):
                self.ctr("container", "delete", container)


def _network(folder: Path, pods: str) -> dict[str, Any]:
    ranges = {"type": "host-local", "ranges": [[{"subnet": pods}]], "routes": [{"dst": "0.0.0.0/0"}]}
    ranges["dataDir"] = str(folder / "cni-addresses")
    plugin = {"type": "ptp", "ipMasq": False, "ipam": ranges}
    return {"cniVersion": "0.4.0", "name": NETWORK, "plugins": [plugin]}


def _pass_on(listener: socket.socket, target: tuple[str, int]) -> None:
    while True:
        try:
            near, _ = listener.accept()
        except OSError:
            return
        far = socket.create_connection(target)
        for source, sink in ((near, far), (far, near)):
            threading.Thread(target=_copy, args=(source, sink), daemon=True).start()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


class Kubelet:
    """A kubelet that was given its files by `wharf node-token`."""

    def __init__(
        self, program: Path, machine: Machine, name: str, arguments: list[str], port: int, **more: Any
    ) -> None:
        self.name = name
        self._command = [str(program), *arguments, f"--root-dir={machine.folder / f'kubelet-{name}'}", "--v=2"]
        self._log = machine.folder / f"kubelet-{name}.log"
        configuration = Path(next(one for one in arguments if one.startswith("--config=")).removeprefix("--config="))
        settings = {**json.loads(configuration.read_text()), **_settings(port), **more}
        settings["podLogsDir"] = str(machine.folder / "logs")
        configuration.write_text(json.dumps(settings, indent=2))
        self.program: Program | None = None

    def start(self) -> None:
        self.program = Program(f"kubelet {self.name}", self._command, self._log)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self.program is not None:
            self.program.stop(number)
            self.program = None

    def tail(self, lines: int = 40) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])


def _settings(port: int) -> dict[str, Any]:
    """For a small machine that does other things, too."""
    return {
        "port": port,
        "healthzPort": 0,
        "readOnlyPort": 0,
        "failCgroupV1": False,
        "failSwapOn": False,
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": True,
        "cgroupRoot": f"/{_CGROUP}",
        "enforceNodeAllocatable": [],
        "evictionHard": {"memory.available": "10Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "makeIPTablesUtilChains": False,
        "syncFrequency": "5s",
        "nodeStatusUpdateFrequency": "4s",
        "resolvConf": "",
        "volumeStatsAggPeriod": "0s",
        "localStorageCapacityIsolation": False,
    }


@contextlib.contextmanager
def control_plane(command: list[str], folder: Path, environment: dict[str, str]) -> Iterator[Program]:
    """`wharf up`, until the block ends."""
    program = Program("wharf up", [*command, "--data-dir", str(folder)], folder.with_suffix(".log"), **environment)
    try:
        until("wharf up is up", lambda: program.check() or "Ctrl-C stops" in program.log.read_text(), 120)
        yield program
    finally:
        program.stop(signal.SIGINT, 60)
