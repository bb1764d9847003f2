"""The storage drivers that are played on a running cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from tests.scheduler.test_live import Stage

from wharfinger.api.kinds.builtin import PERSISTENT_VOLUME_CLAIMS
from wharfinger.api.registry import Document
from wharfinger.api.views import PersistentVolumeClaim
from wharfinger.client.http import HttpClient
from wharfinger.plugins.volumes.rules import SELECTED_NODE
from wharfinger.scenario.running.client import Footprint
from wharfinger.scenario.running.drivers import Drivers

CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "data", "namespace": "default", "annotations": {SELECTED_NODE: "n1"}},
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "missing",
        "resources": {"requests": {"storage": "1Gi"}},
    },
}


def test_a_claim_is_given_back_although_a_controller_writes_it_at_the_same_time() -> None:
    stage = Stage()
    written: list[str] = []

    async def read() -> Any:
        return await stage.client.get(PERSISTENT_VOLUME_CLAIMS, "data", "default", view=PersistentVolumeClaim)

    async def patch(resource: Any, name: str, change: Document, namespace: str) -> Any:
        if not written:
            written.append("by a controller")
            other = {"metadata": {"annotations": {"volume.kubernetes.io/storage-provisioner": "disk.example.com"}}}
            await stage.client.patch(resource, name, other, namespace)
        return await stage.client.patch(resource, name, change, namespace)

    async def give_back() -> None:
        client = SimpleNamespace(patch=patch, get=stage.client.get)
        drivers = Drivers(cast("HttpClient", client), (), cast("Footprint", None))
        await drivers._give_back(await read(), "n1")

    try:
        stage.apply(CLAIM)
        stage.do(give_back)
        found = stage.world.loop.complete(read())
    finally:
        stage.world.close()
    assert written and SELECTED_NODE not in found.metadata.annotations
    assert "volume.kubernetes.io/storage-provisioner" in found.metadata.annotations
