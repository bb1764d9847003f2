"""Short workloads whose instructions are counted: `python -m tests.instructions.workloads NAME`."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any


def reference() -> None:
    """Python alone. Other counts are given in multiples of this one, so that they depend less on how Python was built."""
    for number in range(300):
        found = {str(key): [key, {"name": f"n{key}", "ok": key % 3 == 0}] for key in range(100)}
        sorted(json.loads(json.dumps(found)).items(), key=lambda item: item[1][1]["name"])
        assert len(found) == 100, number


def start() -> None:
    """A command on ten objects: importing, and making a control plane."""
    _simulate([_node(number) for number in range(8)], [_deployment("web", 2)])


def simulate() -> None:
    """Eighty pods from creation to running."""
    _simulate([_node(number) for number in range(20)], [_deployment(f"app-{number}", 20) for number in range(4)])


def decisions() -> None:
    """The engine alone, with the default plugins."""
    from wharfinger.bench.measure import measure
    from wharfinger.bench.workloads import WORKLOADS

    assert measure(WORKLOADS["SchedulingBasic"], 200, 1000, 0)["unplaced"] == 0


def yaml() -> None:
    """A list of objects, most of them alike."""
    from wharfinger.api.yaml_reader import DocumentReader

    item = "- apiVersion: v1\n  kind: Pod\n  metadata:\n    name: p%d\n    labels: {}\n  spec:\n    containers:\n    - name: c\n"
    item += "      resources:\n        requests:\n          cpu: 250m\n          memory: 1Gi\n  status:\n    phase: Running\n"
    text = "items:\n" + "".join(item % number for number in range(1500)) + "kind: List\n"
    assert len(DocumentReader().read(text).value["items"]) == 1500


WORKLOADS: dict[str, Callable[[], None]] = {
    each.__name__: each for each in (reference, start, simulate, decisions, yaml)
}


def _node(number: int) -> dict[str, Any]:
    amounts = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    status = {"capacity": amounts, "allocatable": amounts}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{number}"}, "status": status}


def _deployment(name: str, replicas: int) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


def _simulate(*parts: list[dict[str, Any]]) -> None:
    from wharfinger.cli.main import wharf

    with tempfile.NamedTemporaryFile("w", suffix=".json") as file, contextlib.redirect_stdout(io.StringIO()) as told:
        json.dump({"apiVersion": "v1", "kind": "List", "items": [each for part in parts for each in part]}, file)
        file.flush()
        with contextlib.suppress(SystemExit):
            wharf(["simulate", "-f", str(Path(file.name))], prog_name="wharf")
    assert "Pods on nodes" in told.getvalue(), told.getvalue()


if __name__ == "__main__":
    WORKLOADS[sys.argv[1]]()
