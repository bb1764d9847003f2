"""Plays a world on a real control plane and records it: a snapshot before and after each stage, what was done, and which
pods came in which order. What is compared is predicted from the recording alone."""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import msgspec
from tests.kubernetes.binaries import Binaries
from tests.kubernetes.cluster import Cluster
from tests.predictions.stages import Stage, choose, create, openings, perform, touch_budgets
from tests.predictions.worlds import RUN_FOR, Document, base

from wharfinger.api.errors import ApiError
from wharfinger.api.kinds import registry
from wharfinger.api.kinds.builtin import (
    DAEMON_SETS,
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    RESOURCE_QUOTAS,
    STATEFUL_SETS,
)
from wharfinger.api.object_meta import controller_of
from wharfinger.api.registry import Resource
from wharfinger.client.connect import connect
from wharfinger.client.http import HttpClient
from wharfinger.client.interface import EventType
from wharfinger.simulate.snapshots import Redactor, SnapshotWriter, take

WORKLOADS = (DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, DAEMON_SETS, JOBS)
WATCHED = (PODS, NODES, POD_DISRUPTION_BUDGETS, RESOURCE_QUOTAS, *WORKLOADS)
CALM = 1.6  # seconds without any change, after which nothing more is expected
PATIENCE = 150.0  # seconds until a stage that does not come to rest is an error
STARTUP_SECONDS = 0.6  # from bound to running
NUDGE = "wharfinger.dev/nudge"


class PodRecord(msgspec.Struct):
    """A pod as the real cluster had it, whether or not it still exists."""

    namespace: str
    name: str
    uid: str
    owner: str  # kind and name of its controller
    node: str = ""
    bound: int = 0  # its place in the order of bindings; 0: never bound


class StageRecord(msgspec.Struct):
    stage: Stage
    at: float  # when it began
    refused: list[str]
    pods: list[PodRecord]  # that were created or got a node during the stage, in the order of their creation
    deleted: list[str] = []  # uids of pods, in the order in which they went
    seconds: float = 0.0


@dataclass(slots=True)
class Recording:
    """A folder with `stages.json`, a snapshot before each stage and after the last, and one after each stage in which pods
    wait, from before the scheduler was made to try them again."""

    folder: Path
    stages: list[StageRecord] = field(default_factory=list)

    def snapshot(self, number: int) -> Path:
        return self.folder / f"snapshot-{number:02}.json.gz"

    def waiting(self, number: int) -> Path:
        return self.folder / f"waiting-{number:02}.json.gz"

    def objects(self, number: int) -> list[Document]:
        """Those before a stage."""
        return read_objects(self.snapshot(number))

    def objects_waiting(self, number: int) -> list[Document] | None:
        """Those after a stage, before pods that wait were tried again; None if no pods wait."""
        return read_objects(self.waiting(number)) if self.waiting(number).exists() else None

    def save(self) -> None:
        (self.folder / "stages.json").write_bytes(msgspec.json.encode(self.stages))

    @classmethod
    def load(cls, folder: Path) -> Recording:
        data = (folder / "stages.json").read_bytes()
        return cls(folder, msgspec.json.decode(data, type=list[StageRecord]))


def read_objects(path: Path) -> list[Document]:
    items: list[Document] = msgspec.json.decode(gzip.decompress(path.read_bytes()))["items"]
    return items


