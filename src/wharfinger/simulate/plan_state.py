"""What `wharf plan` compares of a cluster: workloads, pods with their nodes, scale-in order, and the state of each
system."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from wharfinger.api.conditions import find_condition
from wharfinger.api.kinds.builtin import DAEMON_SETS, DEPLOYMENTS, JOBS, PODS, REPLICA_SETS, STATEFUL_SETS
from wharfinger.api.object_meta import controller_of
from wharfinger.api.pod_state import is_active
from wharfinger.api.registry import Document
from wharfinger.api.views import Pod
from wharfinger.contributions import ComparedKey
from wharfinger.controllers.scale_in import DELETION_COST, in_deletion_order
from wharfinger.simulate.cluster import SimulatedCluster
from wharfinger.store.objects import StoredObject
from wharfinger.system import systems

_WORKLOADS = (DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS, REPLICA_SETS)
_BETWEEN = (REPLICA_SETS, JOBS)  # owners of pods that may have owners themselves


class ComparedState(msgspec.Struct):
    facts: dict[ComparedKey, Mapping[str, Any]] = msgspec.field(default_factory=dict)
    workload_of: dict[ComparedKey, ComparedKey] = msgspec.field(
        default_factory=dict
    )  # by pod: the outermost controller
    scale_in: dict[ComparedKey, list[str]] = msgspec.field(
        default_factory=dict
    )  # pods with costs, in order of deletion
    pods: dict[ComparedKey, StoredObject] = msgspec.field(default_factory=dict)  # of which the facts are


def read_state(world: SimulatedCluster, before: ComparedState | None = None) -> ComparedState:
    """The facts of pods that have not changed since `before` are those that were read then."""
    state = ComparedState()
    known, facts = ({}, {}) if before is None else (before.pods, before.facts)
    owners: dict[str, ComparedKey] = {}
    for resource in dict.fromkeys((*_WORKLOADS, *_BETWEEN)):
        for document in world.objects(resource):
            key = _key(document, resource.kind)
            owner = controller_of(document)
            if owner is not None:
                owners[document["metadata"]["uid"]] = (str(owner.get("kind")), key[1], str(owner.get("name")))
            elif resource in _WORKLOADS:
                state.facts[key] = _replicas(document)
    scaled: dict[ComparedKey, list[Pod]] = {}
    for stored in world.store.scan(PODS):
        pod = stored.view(Pod)
        key = (PODS.kind, stored.namespace, stored.name)
        state.facts[key] = facts[key] if known.get(key) is stored else _pod_facts(pod)
        state.pods[key] = stored
        controller = pod.metadata.controller
        if controller is not None:
            direct = (controller.kind, stored.namespace, controller.name)
            state.workload_of[key] = owners.get(controller.uid, direct)
            if controller.kind == REPLICA_SETS.kind:
                scaled.setdefault(state.workload_of[key], []).append(pod)
    for workload, pods in scaled.items():
        if any(DELETION_COST in pod.metadata.annotations for pod in pods):
            state.scale_in[workload] = _scale_in(pods, world.clock.now())
    for system in systems():
        state.facts.update(system.report().compared(world.objects))
    return state


def _key(document: Document, kind: str) -> ComparedKey:
    metadata = document["metadata"]
    return kind, metadata.get("namespace", ""), metadata["name"]


def _pod_facts(pod: Pod) -> dict[str, Any]:
    facts: dict[str, Any] = {"node": pod.spec.node_name or None, "phase": pod.status.phase or "Pending"}
    if cost := pod.metadata.annotations.get(DELETION_COST):
        facts["deletionCost"] = cost
    if facts["node"] is None:
        condition = pod.status.condition("PodScheduled")
        facts["message"] = (condition.message or None) if condition is not None else None
    return facts


def _replicas(workload: Document) -> dict[str, Any]:
    """How many pods a workload wants and has, and why the API refuses more."""
    status = workload.get("status") or {}
    failure = find_condition(status.get("conditions") or (), "ReplicaFailure") or {}
    return {
        "wanted": (workload.get("spec") or {}).get("replicas", status.get("desiredNumberScheduled", 0)),
        "ready": status.get("readyReplicas", status.get("numberReady", 0)),
        "message": failure.get("message") if failure.get("status") == "True" else None,
    }


def _scale_in(pods: list[Pod], now: float) -> list[str]:
    """The names of the pods of a workload in the order in which it would delete them."""
    active = [pod for pod in pods if is_active(pod)]
    crowding = Counter(pod.spec.node_name for pod in active)
    ranks = {pod.metadata.uid: crowding[pod.spec.node_name] for pod in active}
    return [pod.metadata.name for pod in in_deletion_order(active, ranks, now)]
