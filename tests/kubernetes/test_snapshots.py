"""A snapshot of a real cluster with objects of all systems, loaded into a simulation in which nothing is done: every object
stays as it is."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from tests.kubernetes.cluster import Cluster
from tests.kubernetes.components import running
from tests.predictions import comparing
from tests.predictions.predicting import idle_objects
from tests.predictions.recording import Watcher, read_objects
from tests.predictions.stages import create

from wharfinger.api.configuration import API_VERSION, KIND
from wharfinger.api.kinds.builtin import RESOURCE_QUOTAS
from wharfinger.api.times import format_time
from wharfinger.cli.sample import load_sample
from wharfinger.client.connect import connect
from wharfinger.node.samples import NodeSample, sample_node
from wharfinger.systems.placement.kinds.names import MANAGED_CLUSTERS


async def fill(cluster: Cluster) -> None:
    """Nodes, and the sample of every system; returns when nothing changes any more."""
    client = connect(str(cluster.kubeconfig), component="snapshots", timeout=60)
    watcher = Watcher(client)
    try:
        for index in range(6):
            await create(client, sample_node(NodeSample(), index))
        await watcher.start()
        await watcher.rest()
        await load_sample(cluster.kubeconfig, lambda text: None)
        for each in (await client.list(MANAGED_CLUSTERS)).items:  # their agents report once
            available = {
                "type": "ManagedClusterConditionAvailable",
                "status": "True",
                "reason": "ManagedClusterAvailable",
            }
            available |= {"message": "Managed cluster is available", "lastTransitionTime": format_time(time.time())}
            status = {"status": {"conditions": [available]}}
            await client.patch(MANAGED_CLUSTERS, each["metadata"]["name"], status, subresource="status")
        await watcher.rest()
        # A quota that is created beside pods may miss some of them until it is counted anew, as after a change.
        await client.patch(RESOURCE_QUOTAS, "team", {"spec": {"hard": {"pods": "21"}}}, "sample")
        await watcher.rest()
    finally:
        await watcher.stop()
        await client.close()


def test_loading_a_snapshot_and_doing_nothing_changes_nothing(fresh_cluster: Cluster, tmp_path: Path) -> None:
    cluster, snapshot = fresh_cluster, tmp_path / "cluster.json.gz"
    cluster.install_rights()
    with running(cluster, {"apiVersion": API_VERSION, "kind": KIND}):
        asyncio.run(fill(cluster))
        cluster.run_wharf("snapshot", "-o", str(snapshot), cluster=True)
    before = read_objects(snapshot)
    kinds = {each["kind"] for each in before}
    assert {"Pod", "SchedulingPolicy", "ResourceClass", "Reservation", "ResourcePolicy", "Placement"} <= kinds
    assert comparing.changes(before, idle_objects(snapshot)) == []
