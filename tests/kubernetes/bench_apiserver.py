"""Side by side under one client: our API server, and kube-apiserver with etcd.

    python -m tests.kubernetes.bench_apiserver --nodes 1000 --stored 100000

Each gets the load of `wharf bench apiserver`, one after the other: pods that are stored before, a watch for each node as its
kubelet has, watches of all pods, creates, bindings, reads, and a write that many watchers wait for. Both wait for the disk. It prints numbers for
people and fails on none; processor time says more than rates where other work shares the machine.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.kubernetes.binaries import Binaries, NoBinaries, find_or_make
from tests.kubernetes.cluster import Cluster

from wharfinger.bench.commands.apiserver import ServerLoad, run, server_process

ACCOUNT = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}


def ours(load: ServerLoad) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, server_process(Path(folder)) as (kubeconfig, process):
        return run(kubeconfig, load, [process])


def stock(binaries: Binaries, load: ServerLoad) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(binaries, Path(folder))
        try:
            # No controllers run, so the service account that pods get is made here.
            cluster.start(controllers=False, durable=True)
            cluster.api().create("/api/v1/namespaces/default/serviceaccounts", ACCOUNT)
            return run(cluster.kubeconfig, load, [cluster.pid("kube-apiserver"), cluster.pid("etcd")])
        finally:
            cluster.stop()


def report(results: dict[str, dict[str, Any]]) -> None:
    mine, theirs = results["ours"], results["stock"]
    print(f"  {'':<32}{'ours':>12}{'stock':>12}{'ratio':>8}")
    for name in mine:
        if "PerSecond" in name or "Microseconds" in name or name.endswith("Ms"):
            first, second = mine[name], theirs.get(name)
            best = (first, second) if "PerSecond" in name else (second, first)
            ratio = f"{best[0] / best[1]:8.2f}" if best[0] and best[1] else ""
            print(f"  {name:<32}{first or 0:12.1f}{second or 0:12.1f}{ratio}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=5000)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--watchers", type=int, default=100)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--informers", type=int, default=0)
    parser.add_argument("--stored", type=int, default=100_000)
    asked = parser.parse_args()
    load = ServerLoad(asked.pods, asked.connections, asked.watchers, asked.nodes, asked.informers, asked.stored)
    try:
        binaries = find_or_make()
    except NoBinaries as error:
        sys.exit(f"cannot run: {error}")
    print(
        f"{load.stored} pods stored, watches of {load.nodes} nodes, {load.informers} of all pods, {load.pods} pods, {os.cpu_count()} cores, "
        f"load before {os.getloadavg()[0]:.1f}",
        flush=True,
    )
    report({"ours": ours(load), "stock": stock(binaries, load)})


if __name__ == "__main__":
    main()
