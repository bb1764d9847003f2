"""One object through the store and the local client: created, bound, watched, deleted."""

from __future__ import annotations

import asyncio

from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import NAMESPACES, PODS
from wharfinger.api.views import Pod
from wharfinger.client.local import LocalClient
from wharfinger.store import Store


def test_a_watch_sees_a_pods_whole_life() -> None:
    async def life() -> list[tuple[str, str]]:
        client = LocalClient(Store(registry()))
        await client.create(NAMESPACES, {"metadata": {"name": "default"}})
        pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        seen = []

        async def watch() -> None:
            async for event in client.watch(PODS, view=Pod, resource_version="0"):
                assert event.object is not None
                seen.append((event.type.value, event.object.spec.node_name))
                if event.type.value == "DELETED":
                    return

        watching = asyncio.create_task(watch())
        await client.create(PODS, pod, "default")
        await asyncio.sleep(0)
        binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
        await client.create(PODS, binding, "default", name="p", subresource="binding")
        await client.delete(PODS, "p", "default", grace_period=0)
        await watching
        return seen

    assert asyncio.run(life()) == [("ADDED", ""), ("MODIFIED", "n"), ("MODIFIED", "n"), ("DELETED", "n")]
