"""The story of a simulation as it happens: what changes at each moment of virtual time, by workload."""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

import msgspec

from wharfinger.api.conditions import find_condition
from wharfinger.api.kinds.builtin import EVENTS, NODES, PODS, REPLICA_SETS
from wharfinger.api.object_meta import controller_of
from wharfinger.api.registry import Document, Resource
from wharfinger.client.tasks import cancel
from wharfinger.simulate.cluster import SimulatedCluster

_QUIET = ("SuccessfulCreate", "SuccessfulDelete", "FailedScheduling")  # events that the pods tell as well
_QUOTED = re.compile(r'"[^"]*"')
_COMBINED = "(combined from similar events): "
_WHY = {
    "PreemptionByScheduler": "preempted",
    "EvictionByEvictionAPI": "evicted",
    "DeletionByTaintManager": "evicted by a taint",
    "TerminationByKubelet": "terminated by the kubelet",
}


class Happening(msgspec.Struct):
    """Something that happened at one moment to some pods of a workload, to some nodes, or to one other object."""

    moment: int  # seconds of virtual time since the start
    kind: str
    name: str  # with its namespace; empty for nodes
    what: str  # created, scheduled, running, pending, …, or the reason of an event
    count: int = 0  # of pods or nodes, or how often an event happened
    nodes: Counter[str] = msgspec.field(default_factory=Counter)
    message: str = ""  # of an event that happened more than once: the first one

    def document(self) -> Document:
        found: Document = {"seconds": self.moment, "kind": self.kind, "name": self.name, "what": self.what}
        if self.count:
            found["count"] = self.count
        if self.nodes:
            found["nodes"] = dict(self.nodes)
        if self.message:
            found["message"] = self.message
        return found


