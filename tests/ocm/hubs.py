"""The hubs that are compared: ours, and one of Open Cluster Management on a real API server."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from tests.apiserver.running import environment, serving
from tests.client.certificates import Authority
from tests.kubernetes.binaries import find_or_make
from tests.kubernetes.cluster import Cluster, Process, free_port
from tests.ocm.programs import definitions

GROUP = "cluster.open-cluster-management.io"
# The specs are those of the placement component: they create clusters that no agent reports, and a set `global`.
CONTROLLERS_OF_SPECS = "*,-managedcluster"
CONFIGURATION_OF_SPECS = {
    "apiVersion": "wharfinger.dev/v1alpha1",
    "kind": "WharfingerConfiguration",
    "placement": {"defaultClusterSet": False},
}


@contextmanager
def our_server(folder: Path) -> Iterator[Path]:
    """`wharf apiserver`, without controllers."""
    with serving(folder) as api:
        yield api.kubeconfig


@contextmanager
def our_placement(folder: Path) -> Iterator[Path]:
    """`wharf apiserver` and `wharf controllers`, as the specs need them."""
    folder.mkdir(exist_ok=True)
    file = folder / "specs.json"
    file.write_text(json.dumps(CONFIGURATION_OF_SPECS))
    with serving(folder / "data", "--config", str(file)) as api:
        command = [sys.executable, "-m", "wharfinger.cli.main", "controllers", "--controllers", CONTROLLERS_OF_SPECS]
        command += ["--config", str(file), "--kubeconfig", str(api.kubeconfig)]
        process = Process("controllers", command, folder / "controllers.log", **environment())
        try:
            yield api.kubeconfig
        finally:
            process.stop()


@contextmanager
def our_hub(folder: Path) -> Iterator[Path]:
    """`wharf up`."""
    folder.mkdir(exist_ok=True)
    log = folder / "up.log"
    command = [sys.executable, "-m", "wharfinger.cli.main", "up", "--data-dir", str(folder / "data"), "--port", "0"]
    with log.open("w") as out:
        process = subprocess.Popen(
            [*command, "--no-dashboard", "--nodes", "0"],
            stdout=out,
            stderr=out,
            start_new_session=True,
            env=environment(),
        )
    try:
        end = time.monotonic() + 120
        while "Ctrl-C stops everything" not in log.read_text():
            if process.poll() is not None or time.monotonic() > end:
                sys.exit(f"Error: wharf up did not start:\n{log.read_text()}")
            time.sleep(0.2)
        yield folder / "data" / "kubeconfig"
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


class RealHub:
    """kube-apiserver with the definitions and the webhook of Open Cluster Management."""

    def __init__(self, program: Path, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._program = program
        self._cluster = Cluster(find_or_make(), folder)
        self._process: Process | None = None

    @property
    def kubeconfig(self) -> Path:
        return self._cluster.kubeconfig

    def start(self) -> None:
        self._cluster.start(controllers=False)
        self._cluster.apply(*(yaml.safe_load(path.read_text()) for path in definitions()))
        self._cluster.until(self._serves, "the definitions are established")

    def stop(self) -> None:
        self.stop_program()
        self._cluster.stop()

    def start_webhook(self) -> None:
        """Only the webhook, no controllers."""
        authority, port = Authority(), free_port()
        pair = authority.issue("webhook", address="127.0.0.1")
        (self._cluster.folder / "tls.crt").write_bytes(pair.certificate)
        (self._cluster.folder / "tls.key").write_bytes(pair.key)
        self._arguments = ["--webhook-port", str(port), "--certificates", str(self._cluster.folder)]
        self._start_program("--controllers=false")
        self._cluster.apply(*_configurations(port, authority.pem))
        self._cluster.until(self._asks_webhook, "the API server asks the webhook")

    def start_controllers(self) -> None:
        """The controllers of Kubernetes and of Open Cluster Management, beside the webhook."""
        self.stop_program()
        self._cluster.start_controller_manager()
        self._start_program("--controllers=true")
        self._cluster.until(self._asks_webhook, "the API server asks the webhook")

    def start_our_placement(self) -> None:
        """Our controllers, as the specs need them, on a hub without a webhook; and those of Kubernetes."""
        file = self._cluster.folder / "specs.json"
        file.write_text(json.dumps(CONFIGURATION_OF_SPECS))
        self._cluster.start_controller_manager()
        names = "placement,managedclusterset,managedclustersetbinding"
        self._cluster.wharf("controllers", "--controllers", names, "--config", str(file))

    def _start_program(self, *arguments: str) -> None:
        command = [self._program, "--kubeconfig", self.kubeconfig, *self._arguments, *arguments]
        self._process = Process("ocm-hub", command, self._cluster.folder / "ocm-hub.log")

    def stop_program(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None

    def _serves(self) -> bool:
        found = [f"/apis/{GROUP}/{version}" for version in ("v1", "v1alpha1", "v1beta1", "v1beta2")]
        return all(self._cluster.api().ask("GET", path).status == 200 for path in found)

    def _asks_webhook(self) -> bool:
        """A cluster gets a set only there, and a binding with another name is refused only there."""
        if self._process is None or not self._process.running:
            raise AssertionError(
                "the hub of Open Cluster Management ended" + (self._process.tail() if self._process else "")
            )
        api = self._cluster.api()
        cluster = api.ask("POST", f"/apis/{GROUP}/v1/managedclusters?dryRun=All", _probe("v1", "ManagedCluster", {}))
        labels = cluster.json["metadata"].get("labels") if cluster.status == 201 else None
        path = f"/apis/{GROUP}/v1beta2/namespaces/default/managedclustersetbindings?dryRun=All"
        binding = api.ask("POST", path, _probe("v1beta2", "ManagedClusterSetBinding", {"clusterSet": "other"}))
        return bool(labels) and binding.status == 400


def _probe(version: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": f"{GROUP}/{version}", "kind": kind, "metadata": {"name": "probe"}, "spec": spec}


def _configurations(port: int, bundle: bytes) -> list[dict[str, Any]]:
    """As the operator of Open Cluster Management registers the webhook."""
    base = f"https://127.0.0.1:{port}"
    path = f"{GROUP.replace('.', '-')}"
    made = (
        ("MutatingWebhookConfiguration", "managedclustermutators", "managedclusters", f"mutate-{path}-v1-managedcluster"),
        ("ValidatingWebhookConfiguration", "managedclustervalidators", "managedclusters", f"validate-{path}-v1-managedcluster"),
        ("ValidatingWebhookConfiguration", "managedclustersetbindingvalidators", "managedclustersetbindings", f"validate-{path}-v1beta2-managedclustersetbinding"),
    )  # fmt: skip
    return [
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": f"{name}.admission.{GROUP}"},
            "webhooks": [
                {
                    "name": f"{name}.admission.{GROUP}",
                    "failurePolicy": "Fail",
                    "clientConfig": {"url": f"{base}/{path}", "caBundle": b64encode(bundle).decode()},
                    "rules": [
                        {
                            "operations": ["CREATE", "UPDATE"],
                            "apiGroups": [GROUP],
                            "apiVersions": ["*"],
                            "resources": [plural],
                        }
                    ],
                    "admissionReviewVersions": ["v1"],
                    "sideEffects": "None",
                    "timeoutSeconds": 10,
                }
            ],
        }
        for kind, name, plural, path in made
    ]