class Watcher:
    """Follows the kinds that stages change, and knows when the cluster has come to rest."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client
        self._objects: dict[Resource, dict[str, Document]] = {resource: {} for resource in WATCHED}
        self._changed = time.monotonic()
        self._tasks: list[asyncio.Task[None]] = []
        self._nudges = 0
        self._bound = 0
        self.pods: dict[str, PodRecord] = {}  # by uid, of the current stage
        self.deleted: list[str] = []  # uids, in the current stage

    async def start(self) -> None:
        for resource in WATCHED:
            page = await self._client.list(resource)
            for item in page.items:
                self._note(resource, EventType.ADDED, item)
            self._tasks.append(asyncio.create_task(self._follow(resource, page.resource_version)))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _follow(self, resource: Resource, version: str) -> None:
        while True:
            async for event in self._client.watch(resource, view=dict, resource_version=version, timeout=300):
                version = event.resource_version or version
                if event.object is not None:
                    self._note(resource, event.type, event.object)

    def _note(self, resource: Resource, type: EventType, item: Document) -> None:
        known = self._objects[resource]
        uid = item["metadata"]["uid"]
        if type is EventType.DELETED:
            known.pop(uid, None)
            if resource == PODS:
                self.deleted.append(uid)
        else:
            known[uid] = item
        self._changed = time.monotonic()
        if resource == PODS and type is not EventType.DELETED:
            self._note_pod(uid, item)

    def _note_pod(self, uid: str, pod: Document) -> None:
        metadata, owner = pod["metadata"], controller_of(pod)
        record = self.pods.get(uid)
        if record is None:
            named = f"{owner['kind']} {owner['name']}" if owner is not None else ""
            record = self.pods[uid] = PodRecord(metadata["namespace"], metadata["name"], uid, named)
        if not record.node and (node := pod["spec"].get("nodeName")):
            self._bound += 1
            record.node, record.bound = node, self._bound

    @property
    def waits(self) -> bool:
        """Whether a pod has no node."""
        return any(not pod["spec"].get("nodeName") for pod in self._objects[PODS].values())

    def new_stage(self) -> None:
        self.pods = {uid: record for uid, record in self.pods.items() if uid in self._objects[PODS]}
        self.deleted = []

    async def rest(self, *, nudge: bool = True) -> None:
        """Waits until nothing changes any more. Controllers that the API refused retry ever less often; they are told to
        look again (`nudge`), so that nobody has to wait for that."""
        end = time.monotonic() + PATIENCE
        nudged: int | None = None  # how many pods there were when controllers were told to look again
        while True:
            await asyncio.sleep(0.1)
            if time.monotonic() > end:
                raise AssertionError(
                    f"the cluster does not come to rest: {', '.join(self._restless()) or 'changes go on'}"
                )
            if time.monotonic() - self._changed < CALM or next(self._restless(), None):
                continue
            pods = len(self._objects[PODS])
            if not nudge or pods == nudged or not await self._nudge():
                return
            nudged = pods
            self._changed = time.monotonic()

    def _restless(self) -> Iterator[str]:
        for resource in WORKLOADS:
            for item in self._objects[resource].values():
                observed = (item.get("status") or {}).get("observedGeneration")
                if item["metadata"].get("deletionTimestamp"):
                    yield f"{item['metadata']['name']} is being deleted"
                elif resource != JOBS and observed != item["metadata"]["generation"]:
                    yield f"{item['metadata']['name']} has not been seen by its controller"
        for pod in self._objects[PODS].values():
            why = _restless_pod(pod)
            if why:
                yield f"pod {pod['metadata']['name']} {why}"

    async def _nudge(self) -> bool:
        """Touches workloads that have fewer pods than they want; returns whether there were any."""
        lacking = [
            (resource, item["metadata"])
            for resource in (REPLICA_SETS, STATEFUL_SETS, JOBS)
            for item in self._objects[resource].values()
            if _lacks_pods(item)
        ]
        for resource, metadata in lacking:
            self._nudges += 1
            change = {"metadata": {"annotations": {NUDGE: str(self._nudges)}}}
            with suppress(ApiError):
                await self._client.patch(resource, metadata["name"], change, metadata["namespace"])
        return bool(lacking)


def _restless_pod(pod: Document) -> str:
    status = pod.get("status") or {}
    phase = status.get("phase")
    if pod["metadata"].get("deletionTimestamp"):
        return "is being deleted"
    if pod["spec"].get("nodeName"):
        if phase == "Pending":
            return "has not started"
        if phase == "Running" and RUN_FOR in (pod["metadata"].get("annotations") or {}):
            return "has not finished"
    elif not any(each["type"] == "PodScheduled" for each in status.get("conditions") or ()):
        return "was not tried"
    return ""


def _lacks_pods(workload: Document) -> bool:
    spec, status = workload["spec"], workload.get("status") or {}
    if workload.get("kind") == "Job" or "parallelism" in spec:
        return (
            not spec.get("suspend")
            and not status.get("completionTime")
            and status.get("active", 0) < spec["parallelism"]
        )
    return bool(status.get("replicas", 0) < (spec.get("replicas") or 0))


# One world


SCHEDULER: Document = {"percentageOfNodesToScore": 100, "clientConnection": {"qps": 1000, "burst": 2000}}
"""The settings of the stock scheduler; the prediction has the same."""

_NODES = {
    "apiVersion": "wharfinger.dev/v1alpha1",
    "kind": "WharfingerConfiguration",
    "nodes": {"startupSeconds": STARTUP_SECONDS},
}


@contextmanager
def control_plane(binaries: Binaries, folder: Path) -> Iterator[Cluster]:
    """A real control plane with simulated kubelets."""
    cluster = Cluster(binaries, folder)
    try:
        cluster.start(controllers=False)
        cluster.start_kube_scheduler(SCHEDULER)
        settings = folder / "nodes.json"
        settings.write_bytes(msgspec.json.encode(_NODES))
        cluster.wharf("nodes", "--all", "--config", str(settings))
        # The quota controller overlooks pods that are created while it counts, until it counts again.
        cluster.start_controller_manager("--resource-quota-sync-period", "1s")
        yield cluster
    finally:
        cluster.stop()


async def record(cluster: Cluster, seed: int, stages: int, folder: Path) -> Recording:
    """Plays one world with so many stages after those in which the first workloads arrive."""
    random = Random(f"world {seed}")
    recording = Recording(folder)
    client = connect(str(cluster.kubeconfig), component="predictions", timeout=60)
    watcher = Watcher(client)
    try:
        documents = base(random)
        for document in documents:
            await create(client, document)
        await watcher.start()
        await _nodes_ready(client, documents)
        await watcher.rest()
        first = openings(random)
        for number in range(len(first) + stages):
            await _take(client, recording.snapshot(number))
            stage = first[number] if number < len(first) else choose(random, recording.objects(number), number)
            recording.stages.append(await _play(stage, client, watcher))
            if watcher.waits:
                await _take(client, recording.waiting(number))
                await _try_again(cluster, client, watcher)
            recording.save()
        await _take(client, recording.snapshot(len(recording.stages)))
        events = (await client.list(EVENTS)).items
        (folder / "events.json").write_bytes(b"\n".join(map(msgspec.json.encode, events)))
    finally:
        await watcher.stop()
        await client.close()
    return recording


async def _play(stage: Stage, client: HttpClient, watcher: Watcher) -> StageRecord:
    watcher.new_stage()
    placed = {uid: bool(record.node) for uid, record in watcher.pods.items()}
    at, begun = time.time(), time.monotonic()
    refused = await perform(stage, client, watcher.rest)
    await watcher.rest()
    if placed.keys() == watcher.pods.keys() and not watcher.deleted and await touch_budgets(client):
        await watcher.rest(nudge=False)
    chosen = [
        msgspec.structs.replace(record)
        for uid, record in watcher.pods.items()
        if uid not in placed or bool(record.node) != placed[uid]
    ]
    return StageRecord(stage, at, refused, chosen, list(watcher.deleted), time.monotonic() - begun)


async def _try_again(cluster: Cluster, client: HttpClient, watcher: Watcher) -> None:
    """Restarts the scheduler, so that it tries all pods that wait. It would do so every five minutes; what it remembers
    of earlier attempts is in no snapshot."""
    cluster.restart_kube_scheduler()
    await client.create(PODS, _PROBE, "default")
    try:
        end = time.monotonic() + PATIENCE
        while not (await client.get(PODS, "probe", "default")).get("status", {}).get("conditions"):
            if time.monotonic() > end:
                raise AssertionError("the restarted scheduler tries no pods")
            await asyncio.sleep(0.1)
    finally:
        await client.delete(PODS, "probe", "default", grace_period=0)
    await watcher.rest(nudge=False)


_PROBE: Document = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "probe"},
    "spec": {
        "priorityClassName": "last",
        "nodeSelector": {"no-such": "node"},
        "containers": [{"name": "main", "image": "example.com/probe"}],
    },
}
"""Tried after all other pods, and fits nowhere."""


async def _nodes_ready(client: HttpClient, documents: Sequence[Document]) -> None:
    """Waits until the taints of new nodes are gone."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        found = (await client.list(NODES)).items
        keys = {taint["key"] for node in found for taint in node["spec"].get("taints") or ()}
        if not any(key.startswith("node.kubernetes.io/") for key in keys):
            return
        await asyncio.sleep(0.2)
    raise AssertionError("the nodes are not ready")


async def _take(client: HttpClient, path: Path) -> None:
    redacted = Redactor()
    writer = SnapshotWriter(path)
    header = await take(client, registry(), time.time(), lambda document: writer.write(redacted(document)))
    header.kubernetes = await client.kubernetes_version()
    writer.finish(header)


def run(binaries: Binaries, seed: int, stages: int, folder: Path, scratch: Path) -> Recording:
    folder.mkdir(parents=True, exist_ok=True)
    with control_plane(binaries, scratch) as cluster:
        return asyncio.run(record(cluster, seed, stages, folder))
