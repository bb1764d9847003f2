"""All our components on a real cluster, as processes with one configuration; the workload controllers are the real ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.kubernetes.cluster import Cluster, free_port, reachable

CONTROLLERS = "schedulingpolicy,resourcepolicy,resourceclass,reservation,reservationset,podmigration,reservedquota"
CLASSES = "/apis/scheduling.sigs.x-k8s.io/v1alpha1/resourceclasses?dryRun=All"


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


@contextmanager
def running(cluster: Cluster, configuration: dict[str, Any]) -> Iterator[Path]:
    """Runs them until the block ends; gives the file with their configuration."""
    file = cluster.folder / "wharfinger.json"
    file.write_text(json.dumps(configuration))
    webhook = cluster.webhook
    ports = {name: str(free_port()) for name in ("nodes", "scheduler", "controllers", "placement")}
    options = {
        "nodes": ["--all"],
        "scheduler": ["--no-leader-elect", "--scheduler-names", "default-scheduler,wharfinger"],
        "controllers": ["--controllers", CONTROLLERS],
        "placement": ["--no-leader-elect"],
    }
    ways = {"scheduler": cluster.scheduler_kubeconfig}
    started = [
        cluster.wharf(name, *options[name], "--config", str(file), "--metrics-port", port, kubeconfig=ways.get(name))
        for name, port in ports.items()
    ]
    started.append(cluster.wharf("webhook", "--url", f"https://{webhook}", "--bind", webhook, "--config", str(file)))
    try:
        for name, port in ports.items():
            cluster.until(lambda port=port: reachable(f"http://127.0.0.1:{port}/readyz"), f"{name} is ready")
        cluster.until(lambda: asked(cluster), "the API server asks the webhook")
        policies = "/apis/scheduling.sigs.x-k8s.io/v1alpha1/schedulingpolicies"
        cluster.until(lambda: len(cluster.items(policies)) >= 4, "the shipped policies are there")
        yield file
    finally:
        # The webhook first, so that no request waits for one that is gone.
        cluster.kubectl(
            "delete", "mutatingwebhookconfiguration,validatingwebhookconfiguration", "wharfinger", check=False
        )
        for process in reversed(started):
            cluster.end(process)
