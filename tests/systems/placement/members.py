"""Member clusters for tests: stores of their own, and the agents that report them to a hub."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.systems.placement.hub import Hub

from wharfinger.api.kinds.builtin import NAMESPACES, NODES
from wharfinger.api.registry import Document
from wharfinger.client.interface import Client
from wharfinger.client.local import LocalClient
from wharfinger.store import Store
from wharfinger.systems.placement.scores.agent import Agent, Scales


def node(name: str, cpu: str, memory: str, **spec: Any) -> Document:
    amounts = {"cpu": cpu, "memory": memory}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "spec": spec,
        "status": {"capacity": amounts, "allocatable": amounts, "nodeInfo": {"kubeletVersion": "v1.37.1"}},
    }


def pod(name: str, on: str, cpu: str) -> Document:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": on, "containers": [container]},
    }


class Member:
    """A member cluster: a store of its own, and an agent that reports to the hub."""

    def __init__(self, hub: Hub, name: str, cpu: str = "4", to: Client | None = None) -> None:
        self.client = LocalClient(Store(hub.registry, now=hub.clock.now))
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
        hub.run(self.client.create(NAMESPACES, namespace))
        made = node("n1", cpu, "8Gi")
        hub.run(self.client.create(NODES, made))
        hub.run(self.client.patch(NODES, "n1", {"status": made["status"]}, subresource="status"))
        self.agent = Agent(
            name,
            self.client,
            to or hub.client,
            scales=Scales(cpu=10, memory=10),
            claims={"zone": name},
            clock=hub.clock,
        )
        self.task: asyncio.Task[None] | None = None

    def start(self, hub: Hub) -> None:
        self.task = hub.loop.create_task(self.agent.run(30))
        hub.settle()

    def stop(self, hub: Hub) -> None:
        assert self.task is not None
        self.task.cancel()
        hub.settle()
