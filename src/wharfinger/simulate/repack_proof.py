"""Proves a plan: every move is made in the simulated cluster, the way it would be made in a real one.

A move reserves room on its target, evicts the pod through the eviction API, which respects disruption budgets, and ends
when the replacement runs in that room. After each, every pod that ran before must run.
"""

from __future__ import annotations

from collections.abc import Sequence

from wharfinger.api.errors import ApiError
from wharfinger.api.kinds.builtin import PODS
from wharfinger.api.object_meta import controller_of
from wharfinger.api.registry import Document
from wharfinger.repack.jobs import job_of, migration_jobs, outcome_of
from wharfinger.repack.plans import RepackMove
from wharfinger.simulate.cluster import SimulatedCluster
from wharfinger.simulate.simulation import Progress
from wharfinger.store.objects import StoredObject

_NOT_CREATED = ("nodeName", "priority", "preemptionPolicy")


async def prove(world: SimulatedCluster, moves: Sequence[RepackMove], progress: Progress | None) -> str:
    """What went otherwise than planned; empty if nothing did."""
    client = world.client("", lambda warning: None)
    resource = migration_jobs(world.registry)
    pods = _RunningPods(world)
    running = pods.count()
    for number, move in enumerate(moves):
        if progress is not None:
            progress("proving", number, len(moves))
        namespace, _, name = move.pod.partition("/")
        stored = world.store.peek(PODS, name, namespace)
        if stored is None:
            return f"{move.pod} is gone before it can be moved"
        pod = stored.document()
        job = job_of(move, f"repack-{number}")
        try:
            await client.create(resource, job)
            await world.settle()
            if not _is_created_again(world, pod):
                await client.create(PODS, _again(pod), namespace)
                await world.settle()
        except ApiError as error:
            return f"{move.pod} cannot be moved to {move.target}: {error.message}"
        done = await client.get(resource, job["metadata"]["name"])
        why = outcome_of(done, move)
        if why:
            return why
        if (now := pods.count()) < running:
            return f"after moving {move.pod} to {move.target}, {running - now} pods do not run any more"
    return ""


class _RunningPods:
    """Counts the running pods; only those that changed are looked at again."""

    def __init__(self, world: SimulatedCluster) -> None:
        self._store = world.store
        self._revision = -1
        self._names: set[str] = set()  # NAMESPACE/NAME

    def count(self) -> int:
        changed = self._store.changed_since(PODS, "", self._revision) if self._revision >= 0 else None
        self._revision = self._store.revision(PODS)
        if changed is None:
            self._names = {f"{each.namespace}/{each.name}" for each in self._store.scan(PODS) if _runs(each)}
        for key in changed or ():
            namespace, _, name = key.partition("/")
            if _runs(self._store.peek(PODS, name, namespace)):
                self._names.add(key)
            else:
                self._names.discard(key)
        return len(self._names)


def _runs(stored: StoredObject | None) -> bool:
    return stored is not None and b'"phase":"Running"' in stored.data


def _is_created_again(world: SimulatedCluster, pod: Document) -> bool:
    """Whether a controller of the simulation creates the pod again: its workload is there, and of a kind of Kubernetes."""
    controller = controller_of(pod)
    if controller is None:
        return False
    kind = world.registry.of_object(controller["apiVersion"], controller["kind"])
    if kind is None or not kind.builtin or not kind.pod_template:
        return False
    stored = world.store.peek(kind.storage, controller["name"], pod["metadata"]["namespace"])
    return stored is not None and stored.uid == controller["uid"]


def _again(pod: Document) -> Document:
    """The pod as somebody else creates it again: its workload under another name, or a person."""
    metadata = pod["metadata"]
    kept = {
        name: metadata[name] for name in ("namespace", "labels", "annotations", "ownerReferences") if name in metadata
    }
    if controller_of(pod) is None:
        kept["name"] = metadata["name"]
    else:
        kept["generateName"] = metadata.get("generateName") or f"{metadata['name']}-"
    spec = {name: value for name, value in pod["spec"].items() if name not in _NOT_CREATED}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": kept, "spec": spec}
