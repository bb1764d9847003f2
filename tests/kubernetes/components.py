"""All our components on a real cluster, as processes with one configuration, each with the rights that `wharf install` gives
it and no others; the workload controllers are the real ones."""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kubernetes.cluster import OURS, Cluster, Process, free_port, reachable

CONTROLLERS = "schedulingpolicy,resourcepolicy,resourceclass,resourceclass-devices,reservation,reservationset,podmigration,reservedquota,repackpolicy,capacitybuffer"
SCHEDULER = f"system:serviceaccount:{OURS}:wharfinger-scheduler"
CLASSES = "/apis/scheduling.sigs.x-k8s.io/v1alpha1/resourceclasses?dryRun=All"


class Wishes:
    """Grants wishes that another process makes: a file in a folder, named after what is wished, which goes when it is done."""

    def __init__(self, folder: Path, grant: Callable[[str], None]) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._grant = grant
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        wait = f'f={folder}/"$0"; touch "$f"; while [ -e "$f" ]; do sleep 0.2; done'
        self.command = f"sh -c {shlex.quote(wait)}"

    def _run(self) -> None:
        while not self._over.wait(0.2):
            for file in self._folder.iterdir():
                try:
                    self._grant(file.name)
                except AssertionError as error:
                    print(error, flush=True)  # what was wished for will be missed
                finally:
                    file.unlink()

    def close(self) -> None:
        self._over.set()
        self._thread.join()


def asked(cluster: Cluster) -> bool:
    """Whether the API server asks our webhook before it changes and before it accepts something; it learns of both at its
    own pace. A class without an alias gets one only there, and one with the name of a standard resource is refused."""

    def made(name: str) -> Any:
        document = {
            "apiVersion": "scheduling.sigs.x-k8s.io/v1alpha1",
            "kind": "ResourceClass",
            "metadata": {"name": name},
            "spec": {"resourceName": "example.com/probe"},
        }
        return cluster.api().ask("POST", CLASSES, document)

    changed = made("probe")
    return changed.status == 201 and "alias" in changed.json["spec"] and made("cpu").status == 422


@dataclass(slots=True)
class Components:
    """`restart` is a shell command: with a component's name after it, it returns when that was killed and is back."""

    config: Path
    restart: str


@contextmanager
def running(cluster: Cluster, configuration: dict[str, Any]) -> Iterator[Components]:
    """Runs them until the block ends, on a cluster that has what `install_rights` brings."""
    file = cluster.folder / "wharfinger.json"
    policies = {**configuration.get("schedulingPolicy", {}), "schedulerIdentities": [SCHEDULER]}
    file.write_text(json.dumps({**configuration, "schedulingPolicy": policies}))
    webhook = cluster.webhook
    ports = {name: str(free_port()) for name in ("nodes", "scheduler", "controllers", "placement")}
    options = {
        "nodes": ["--all"],
        "scheduler": ["--no-leader-elect", "--scheduler-names", "default-scheduler,wharfinger"],
        "controllers": ["--controllers", CONTROLLERS],
        "placement": ["--no-leader-elect"],
    }
    ways = {name: cluster.account_of(name) for name in ("scheduler", "controllers", "placement", "webhook")}
    started: dict[str, Process] = {}

    def start(name: str) -> None:
        more = ("--config", str(file), "--metrics-port", ports[name])
        started[name] = cluster.wharf(name, *options[name], *more, kubeconfig=ways.get(name))

    def ready(name: str) -> bool:
        return reachable(f"http://127.0.0.1:{ports[name]}/readyz")

    def restart(name: str) -> None:
        started[name].kill()
        cluster.end(started[name])
        start(name)
        cluster.until(lambda: ready(name), f"{name} is ready again")

    for name in ports:
        start(name)
    address = ("--url", f"https://{webhook}", "--bind", webhook, "--namespace", OURS, "--secret", "wharfinger-webhook")
    started["webhook"] = cluster.wharf("webhook", *address, "--config", str(file), kubeconfig=ways["webhook"])
    wishes = Wishes(cluster.folder / "restarts", restart)
    try:
        for name in ports:
            cluster.until(lambda name=name: ready(name), f"{name} is ready")
        cluster.until(lambda: asked(cluster), "the API server asks the webhook")
        policies = "/apis/scheduling.sigs.x-k8s.io/v1alpha1/schedulingpolicies"
        cluster.until(lambda: len(cluster.items(policies)) >= 2, "the shipped policies are there")
        yield Components(file, wishes.command)
    finally:
        wishes.close()
        # The webhook first, so that no request waits for one that is gone.
        for kind in ("mutatingwebhookconfiguration", "validatingwebhookconfiguration"):
            cluster.kubectl("patch", kind, "wharfinger", "--type", "merge", "-p", '{"webhooks": []}', check=False)
        for process in reversed(started.values()):
            cluster.end(process)
    for process in started.values():
        assert not process.forbidden(), f"{process.name} lacks a right"
