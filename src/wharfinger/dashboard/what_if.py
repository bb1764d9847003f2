"""A what-if: a change in the form that the page sends it, tried on a snapshot. Runs in a worker process."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy

from msgspec import Struct

from wharfinger.api.configuration import Configuration
from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import EVENTS, NODES, PODS
from wharfinger.api.manifests import Manifest, Source
from wharfinger.api.registry import Document
from wharfinger.dashboard.usage import allocatable, is_over, is_waiting, pod_requests
from wharfinger.scenario.document import ObjectTarget
from wharfinger.simulate.asking import ask, starts_of_waiting
from wharfinger.simulate.inputs import BadInput, Inputs, read_inputs
from wharfinger.simulate.planning import plan
from wharfinger.simulate.simulation import SimulationOptions

CHANGE = "the change"
_SNAPSHOT = Source("the cluster", 1, 1)
_PER_NODE = ("kubernetes.io/hostname",)  # labels that a copy of a node gets for itself


class ScaleChange(Struct):
    kind: str
    name: str
    replicas: int
    namespace: str = "default"


class NodesChange(Struct):
    """Nodes to add, each a copy of an existing one without its pods and taints of its own condition."""

    like: str
    count: int = 1


class WhatIf(Struct, rename="camel"):
    """What changes: manifests, then scaling and new nodes, then deletions and drains."""

    yaml: str = ""
    scale: list[ScaleChange] = []
    nodes: list[NodesChange] = []
    deletions: list[str] = []  # KIND/[NAMESPACE/]NAME
    drains: list[str] = []
    user: str = ""  # who makes the change; empty: an administrator

    @property
    def empty(self) -> bool:
        return not (self.yaml.strip() or self.scale or self.nodes or self.deletions or self.drains)


def read_change(asked: WhatIf, objects: Sequence[Document]) -> Inputs:
    """The manifests of the change. Raises BadInput with every fault and its line."""
    change = read_inputs([(CHANGE, asked.yaml)], registry(), strict=True) if asked.yaml.strip() else Inputs()
    if change.configured:
        raise BadInput(["a configuration cannot be part of a change"])
    change.manifests += [Manifest(_scaled(each, objects), Source("scale", 1, 1)) for each in asked.scale]
    nodes = {str(each["metadata"]["name"]): each for each in objects if each["kind"] == NODES.kind}
    taken = set(nodes)
    for each in asked.nodes:
        change.manifests += [Manifest(node, Source("new nodes", 1, 1)) for node in _copies(each, nodes, taken)]
    return change


def plan_change(asked: WhatIf, objects: list[Document], configuration: Configuration) -> Document:
    """The plan, with the numbers of pods before and after by workload."""
    change = read_change(asked, objects)
    targets = [_target(text) for text in asked.deletions]
    cluster = Inputs([Manifest(each, _SNAPSHOT) for each in objects], configuration=configuration)
    begun = time.perf_counter()
    found = plan(
        cluster,
        change,
        start=time.time(),
        options=SimulationOptions(user=asked.user),
        deletions=targets,
        drains=asked.drains,
    )
    document = found.document()
    document["numbers"] = found.numbers()
    document["seconds"] = round(time.perf_counter() - begun, 3)
    return document


def ask_about(text: str, objects: list[Document], configuration: Configuration, user: str) -> Document:
    """Whether these pods or workloads would start now, when, or never. Nothing is created."""
    asked = read_inputs([(CHANGE, text)], registry(), strict=True)
    cluster = Inputs([Manifest(each, _SNAPSHOT) for each in objects], configuration=configuration)
    return ask(cluster, asked, start=time.time(), user=user).document()


def when_waiting_start(objects: list[Document], configuration: Configuration) -> list[Document]:
    """When each waiting pod would start, if nothing changed but what has a known end."""
    cluster = Inputs([Manifest(each, _SNAPSHOT) for each in objects], configuration=configuration)
    return [each.document() for each in starts_of_waiting(cluster, start=time.time())]


def _scaled(change: ScaleChange, objects: Iterable[Document]) -> Document:
    kind = registry().find(change.kind)
    name = kind.kind if kind is not None else change.kind
    for document in objects:
        metadata = document["metadata"]
        if (document["kind"], metadata.get("namespace"), metadata["name"]) == (name, change.namespace, change.name):
            if change.replicas < 0:
                raise BadInput([f"scale {change.namespace}/{change.name}: the number of replicas must not be negative"])
            made = deepcopy({key: value for key, value in document.items() if key != "status"})
            made.setdefault("spec", {})["replicas"] = change.replicas
            return made
    raise BadInput([f"scale: there is no {name} {change.namespace}/{change.name}"])


def _copies(change: NodesChange, nodes: Mapping[str, Document], taken: set[str]) -> Iterator[Document]:
    if not 1 <= change.count <= 1000:
        raise BadInput(["new nodes: from 1 to 1000 can be added"])
    if change.like not in nodes:
        raise BadInput([f"new nodes: there is no node {change.like} to copy"])
    model = nodes[change.like]
    status, number = model.get("status") or {}, 0
    for _ in range(change.count):
        number += 1
        while (name := f"{change.like}-new-{number}") in taken:
            number += 1
        taken.add(name)
        labels = dict(model["metadata"].get("labels") or {}) | dict.fromkeys(_PER_NODE, name)
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "status": {key: status[key] for key in ("capacity", "allocatable") if key in status},
        }


def _target(text: str) -> ObjectTarget:
    words = text.split("/")
    kind = registry().find(words[0])
    if kind is None:
        raise BadInput([f'delete: no kind is called "{words[0]}"'])
    if kind.namespaced and len(words) == 2:
        words.insert(1, "default")
    if len(words) != (3 if kind.namespaced else 2) or not all(words):
        raise BadInput([f"delete: want KIND/[NAMESPACE/]NAME, not {text!r}"])
    return ObjectTarget(kind.storage, words[1] if kind.namespaced else "", words[-1])


class FrameRecorder:
    """Frames of a simulation for the time line: the state of nodes and of the queue, once for each second that passes."""

    MOST = 600

    def __init__(self) -> None:
        self.frames: list[Document] = []

    def record(self, now: float, pods: Iterable[Document], nodes: Iterable[Document]) -> None:
        if len(self.frames) < self.MOST:
            self.frames.append(frame(now, pods, nodes))


def frame(now: float, pods: Iterable[Document], nodes: Iterable[Document]) -> Document:
    """Queue length, running pods and utilisation at one moment, and how full each node is in percent of cpu."""
    room = {node["metadata"]["name"]: allocatable(node) for node in nodes}
    used: dict[str, dict[str, int]] = {name: {} for name in room}
    waiting = running = 0
    for pod in pods:
        if is_waiting(pod):
            waiting += 1
        node = (pod.get("spec") or {}).get("nodeName")
        if node and not is_over(pod):
            running += 1
            into = used.setdefault(node, {})
            for name, amount in pod_requests(pod).items():
                into[name] = into.get(name, 0) + amount
    return {
        "time": now,
        "nodes": len(room),
        "waiting": waiting,
        "running": running,
        "cpu": share(used.values(), room.values(), "cpu"),
        "memory": share(used.values(), room.values(), "memory"),
        "fill": {name: share((used[name],), (has,), "cpu") for name, has in room.items()},
    }


def share(used: Iterable[Mapping[str, int]], room: Iterable[Mapping[str, int]], resource: str) -> int:
    """Percent of the room that is used, rounded down."""
    total = sum(each.get(resource, 0) for each in room)
    return 100 * sum(each.get(resource, 0) for each in used) // total if total else 0


def play_scenario(text: str, objects: list[Document], configuration: Configuration, seconds: float) -> Document:
    """Plays scenarios on the snapshot, or on what they bring themselves, and returns frames, events and expectations."""
    from wharfinger.scenario import runner
    from wharfinger.simulate import report
    from wharfinger.simulate.cluster import SimulatedCluster
    from wharfinger.simulate.simulation import apply_manifests, prepare

    change = read_inputs([(CHANGE, text)], registry(), strict=True)
    inputs = Inputs([Manifest(each, _SNAPSHOT) for each in objects], configuration=configuration)
    start = max(time.time(), change.start()) if objects else change.start()
    world = SimulatedCluster(change.configuration if change.configured else configuration, start=start, seed=0)
    recorder, results = FrameRecorder(), runner.Results()
    last = [-1.0]

    def sample() -> None:
        now = world.clock.now()
        if now - last[0] >= 1.0:
            last[0] = now
            recorder.record(now, world.objects(PODS), world.objects(NODES))

    async def play() -> None:
        options = SimulationOptions()
        rest = await prepare(world, inputs, options, results, change.manifests)
        await apply_manifests(world, [*rest, *change.manifests], options, results)
        world.loop.each_turn = sample
        for scenario, _ in change.scenarios:
            await runner.run(scenario, world, results)
        await world.settle()
        if seconds > 0:
            await world.advance(seconds)
        recorder.record(world.clock.now(), world.objects(PODS), world.objects(NODES))

    try:
        world.loop.complete(play())
        waiting = [
            {"namespace": pod["metadata"]["namespace"], "name": pod["metadata"]["name"]}
            for pod in world.objects(PODS)
            if is_waiting(pod)
        ]
        return {
            "frames": recorder.frames,
            "expectations": report.expectations(results),
            "refused": [
                {"kind": each.kind, "namespace": each.namespace, "name": each.name, "message": each.message}
                for each in results.rejections
            ],
            "waiting": waiting[:500],
            "events": [_event(each) for each in world.objects(EVENTS)][-500:],
        }
    finally:
        world.close()


def _event(event: Document) -> Document:
    involved = event.get("involvedObject") or {}
    return {
        "time": event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp"),
        "reason": event.get("reason"),
        "message": event.get("message"),
        "kind": involved.get("kind"),
        "namespace": involved.get("namespace"),
        "name": involved.get("name"),
    }
