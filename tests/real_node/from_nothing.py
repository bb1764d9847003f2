"""A cluster from nothing: a real control plane, and one real node with kubelet, containerd and kube-proxy.

The API server, the kubelet and Services are reached at addresses that only this machine has.
"""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.kubernetes.binaries import CONTAINERD, Binaries, NoBinaries, find_or_make
from tests.kubernetes.cluster import OURS, Cluster, free_port
from tests.real_node.builds import Builds
from tests.real_node.machine import Kubelet, Machine, lacking
from tests.real_node.services import ServiceProxy
from tests.support import missing

NODE = "real-1"
# Not those of the other tests of this tier, so that both can run at once.
ADDRESS = "10.89.255.1"  # of the node, on the loopback interface
PODS = "10.89.0.0/24"
SERVICES, KUBERNETES = "10.97.0.0/16", "10.97.0.1"
KUBELET, PROXY = f"system:node:{NODE}", "system:kube-proxy"
KUBELET_CLIENT = "kube-apiserver-kubelet-client"


class NodeCluster(Cluster):
    """`start` returns when the API server is ready, `join` when the node is."""

    def __init__(self, binaries: Binaries, folder: Path, machine: Machine) -> None:
        super().__init__(binaries, folder)
        self.machine = machine
        self.kubelet: Kubelet | None = None
        self._proxy: ServiceProxy | None = None

    def _write_files(self) -> None:
        super()._write_files()
        names = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
        server = self._authority.issue("kube-apiserver", hosts=names, addresses=("127.0.0.1", ADDRESS, KUBERNETES))
        client = self._authority.issue(KUBELET_CLIENT)
        for name, data in (
            ("server.crt", server.certificate),
            ("server.key", server.key),
            ("kubelet-client.crt", client.certificate),
            ("kubelet-client.key", client.key),
        ):
            (self.folder / name).write_bytes(data)
        with (self.folder / "tokens.csv").open("a") as tokens:
            for user, group in ((KUBELET, "system:nodes"), (PROXY, "")):
                token = secrets.token_hex(16)
                tokens.write(f'{token},{user},{user},"{group}"\n')
                self._write_kubeconfig(self._kubeconfig_of(user), token, f"https://{ADDRESS}:{self.port}")

    def start(self, *, controllers: bool = True, apiserver: Sequence[str] = ()) -> None:
        subprocess.run(["ip", "address", "replace", f"{ADDRESS}/32", "dev", "lo"], check=True)
        files = str(self.folder)
        more = ["--bind-address", "0.0.0.0", "--advertise-address", ADDRESS, "--endpoint-reconciler-type", "lease"]
        more += ["--service-cluster-ip-range", SERVICES]
        more += ["--enable-admission-plugins", "NodeRestriction"]
        more += ["--kubelet-client-certificate", f"{files}/kubelet-client.crt"]
        more += ["--kubelet-client-key", f"{files}/kubelet-client.key"]
        more += ["--kubelet-preferred-address-types", "InternalIP"]
        super().start(controllers=controllers, apiserver=[*more, *apiserver])
        self.start_kube_scheduler({})
        self.kubectl(
            "create",
            "clusterrolebinding",
            KUBELET_CLIENT,
            "--clusterrole=system:kubelet-api-admin",
            f"--user={KUBELET_CLIENT}",
        )

    def join(self) -> None:
        """Starts the kubelet and kube-proxy."""
        configuration = self.folder / "kubelet.json"
        configuration.write_text(
            json.dumps(
                {
                    "apiVersion": "kubelet.config.k8s.io/v1beta1",
                    "kind": "KubeletConfiguration",
                    "containerRuntimeEndpoint": self.machine.runtime,
                    "authentication": {
                        "anonymous": {"enabled": False},
                        "webhook": {"enabled": True},
                        "x509": {"clientCAFile": str(self.folder / "ca.crt")},
                    },
                    "authorization": {"mode": "Webhook"},
                    "maxPods": 200,
                }
            )
        )
        arguments = [f"--config={configuration}", f"--kubeconfig={self._kubeconfig_of(KUBELET)}"]
        arguments += [
            f"--cert-dir={self.folder / 'kubelet-pki'}",
            f"--hostname-override={NODE}",
            f"--node-ip={ADDRESS}",
        ]
        self.kubelet = Kubelet(self.binaries["kubelet"], self.machine, NODE, arguments, free_port())
        self.kubelet.start()
        self._start_proxy()
        self.until(self.node_is_ready, "the node is ready")

    def node_is_ready(self) -> bool:
        answer = self.api().ask("GET", f"/api/v1/nodes/{NODE}")
        if answer.status != 200:
            return False
        taints = answer.json["spec"].get("taints")
        conditions = answer.json["status"].get("conditions", ())
        return not taints and any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def _start_proxy(self) -> None:
        self._proxy = ServiceProxy(
            self.binaries["kube-proxy"],
            self.folder,
            kubeconfig=self._kubeconfig_of(PROXY),
            node=NODE,
            pods=PODS,
        )

    def reboot(self) -> None:
        """The node: everything on it stops at once, and starts again."""
        assert self.kubelet is not None and self._proxy is not None
        self.kubelet.stop()
        self._proxy.stop()
        self.machine.reboot()
        self.kubelet.start()
        self._start_proxy()

    def stop(self) -> None:
        if self.kubelet is not None:
            self.kubelet.stop()
        if self._proxy is not None:
            self._proxy.stop()
        super().stop()
        subprocess.run(["ip", "address", "delete", f"{ADDRESS}/32", "dev", "lo"], check=False, capture_output=True)

    # Ours

    def deployments(self) -> list[str]:
        return sorted(each["metadata"]["name"] for each in self.items(f"/apis/apps/v1/namespaces/{OURS}/deployments"))

    def wait_for_rollout(self, *names: str, seconds: float = 300) -> None:
        end = time.monotonic() + seconds
        for name in names or self.deployments():
            asked = ("rollout", "status", f"deployment/{name}", "-n", OURS, "--timeout=30s")
            while "successfully rolled out" not in (said := self.kubectl(*asked, check=False)):
                assert time.monotonic() < end, f"{said}\n{self.why(OURS)}"

    def why(self, namespace: str) -> str:
        """What there is to say about pods that do not become ready."""
        wide = self.kubectl("get", "pods,events", "-n", namespace, "-o", "wide", check=False)
        logs = [
            f"== {each['metadata']['name']}\n"
            + self.kubectl("logs", "-n", namespace, each["metadata"]["name"], "--tail=20", check=False)
            for each in self.items(f"/api/v1/namespaces/{namespace}/pods")
        ]
        return "\n".join([wide, *logs])


