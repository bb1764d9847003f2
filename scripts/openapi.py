"""Makes `src/wharfinger/api/data/definitions.json.gz`: the schemas of Kubernetes' own kinds.

The source is the OpenAPI document inside the Go module `k8s.io/kubernetes`, in the version that
`tests/kubernetes/binaries/go.mod` pins (Apache-2.0, as this project). Run `python scripts/openapi.py`, with Go on the PATH
or with the path of a `swagger.json`, after a change of that version.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "src/wharfinger/api/data/definitions.json.gz"

# Stable versions of the groups that the embedded server may serve; everything they refer to comes along.
ROOTS = (
    "io.k8s.api.admissionregistration.v1.",
    "io.k8s.api.apps.v1.",
    "io.k8s.api.authentication.v1.",
    "io.k8s.api.authorization.v1.",
    "io.k8s.api.autoscaling.v1.",
    "io.k8s.api.autoscaling.v2.",
    "io.k8s.api.batch.v1.",
    "io.k8s.api.certificates.v1.",
    "io.k8s.api.coordination.v1.",
    "io.k8s.api.core.v1.",
    "io.k8s.api.discovery.v1.",
    "io.k8s.api.events.v1.",
    "io.k8s.api.flowcontrol.v1.",
    "io.k8s.api.networking.v1.",
    "io.k8s.api.node.v1.",
    "io.k8s.api.policy.v1.",
    "io.k8s.api.rbac.v1.",
    "io.k8s.api.resource.v1.",
    "io.k8s.api.scheduling.v1.",
    "io.k8s.api.storage.v1.",
    "io.k8s.api.storagemigration.v1.",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.",
    "io.k8s.apimachinery.pkg.",
    "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1.",
)


def swagger() -> dict[str, Any]:
    if len(sys.argv) > 1:
        path = Path(sys.argv[1])
    else:
        module = subprocess.run(
            ["go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes"],
            cwd=ROOT / "tests/kubernetes/binaries",
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        path = Path(module) / "api/openapi-spec/swagger.json"
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        found = {value["$ref"].rpartition("/")[2]} if isinstance(value.get("$ref"), str) else set()
        return found.union(*map(references, value.values()))
    if isinstance(value, list):
        return set().union(*map(references, value))
    return set()


def main() -> None:
    document = swagger()
    definitions: dict[str, Any] = document["definitions"]
    wanted: set[str] = set()
    queue = [name for name in definitions if name.startswith(ROOTS)]
    while queue:
        name = queue.pop()
        if name not in wanted:
            wanted.add(name)
            queue.extend(references(definitions[name]))
    data = {"version": document["info"]["version"], "definitions": {name: definitions[name] for name in sorted(wanted)}}
    text = json.dumps(data, separators=(",", ":"), sort_keys=True).encode()
    TARGET.write_bytes(gzip.compress(text, 9, mtime=0))
    print(f"{TARGET.relative_to(ROOT)}: {len(wanted)} definitions, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
