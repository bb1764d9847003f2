"""`wharf bench simulate`: processor time and memory of `wharf simulate`, `plan` and `repack` on a generated cluster."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from wharfinger.bench.baseline import Results, baseline_options
from wharfinger.cli.options import output_option


@click.command()
@click.option("--nodes", default=100, show_default=True, help="Number of nodes.")
@click.option("--deployments", default=20, show_default=True, help="Number of Deployments.")
@click.option("--replicas", default=50, show_default=True, help="Pods of each Deployment.")
@output_option("table", "json")
@baseline_options
def command(nodes: int, deployments: int, replicas: int, output: str) -> Results:
    """Measure `wharf simulate` of Deployments until idle; and, once their pods run, `wharf plan --drain` of a node and
    `wharf repack --free-nodes` of one node in 50, with the proof of its moves.

    Each command runs in a process of its own, start included.
    """
    from wharfinger.bench.support.deployments import manifests, snapshot
    from wharfinger.cli.output import emit, table

    pods, freed = deployments * replicas, str(max(1, nodes // 50))
    with tempfile.TemporaryDirectory() as folder:
        written, running = Path(folder, "manifests.json"), Path(folder, "snapshot.json")
        written.write_bytes(manifests(nodes, deployments, replicas))
        running.write_bytes(snapshot(nodes, deployments, replicas))
        results = [
            _measured("simulate", pods, ("simulate", "-f", str(written)), (0,)),
            _measured("plan --drain", pods, ("plan", "--drain", "n00000", "--cluster", str(running)), (0, 2)),
            _measured("repack", pods, ("repack", "--free-nodes", freed, "--cluster", str(running)), (0,)),
        ]
    if output == "json":
        emit(results, output, kind="Benchmark")
    else:
        rows = [
            (each["workload"], pods, each["processorSeconds"], each["microsecondsPerPod"], each["peakMebibytes"])
            for each in results
        ]
        click.echo(table(("command", "pods", "processor s", "us for a pod", "peak MiB"), rows))
    return results


def _measured(name: str, pods: int, arguments: Sequence[str], expected: Sequence[int]) -> dict[str, Any]:
    """Runs a command of ours and returns what it used."""
    process = subprocess.Popen(
        [sys.executable, "-m", "wharfinger", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in expected:
        raise click.ClickException(f"`wharf {' '.join(arguments)}` ended with exit status {process.returncode}")
    seconds = used.ru_utime + used.ru_stime
    return {
        "workload": name,
        "pods": pods,
        "processorSeconds": round(seconds, 2),
        "microsecondsPerPod": round(seconds / pods * 1e6),
        "peakMebibytes": used.ru_maxrss // (1 << 20 if sys.platform == "darwin" else 1 << 10),
    }
