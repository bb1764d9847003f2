"""Small traces for the tests, written as files."""

from __future__ import annotations

import random
from pathlib import Path

HEADER = """\
apiVersion: wharfinger.dev/v1alpha1
kind: Trace
start: 2026-03-01T00:00:00Z
tables:
  nodes:
    files: nodes.csv
    columns: {allocatable.cpu: cpu, allocatable.memory: memory_gib, price: usd}
    units: {allocatable.memory: Gi}
  work:
    files: work.csv
    columns: {arrival: t, run_time: seconds, requests.cpu: cpu, requests.memory: memory_mib}
    units: {requests.memory: Mi}
"""
NODES = "name,cpu,memory_gib,usd\na,4,8,0.2\nb,4,8,0.2\nc,8,32,0.5\n"


def write_small(folder: Path, pods: int = 30, seed: int = 1) -> Path:
    """Three nodes, and pods of several sizes that come and go for some minutes."""
    source, now = random.Random(seed), 0.0
    lines = ["name,t,seconds,cpu,memory_mib,priority"]
    for number in range(pods):
        now += source.expovariate(1 / 20)
        sizes = f"{source.choice(['500m', '1', '2'])},{source.choice([256, 1024, 4096])}"
        lines.append(f"p{number},{now:.1f},{source.choice([60, 200, 600])},{sizes},{source.choice([0, 0, 100])}")
    return write(folder, "\n".join(lines) + "\n")


def write(folder: Path, work: str, nodes: str = NODES, header: str = HEADER) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trace.yaml").write_text(header)
    (folder / "nodes.csv").write_text(nodes)
    (folder / "work.csv").write_text(work)
    return folder
