"""When pods that wait would start: a choice of nodes is played in virtual time, with the controllers and the scheduler.

New nodes join after their start-up time; pods that run end when their objects say so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from wharfinger.api.errors import ApiError
from wharfinger.api.kinds.builtin import NODES, PODS
from wharfinger.api.registry import Document
from wharfinger.api.views import Pod
from wharfinger.capacity.models import NodeModel
from wharfinger.client.local import LocalClient
from wharfinger.scenario import runner
from wharfinger.simulate.cluster import SimulatedCluster
from wharfinger.simulate.inputs import Inputs
from wharfinger.simulate.simulation import SimulationOptions, apply_manifests, prepare

_SLACK = 30.0  # seconds for back-off, binding and the start of containers


@dataclass(frozen=True, slots=True)
class PodStart:
    pod: str
    node: str
    after: float  # seconds from now


@dataclass(frozen=True, slots=True)
class JoiningNode:
    """A new node, and how many seconds from now it joins."""

    name: str
    model: NodeModel
    after: float


def starts(
    inputs: Inputs, pods: Collection[str], nodes: Sequence[JoiningNode], begin: float, last: float, seed: int
) -> dict[str, PodStart]:
    """When each of the pods starts, for those that do. `last` is the last moment at which anything is known to end, in
    seconds from now."""
    world = SimulatedCluster(inputs.configuration, start=begin, seed=seed)
    try:
        return world.loop.complete(_played(world, inputs, pods, nodes, last))
    finally:
        world.close()


async def _played(
    world: SimulatedCluster, inputs: Inputs, pods: Collection[str], nodes: Sequence[JoiningNode], last: float
) -> dict[str, PodStart]:
    results, options = runner.Results(), SimulationOptions()
    rest = await prepare(world, inputs, options, results)
    joining = asyncio.ensure_future(_join(world, nodes))
    await apply_manifests(world, rest, options, results)
    until = max([last, *(node.after for node in nodes)], default=0.0) + _SLACK
    waiting, found = set(pods), dict[str, PodStart]()
    while waiting and world.loop.time() < until:
        await world.loop.next_moment(until)
        _note(world, waiting, found)
    await joining
    if waiting:
        await world.settle()
        _note(world, waiting, found)
    return found


async def _join(world: SimulatedCluster, nodes: Iterable[JoiningNode]) -> None:
    client = world.client("", lambda warning: None)
    for node in sorted(nodes, key=lambda node: (node.after, node.name)):
        await asyncio.sleep(max(node.after - world.loop.time(), 0.0))
        made, *beside = node.model.named(node.name)
        for each in (*beside, made):
            await _create(world, client, each)


async def _create(world: SimulatedCluster, client: LocalClient, document: Document) -> None:
    resource = NODES if document["kind"] == "Node" else world.registry.resource_of(document)
    if resource is None:
        return
    try:
        await client.create(resource, document)
    except ApiError as error:
        raise RuntimeError(f"{document['kind']} {document['metadata']['name']}: {error.message}") from error


def _note(world: SimulatedCluster, waiting: set[str], found: dict[str, PodStart]) -> None:
    """Pods that were bound by now."""
    for title in sorted(waiting):
        namespace, _, name = title.partition("/")
        stored = world.store.peek(PODS, name, namespace)
        if stored is None:
            continue
        pod = stored.view(Pod)
        if pod.spec.node_name:
            found[title] = PodStart(title, pod.spec.node_name, world.loop.time())
            waiting.discard(title)
