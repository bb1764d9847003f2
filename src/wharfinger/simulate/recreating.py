"""Whether new pods of the workloads that there are would be admitted and find a node: pods that run are not asked again,
so a policy that refuses them, or a class that no longer has devices for them, shows only when they are created anew."""

from __future__ import annotations

import msgspec

from wharfinger.api.errors import ApiError
from wharfinger.api.kinds.builtin import DAEMON_SETS, PODS
from wharfinger.api.object_meta import controller_of
from wharfinger.api.registry import Document, Kind
from wharfinger.api.views import Pod, view
from wharfinger.apiserver.credentials import CONTROLLERS
from wharfinger.contributions import ComparedKey
from wharfinger.controllers.pod_templates import pod_from_template
from wharfinger.engine import Engine
from wharfinger.simulate.cluster import SimulatedCluster

_QUOTA = "exceeded quota: "  # a pod that replaces another one takes the place of that one


class NewPod(msgspec.Struct, frozen=True):
    """What would happen to a new pod of a workload: nothing, or a `problem` and why."""

    problem: str = ""  # Refused, Unschedulable
    why: str = ""


async def new_pods(world: SimulatedCluster) -> dict[ComparedKey, NewPod]:
    """For each workload that is not owned by another one."""
    client = world.client("", lambda warning: None).as_user(CONTROLLERS)
    running = _running_pods(world)
    found: dict[ComparedKey, NewPod] = {}
    for kind in world.registry:
        if not kind.builtin or not kind.pod_template.startswith("spec."):
            continue
        for workload in world.objects(kind.storage):
            if controller_of(workload) is not None or _is_finished(workload):
                continue
            metadata = workload["metadata"]
            key = (kind.kind, metadata["namespace"], metadata["name"])
            pod = pod_from_template(_template(kind, workload), _owner(kind, metadata))
            try:
                made = await client.create(PODS, pod, metadata["namespace"], dry_run=True)
            except ApiError as error:
                found[key] = NewPod() if _QUOTA in error.message else NewPod("Refused", error.message)
                continue
            # The controller of DaemonSets pins each pod to a node, so a pod of the bare template says nothing.
            replaced = running.get(metadata["uid"]) if kind.storage != DAEMON_SETS else None
            why = "" if replaced is None or world.scheduler is None else _fits(world.scheduler.engine, made, replaced)
            found[key] = NewPod("Unschedulable", why) if why else NewPod()
    return found


def _running_pods(world: SimulatedCluster) -> dict[str, Pod]:
    """A pod that runs, by uid of its workload: the one that a new pod would take the place of."""
    outer = {
        stored.uid: str(owner["uid"])
        for kind in world.registry
        if kind.builtin and kind.pod_template.startswith("spec.")
        for stored in world.store.scan(kind.storage)
        if (owner := controller_of(stored.document())) is not None
    }
    found: dict[str, Pod] = {}
    for stored in world.store.scan(PODS):
        pod = stored.view(Pod)
        if pod.metadata.controller is not None and pod.spec.node_name and pod.status.phase == "Running":
            uid = pod.metadata.controller.uid
            found.setdefault(outer.get(uid, uid), pod)
    return found


def _fits(engine: Engine, made: Document, replaced: Pod) -> str:
    """Why a new pod finds no node once the old one is gone; empty if it does. Nothing is changed."""
    pod = view(made, Pod)
    if pod.spec.scheduler_name not in engine.profiles or not engine.pre_enqueue(pod).ok:
        return ""
    engine.remove_pod(replaced.metadata.namespace, replaced.metadata.name)
    try:
        if not engine.profile(pod).answers_for(pod).prepared.score_fault:
            # Nearly always, there is room where the old one was: that node is tried first, and the others only if need be.
            status = msgspec.structs.replace(pod.status, nominated_node_name=replaced.spec.node_name)
            pod = msgspec.structs.replace(pod, status=status)
        return engine.schedule(pod).message
    finally:
        engine.set_pod(replaced)


def _template(kind: Kind, workload: Document) -> Document:
    value: Document = workload
    for part in kind.pod_template.split("."):
        value = value.get(part) or {}
    return value


def _owner(kind: Kind, metadata: Document) -> Document:
    return {
        "apiVersion": kind.storage.api_version,
        "kind": kind.kind,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }


def _is_finished(workload: Document) -> bool:
    """Whether a Job has ended."""
    conditions = (workload.get("status") or {}).get("conditions") or ()
    return workload["kind"] == "Job" and any(
        each.get("type") in ("Complete", "Failed") and each.get("status") == "True" for each in conditions
    )
