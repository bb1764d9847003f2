"""The tier with a real node: run by `make test-node`, that is, only when its folder or a file of it is named."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.apiserver.running import environment
from tests.kubernetes.binaries import CONTAINERD, Binaries, NoBinaries, find_or_make
from tests.real_node.builds import Builds, make_builds
from tests.real_node.images import IMAGE
from tests.real_node.machine import Kubelet, Machine, control_plane, lacking, until
from tests.support import missing

HERE = Path(__file__).resolve().parent
PATIENCE = 600  # seconds for a test without what all share; programs may have to be built first
NODE = "real-1"
whole = pytest.mark.skipif("WHARF_NODE" not in os.environ, reason="run by `make test-node-whole`")
WHARF = [sys.executable, "-m", "wharfinger.cli.main"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.timeout(PATIENCE, func_only=True))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    named = [Path(config.invocation_params.dir, argument.partition("::")[0]).resolve() for argument in config.args]
    return None if any(path.is_relative_to(HERE) for path in named) else True


class RealCluster:
    """`wharf up` with one simulated node, and a real one on this machine."""

    def __init__(self, binaries: Binaries, machine: Machine, data: Path) -> None:
        self.binaries = binaries
        self.machine = machine
        self.data = data
        self.kubelet: Kubelet | None = None

    def join(self, *arguments: str, **settings: Any) -> Kubelet:
        """Starts a kubelet with the files that `wharf node-token` writes, as the text that it prints says. Settings are
        added to its configuration."""
        command = ["node-token", *arguments, "--data-dir", str(self.data), "--runtime-endpoint", self.machine.runtime]
        said = subprocess.run([*WHARF, *command], env=environment(), check=True, capture_output=True, text=True).stdout
        start = re.search(r"^  kubelet (.*?)\n\n", said, re.DOTALL | re.MULTILINE)
        assert start is not None, said
        given = shlex.split(start[1].replace("\\\n", " "))
        if not any(one.startswith("--hostname-override") for one in given):
            given.append(f"--hostname-override={NODE}")
        self.kubelet = Kubelet(self.binaries["kubelet"], self.machine, NODE, given, free_port(), **settings)
        self.kubelet.start()
        return self.kubelet

    def wait_ready(self) -> None:
        def ready() -> bool:
            assert self.kubelet is not None and self.kubelet.program is not None
            self.kubelet.program.check()
            return self.node_condition("Ready") == "True"

        until("the real node is ready", ready)

    def node_condition(self, kind: str) -> str:
        conditions = self.get("node", NODE)["status"].get("conditions", [])
        return next((str(one["status"]) for one in conditions if one["type"] == kind), "")

    def run(self, *arguments: str, stdin: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.binaries["kubectl"]), "--kubeconfig", str(self.data / "kubeconfig"), *arguments],
            input=stdin,
            check=check,
            capture_output=True,
            text=True,
            timeout=300,
        )

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        return self.run(*arguments, stdin=stdin).stdout

    def get(self, *arguments: str) -> Any:
        return json.loads(self("get", *arguments, "-o", "json"))


class Tenant:
    """kubectl in a namespace of its own."""

    def __init__(self, cluster: RealCluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace

    def run(self, *arguments: str, stdin: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.cluster.run("--namespace", self.namespace, *arguments, stdin=stdin, check=check)

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        return self.run(*arguments, stdin=stdin).stdout

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """kubectl with pipes, for what goes on until it is ended."""
        base = [str(self.cluster.binaries["kubectl"]), "--kubeconfig", str(self.cluster.data / "kubeconfig")]
        return subprocess.Popen(
            [*base, "--namespace", self.namespace, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def get(self, *arguments: str) -> Any:
        return json.loads(self("get", *arguments, "-o", "json"))

    def apply(self, *documents: dict[str, Any]) -> None:
        self("apply", "-f", "-", stdin=yaml.safe_dump_all(documents))

    def wait(self, name: str, condition: str = "condition=Ready") -> None:
        try:
            self("wait", f"--for={condition}", name, "--timeout=120s")
        except subprocess.CalledProcessError as error:
            kubelet = self.cluster.kubelet
            found = self.run("describe", name, check=False).stdout
            raise AssertionError(f"{error.stderr}\n{found}\n{kubelet.tail() if kubelet else ''}") from None


def container(script: str = "sleep 1000000", **more: Any) -> dict[str, Any]:
    return {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", f"trap 'exit 0' TERM; {script} & wait $!" if script.startswith("sleep") else script],
        **more,
    }


def pod_spec(script: str = "sleep 1000000", **more: Any) -> dict[str, Any]:
    """Of a pod for the real node."""
    own = more.pop("container", {})
    return {
        "nodeSelector": {"kubernetes.io/hostname": NODE},
        "terminationGracePeriodSeconds": 2,
        "containers": [container(script, **own)],
        **more,
    }


def pod(name: str, script: str = "sleep 1000000", **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "labels": {"app": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec(script, **more)}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    return port


@pytest.fixture(scope="session")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Builds:
    return make_builds(tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="module")  # the next module has a machine of its own, with the same addresses
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    if why := lacking():
        missing("containerd", why)
    try:
        binaries = find_or_make("kubelet", CONTAINERD)
    except NoBinaries as error:
        missing("containerd", str(error))
    folder = tmp_path_factory.mktemp("real")
    machine = Machine(binaries[CONTAINERD], folder / "machine")
    made = RealCluster(binaries, machine, folder / "data")
    try:
        machine.start()
        up = [*WHARF, "up", "--port", "0", "--no-dashboard", "--nodes", "1"]
        with control_plane(up, made.data, environment() | {"PATH": os.environ["PATH"]}):
            machine.serve_api(json.loads((made.data / "apiserver.json").read_text())["address"])
            made.join()
            made.wait_ready()
            yield made
            if made.kubelet is not None:
                made.kubelet.stop()
    finally:
        if made.kubelet is not None:
            made.kubelet.stop()
        machine.stop()


@pytest.fixture
def kubectl(cluster: RealCluster) -> Iterator[Tenant]:
    namespace = f"t-{uuid.uuid4().hex[:8]}"
    cluster("create", "namespace", namespace)
    tenant = Tenant(cluster, namespace)
    until("the default account exists", lambda: tenant.run("get", "sa", "default", check=False).returncode == 0, 30)
    yield tenant
    # Gone before the next test, so that no container of this one is left.
    tenant("delete", "pods", "--all", "--grace-period=1", "--timeout=120s")
    cluster("delete", "namespace", namespace, "--wait=false")