class Timeline:
    """Watches a simulated cluster. `tell` gets the happenings of each moment when time moves on."""

    def __init__(self, world: SimulatedCluster, tell: Callable[[Happening], None]) -> None:
        self._world = world
        self._tell = tell
        self._start = world.clock.now()
        self._moment = 0
        self._warned: set[tuple[str, ...]] = set()
        self._now: dict[tuple[str, str, str, str], Happening] = {}
        self._known: dict[tuple[str, str, str], Document] = {}
        self._owners: dict[str, tuple[str, str]] = {}  # by uid of a ReplicaSet: its Deployment
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        version = self._world.store.version
        for resource, note in (
            (REPLICA_SETS, self._replica_set),
            (NODES, self._node),
            (PODS, self._pod),
            (EVENTS, self._event),
        ):
            for document in self._world.objects(resource):
                self._known[self._key(document, resource)] = document
                if resource == REPLICA_SETS:
                    self._replica_set(None, document)
            self._tasks.append(asyncio.get_running_loop().create_task(self._follow(resource, version, note)))

    async def stop(self) -> None:
        """Tells what is left."""
        await cancel(self._tasks)
        self._flush()

    async def _follow(
        self, resource: Resource, version: int, note: Callable[[Document | None, Document | None], None]
    ) -> None:
        async for event in self._world.store.watch(resource, after=version):
            if event.object is None:
                continue
            document = event.object.document()
            key = self._key(document, resource)
            before = self._known.pop(key, None)
            gone = event.type == "DELETED"
            if not gone:
                self._known[key] = document
            moment = math.floor(self._world.clock.now() - self._start)
            if moment > self._moment:
                self._flush()
                self._moment = moment
            note(before or (document if gone else None), None if gone else document)

    @staticmethod
    def _key(document: Document, resource: Resource) -> tuple[str, str, str]:
        metadata = document["metadata"]
        return resource.plural, metadata.get("namespace", ""), metadata["name"]

    def _flush(self) -> None:
        for happening in self._now.values():
            self._tell(happening)
        self._now.clear()

    def _note(self, kind: str, name: str, what: str, *, message: str = "", node: str = "", group: str = "") -> None:
        """`group` tells apart what is not told together."""
        found = self._now.setdefault(
            (kind, name, what, group), Happening(self._moment, kind, name, what, message=message)
        )
        found.count += 1
        if node:
            found.nodes[node] += 1

    # -- kinds

    def _replica_set(self, before: Document | None, after: Document | None) -> None:
        if after is not None and (owner := controller_of(after)) is not None:
            self._owners[after["metadata"]["uid"]] = (str(owner["kind"]), str(owner["name"]))

    def _node(self, before: Document | None, after: Document | None) -> None:
        name = (after or before or {})["metadata"]["name"]
        if before is None or after is None:
            self._note("Node", "", "added" if before is None else "removed", node=name)
            return
        cordoned = [bool((each.get("spec") or {}).get("unschedulable")) for each in (before, after)]
        if cordoned[0] != cordoned[1]:
            self._note("Node", "", "cordoned" if cordoned[1] else "uncordoned", node=name)
        ready = [_condition(each, "Ready").get("status", "") for each in (before, after)]
        if ready[0] != ready[1]:
            self._note("Node", "", "ready" if ready[1] == "True" else "not ready", node=name)

    def _pod(self, before: Document | None, after: Document | None) -> None:
        pod = after or before or {}
        metadata = pod["metadata"]
        kind, name = "Pod", metadata["name"]
        if (owner := controller_of(pod)) is not None:
            kind, name = self._owners.get(str(owner.get("uid")), (str(owner.get("kind")), str(owner.get("name"))))
        for what, node, message in _pod_steps(before, after):
            self._note(kind, f"{metadata['namespace']}/{name}", what, node=node, message=message, group=message)

    def _event(self, before: Document | None, after: Document | None) -> None:
        if before is not None or after is None or after.get("reason") in _QUIET:
            return
        involved = after.get("involvedObject") or {}
        if involved.get("kind") in ("Pod", "Node") and after.get("type") != "Warning":
            return
        kind, name = self._owners.get(str(involved.get("uid")), (str(involved.get("kind")), str(involved.get("name"))))
        namespace, reason, message = (
            involved.get("namespace"),
            str(after.get("reason")),
            str(after.get("message") or ""),
        )
        name = f"{namespace}/{name}" if namespace else name
        if after.get("type") == "Warning":
            # Told once, not with every retry: generated names do not make it another warning.
            warning = (kind, name, reason, _QUOTED.sub("", message).removeprefix(_COMBINED))
            if warning in self._warned:
                return
            self._warned.add(warning)
        self._note(kind, name, reason, message=message, group=message)


def _condition(document: Mapping[str, object], kind: str) -> Document:
    status = document.get("status")
    return find_condition((status.get("conditions") if isinstance(status, dict) else None) or (), kind) or {}


def _pod_steps(before: Document | None, after: Document | None) -> Iterator[tuple[str, str, str]]:
    """What happened to a pod between two states: what, on which node, and why."""
    if after is None:
        yield "gone", str(((before or {}).get("spec") or {}).get("nodeName") or ""), ""
        return
    old = before or {}
    node, had = (after.get("spec") or {}).get("nodeName") or "", (old.get("spec") or {}).get("nodeName") or ""
    if before is None:
        yield "created", "", ""
    if node and not had:
        yield "scheduled", node, ""
    waiting, waited = _condition(after, "PodScheduled"), _condition(old, "PodScheduled")
    if not node and waiting.get("status") == "False" and waiting.get("message") != waited.get("message"):
        yield "pending", "", str(waiting.get("message") or waiting.get("reason") or "")
    phase, was = (after.get("status") or {}).get("phase"), (old.get("status") or {}).get("phase")
    if phase != was and phase in ("Running", "Succeeded", "Failed"):
        yield (
            str(phase).lower(),
            node,
            str((after.get("status") or {}).get("message") or "") if phase == "Failed" else "",
        )
    if after["metadata"].get("deletionTimestamp") and not (old.get("metadata") or {}).get("deletionTimestamp"):
        reason = str(_condition(after, "DisruptionTarget").get("reason", ""))
        yield _WHY.get(reason, "stopping"), node, ""
