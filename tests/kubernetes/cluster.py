"""A real Kubernetes on this machine: etcd, kube-apiserver and kube-controller-manager on loopback, in a folder that goes
away, and the programs of ours that run against it. Nothing is left running, whatever happens."""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import yaml
from tests.apiserver.running import Api
from tests.client.certificates import Authority
from tests.kubernetes.binaries import Binaries

ROOT = Path(__file__).resolve().parents[2]
ADMIN, MANAGER, SCHEDULER = "admin", "system:kube-controller-manager", "system:kube-scheduler"
USERS = {ADMIN: "system:masters", MANAGER: "", SCHEDULER: "system:masters"}
OURS = "wharfinger-system"


class Process:
    """One running program; its output goes to a file. The kernel ends it should we die first."""

    def __init__(self, name: str, command: Sequence[str | Path], log: Path, **env: str) -> None:
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [str(part) for part in command],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **env},
                cwd=log.parent,
                preexec_fn=die_with_parent,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self, timeout: float = 20) -> int:
        if self.running:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                self._process.kill()
        return self._process.wait()

    def forbidden(self) -> list[str]:
        """What it told of requests for which it has no right; quotas and policies forbid in other words."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [line for line in lines if re.search(r'is forbidden: user "', line, re.IGNORECASE)]

    def tail(self, lines: int = 30) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def die_with_parent() -> None:
    import ctypes

    ctypes.CDLL("libc.so.6").prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Cluster:
    """`start` returns when the API server is ready; `stop` ends everything, ours first."""

    def __init__(self, binaries: Binaries, folder: Path) -> None:
        self.folder = folder
        self.binaries = binaries
        self.server = f"https://127.0.0.1:{free_port()}"
        self._etcd = f"http://127.0.0.1:{free_port()}"
        self.webhook = f"127.0.0.1:{free_port()}"  # where one of ours may listen; definitions remember who converts
        self._tokens = {user: secrets.token_hex(16) for user in USERS}
        self._authority = Authority()
        self._started: list[Process] = []
        self._parts: dict[str, Process] = {}
        self.kubeconfig = folder / "admin.conf"

    def start(self, *, controllers: bool = True, apiserver: Sequence[str] = (), durable: bool = False) -> None:
        """With `durable`, etcd waits for the disk, as it does in earnest."""
        self._write_files()
        self._start_etcd(durable=durable)
        self.start_apiserver(*apiserver)
        if controllers:
            self.start_controller_manager()

    def stop(self) -> None:
        for process in reversed(self._started):
            process.stop()
        self._started.clear()

    # -- the parts of Kubernetes

    def _write_files(self) -> None:
        pair = self._authority.issue(
            "kube-apiserver", hosts=("localhost", "kubernetes.default.svc"), address="127.0.0.1"
        )
        account = self._authority.issue("service-accounts")
        files = {
            "ca.crt": self._authority.pem,
            "server.crt": pair.certificate,
            "server.key": pair.key,
            "accounts.crt": account.certificate,
            "accounts.key": account.key,
            "tokens.csv": "".join(
                f'{self._tokens[user]},{user},{user},"{group}"\n' for user, group in USERS.items()
            ).encode(),
        }
        for name, data in files.items():
            (self.folder / name).write_bytes(data)
        for user in USERS:
            self._write_kubeconfig(self._kubeconfig_of(user), self._tokens[user])

    def _kubeconfig_of(self, user: str) -> Path:
        return self.folder / f"{user.rpartition(':')[2]}.conf"

    def pid(self, part: str) -> int:
        return self._parts[part].pid

    @property
    def port(self) -> int:
        return int(self.server.rpartition(":")[2])

    def _write_kubeconfig(self, path: Path, token: str, server: str = "") -> None:
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [
                {
                    "name": "test",
                    "cluster": {
                        "server": server or self.server,
                        "certificate-authority-data": b64encode(self._authority.pem).decode(),
                    },
                }
            ],
            "users": [{"name": "test", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }
        path.write_text(json.dumps(document))

    def _start_etcd(self, *, durable: bool) -> None:
        peers = f"http://127.0.0.1:{free_port()}"
        command = [self.binaries["etcd"], "--data-dir", self.folder / "etcd"]
        command += [] if durable else ["--unsafe-no-fsync"]
        command += ["--listen-client-urls", self._etcd, "--advertise-client-urls", self._etcd]
        command += ["--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers]
        command += ["--initial-cluster", f"default={peers}", "--quota-backend-bytes", str(4 << 30)]
        self._run("etcd", command)
        self.until(lambda: reachable(f"{self._etcd}/health"), "etcd answers")

    def start_apiserver(self, *options: str) -> None:
        command: list[str | Path] = [self.binaries["kube-apiserver"], "--etcd-servers", self._etcd]
        command += ["--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1"]
        command += ["--endpoint-reconciler-type", "none"]  # which refuses loopback addresses
        command += ["--secure-port", str(self.port)]
        command += ["--cert-dir", self.folder, "--tls-cert-file", self.folder / "server.crt"]
        command += ["--tls-private-key-file", self.folder / "server.key"]
        command += ["--token-auth-file", self.folder / "tokens.csv", "--authorization-mode", "Node,RBAC"]
        command += ["--service-account-issuer", "https://kubernetes.default.svc"]
        command += ["--service-account-key-file", self.folder / "accounts.crt"]
        command += ["--service-account-signing-key-file", self.folder / "accounts.key"]
        command += ["--service-cluster-ip-range", "10.0.0.0/24", "--allow-privileged", *options]
        # No kubelets are asked, and no tests need other defaults of the admission chain.
        self._run("kube-apiserver", command)
        self.until(self._ready, "the API server is ready")

    def stop_apiserver(self, *, hard: bool = False) -> None:
        process = self._parts["kube-apiserver"]
        if hard:
            process.kill()
        else:
            process.stop()
        self._started.remove(process)

    def freeze_apiserver(self, seconds: float) -> None:
        """The server takes requests and answers none for a while."""
        process = self._parts["kube-apiserver"]
        process.signal(signal.SIGSTOP)
        time.sleep(seconds)
        process.signal(signal.SIGCONT)

    def compact(self) -> None:
        """etcd forgets the past: every watch that is behind must start anew."""
        _post(
            f"{self._etcd}/v3/kv/compaction",
            {"revision": int(self.get("/api/v1/pods?limit=1")["metadata"]["resourceVersion"])},
        )

    def start_controller_manager(self, *options: str) -> None:
        command: list[str | Path] = [self.binaries["kube-controller-manager"], "--kubeconfig"]
        command += [self._kubeconfig_of(MANAGER), "--use-service-account-credentials", "--leader-elect=false"]
        command += ["--service-account-private-key-file", self.folder / "accounts.key"]
        command += ["--root-ca-file", self.folder / "ca.crt", "--secure-port", "0"]
        command += ["--concurrent-deployment-syncs", "10", "--concurrent-replicaset-syncs", "10"]
        command += ["--kube-api-qps", "500", "--kube-api-burst", "1000", *options]
        self._run("kube-controller-manager", command)
        self.until(
            lambda: self.api().ask("GET", "/api/v1/namespaces/default/serviceaccounts/default").status == 200,
            "the controller manager works",
        )

    def start_kube_scheduler(self, config: dict[str, Any]) -> Process:
        """The stock scheduler, with a KubeSchedulerConfiguration to which the way to the cluster is added."""
        connection = {**config.get("clientConnection", {}), "kubeconfig": str(self._kubeconfig_of(SCHEDULER))}
        file = self.folder / "kube-scheduler.json"
        file.write_text(
            json.dumps(
                {
                    "apiVersion": "kubescheduler.config.k8s.io/v1",
                    "kind": "KubeSchedulerConfiguration",
                    "leaderElection": {"leaderElect": False},
                    **config,
                    "clientConnection": connection,
                }
            )
        )
        return self._run_kube_scheduler(file)

    def _run_kube_scheduler(self, file: Path) -> Process:
        return self._run("kube-scheduler", [self.binaries["kube-scheduler"], "--config", file, "--secure-port", "0"])

    def restart_kube_scheduler(self) -> Process:
        """The same one again, without anything that it remembers."""
        self._parts["kube-scheduler"].kill()
        self.end(self._parts["kube-scheduler"])
        return self._run_kube_scheduler(self.folder / "kube-scheduler.json")

    def _ready(self) -> bool:
        if not self._parts["kube-apiserver"].running:
            raise AssertionError(f"kube-apiserver ended:\n{self._parts['kube-apiserver'].tail()}")
        try:
            return self.api().ask("GET", "/readyz").status == 200
        except (OSError, ssl.SSLError):
            return False

    # -- ours, and how to ask

    def wharf(self, *arguments: str, name: str = "", kubeconfig: Path | None = None) -> Process:
        """Starts a `wharf` command against the cluster."""
        command = [sys.executable, "-m", "wharfinger.cli.main", *arguments]
        command += ["--kubeconfig", str(kubeconfig or self.kubeconfig)]
        return self._run(name or f"wharf-{arguments[0]}", command, PYTHONPATH=str(ROOT / "src"))

    def run_wharf(self, *arguments: str, check: bool = True, cluster: bool = False) -> str:
        """The output of a `wharf` command that ends."""
        command = [sys.executable, "-m", "wharfinger.cli.main", *arguments]
        command += ["--kubeconfig", str(self.kubeconfig)] if cluster else []
        done = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
            timeout=1800,
            check=False,
        )
        assert not check or done.returncode == 0, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + ("" if check else done.stderr)

    def kubeconfig_of(self, namespace: str, account: str, port: int = 0) -> Path:
        """A way in for a service account, as its pods would have it; by another port of this machine, if one is given."""
        file = self.folder / f"{namespace}-{account}-{port}.conf"
        token = self.kubectl("create", "token", account, "-n", namespace, "--duration", "2h").strip()
        self._write_kubeconfig(file, token, f"https://127.0.0.1:{port}" if port else "")
        return file

    def install_rights(self) -> None:
        """All that `wharf install` prints, but for what would run: the programs are started by hand, as processes."""
        printed = yaml.safe_load_all(self.run_wharf("install", "--components", "all", "--offline"))
        self.apply(*(each for each in printed if each["kind"] not in ("Deployment", "PodDisruptionBudget", "Service")))
        self.until(self._definitions_established, "our definitions are established")

    def _definitions_established(self) -> bool:
        found = self.items("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
        conditions = ((each.get("status") or {}).get("conditions") or () for each in found)
        return all(any(c["type"] == "Established" and c["status"] == "True" for c in each) for each in conditions)

    def account_of(self, program: str, port: int = 0) -> Path:
        """The way in that an installed program of ours has, with the rights that come with it and no others."""
        return self.kubeconfig_of(OURS, f"wharfinger-{program}", port)

    def kubectl(self, *arguments: str, stdin: str = "", check: bool = True) -> str:
        command = [str(self.binaries["kubectl"]), "--kubeconfig", str(self.kubeconfig), *arguments]
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=120, check=False, cwd=self.folder
        )
        assert not check or done.returncode == 0, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + ("" if check else done.stderr)

    def api(self) -> Api:
        return Api(self.kubeconfig)

    def get(self, path: str) -> Any:
        return self.api().get(path)

    def items(self, path: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get(path)["items"]
        return found

    def apply(self, *documents: dict[str, Any]) -> None:
        self.kubectl("apply", "--server-side", "-f", "-", stdin="\n---\n".join(map(json.dumps, documents)))

    def until(self, holds: Callable[[], object], what: str, seconds: float = 120) -> None:
        """Waits until it holds; what is still missing after that is a failure, with the ends of all logs."""
        end = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > end:
                logs = "\n".join(f"== {process.name}\n{process.tail()}" for process in self._started)
                raise AssertionError(f"after {seconds:.0f} s still not: {what}\n{logs}")
            time.sleep(0.1)

    def end(self, process: Process) -> int:
        """Stops one of ours before the cluster goes."""
        self._started.remove(process)
        return process.stop()

    def _run(self, name: str, command: Sequence[str | Path], **env: str) -> Process:
        process = Process(name, command, self.folder / f"{name}.log", **env)
        self._started.append(process)
        self._parts[name] = process
        return process


_given: list[IO[bytes]] = []  # locks on the ports that were given out: they last as long as this process


def free_port() -> int:
    """One that no other test gets meanwhile, in whatever process, though nobody may listen on it for a while. Below those that
    kernels give to outgoing connections."""
    folder = Path(tempfile.gettempdir()) / f"wharfinger-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    while True:
        port = 15_000 + secrets.randbelow(15_000)
        lock = (folder / str(port)).open("wb")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as found:
                found.bind(("127.0.0.1", port))
        except OSError:
            lock.close()
            continue
        _given.append(lock)
        return port


def _post(url: str, body: dict[str, Any]) -> None:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200


def reachable(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def main() -> None:
    """A cluster to try things on by hand, until interrupted."""
    import tempfile

    from tests.kubernetes.binaries import find_or_make

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(find_or_make(), Path(folder))
        try:
            cluster.start()
            print(f"export KUBECONFIG={cluster.kubeconfig}", flush=True)
            signal.pause()
        except KeyboardInterrupt:
            pass
        finally:
            cluster.stop()


if __name__ == "__main__":
    main()