@contextmanager
def cluster_from_nothing(builds: Builds, folder: Path) -> Iterator[NodeCluster]:
    """A cluster whose node has the images and is ready. Skips the test where that cannot be."""
    if why := lacking() or ("" if shutil.which("nft") else "Services need nft (nftables)"):
        missing("containerd", why)
    try:
        binaries = find_or_make("kubelet", "kube-proxy", CONTAINERD)
    except NoBinaries as error:
        missing("containerd", str(error))
    machine = Machine(binaries[CONTAINERD], folder / "machine", PODS)
    made = NodeCluster(binaries, folder, machine)
    try:
        machine.start()
        for archive in builds.archives:
            machine.import_images(archive, "--base-name", "docker.io/library/wharfinger", "--digests")
        made.start()
        made.join()
        yield made
    finally:
        made.stop()
        machine.stop()


def all_objects(cluster: Cluster) -> list[dict[str, Any]]:
    """Of every kind that can be listed, except for events, which expire."""
    listed: dict[str, Any] = {}

    def lists() -> bool:  # a kind may go between the two requests
        names = cluster.kubectl("api-resources", "--verbs=list", "-o", "name").split()
        names = [name for name in names if name.partition(".")[0] != "events"]
        try:
            listed.update(json.loads(cluster.kubectl("get", ",".join(names), "-A", "-o", "json")))
        except AssertionError:
            return False
        return True

    cluster.until(lists, "all kinds can be listed")
    found: list[dict[str, Any]] = listed["items"]
    return found


def everything(cluster: Cluster) -> set[tuple[str, str, str]]:
    """Kind, namespace and name of every object, except for what comes and goes by itself."""
    passing = {"Lease", "EndpointSlice", "Endpoints", "Pod", "ReplicaSet", "IPAddress"}
    return {
        identity(each)
        for each in all_objects(cluster)
        if each["kind"] not in passing or each["metadata"]["name"].startswith("wharf")
    }


def identity(document: dict[str, Any]) -> tuple[str, str, str]:
    metadata = document["metadata"]
    return document["kind"], metadata.get("namespace", ""), metadata["name"]


def marked(cluster: Cluster) -> list[tuple[tuple[str, str, str], list[str]]]:
    """Objects with labels, annotations or finalizers of ours or of the kinds that we define, with these."""
    ours = ("wharfinger", "scheduling.sigs.x-k8s.io", "koordinator.sh", "open-cluster-management.io")
    found = []
    for each in all_objects(cluster):
        metadata = each["metadata"]
        labels = [f"{key}={value}" for key, value in (metadata.get("labels") or {}).items()]
        said = [*labels, *(metadata.get("annotations") or ()), *(metadata.get("finalizers") or ())]
        if marks := [one for one in said if any(word in one for word in ours)]:
            found.append((identity(each), marks))
    return found
