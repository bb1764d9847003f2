"""Plans a change: a cluster is simulated until idle, then with the change until idle again, and the two are compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wharfinger.api.conditions import find_condition
from wharfinger.api.errors import NotFound
from wharfinger.api.fields import show
from wharfinger.api.kinds.builtin import (
    DAEMON_SETS,
    DEPLOYMENTS,
    EVENTS,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
)
from wharfinger.api.object_meta import controller_of
from wharfinger.api.registry import Document
from wharfinger.contributions import ComparedKey
from wharfinger.controllers.scale_in import DELETION_COST
from wharfinger.scenario import runner
from wharfinger.scenario.document import ObjectTarget
from wharfinger.simulate import report
from wharfinger.simulate.cluster import SimulatedCluster
from wharfinger.simulate.draining import drain
from wharfinger.simulate.inputs import BadInput, Inputs
from wharfinger.simulate.recreating import refusals
from wharfinger.simulate.simulation import SimulationOptions, apply_manifests, prepare
from wharfinger.system import systems

_WORKLOADS = (DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS, REPLICA_SETS)


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """A change to one object. `before` and `after` are the facts that are compared; None if it does not exist."""

    kind: str
    namespace: str
    name: str
    what: str  # scheduled, pending, moved, gone, new, preempted, changed
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None

    def document(self) -> Document:
        return {
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "change": self.what,
            "before": None if self.before is None else dict(self.before),
            "after": None if self.after is None else dict(self.after),
        }

    def text(self) -> str:
        """What differs; everything if the object is new or gone."""
        before, after = self.before, self.after
        if before is not None and after is not None:
            same = {key for key in before.keys() & after.keys() if before[key] == after[key]}
            before = {key: value for key, value in before.items() if key not in same}
            after = {key: value for key, value in after.items() if key not in same}
        return f"{_facts(before)} -> {_facts(after)}"


@dataclass(frozen=True, slots=True)
class Recreation:
    """A workload whose new pods the API would refuse with the change and not without it, or the other way round."""

    kind: str
    namespace: str
    name: str
    before: str  # why a new pod is refused; empty if it is not
    after: str

    def document(self) -> Document:
        return {
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "before": self.before or None,
            "after": self.after or None,
        }


@dataclass(slots=True)
class ChangePlan:
    changes: list[PlannedChange] = field(default_factory=list)
    refused: list[runner.Rejection] = field(default_factory=list)
    failed: list[Document] = field(default_factory=list)  # expectations of the change's scenarios
    left_out: list[runner.Rejection] = field(default_factory=list)  # objects of the cluster that could not be loaded
    recreations: list[Recreation] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        return not self.changes and not self.refused and not self.recreations

    def numbers(self) -> dict[str, int]:
        """The number of changes of each type."""
        return dict(Counter(change.what for change in self.changes).most_common())

    def document(self) -> Document:
        return {
            "kind": "Plan",
            "apiVersion": "wharfinger.dev/v1alpha1",
            "changes": [change.document() for change in self.changes],
            "refused": [_refusal(each) for each in self.refused],
            "whenCreatedAnew": [each.document() for each in self.recreations],
            "failed": self.failed,
            "leftOut": [_refusal(each) for each in self.left_out],
        }


def plan(
    cluster: Inputs,
    change: Inputs,
    *,
    start: float | None = None,
    options: SimulationOptions | None = None,
    deletions: Sequence[ObjectTarget] = (),
    drains: Sequence[str] = (),
) -> ChangePlan:
    """Applies the change to the cluster: its manifests, then deletions and drains, then its scenarios. The
    configuration is the cluster's. Raises BadInput if an object to delete or drain does not exist."""
    options = options or SimulationOptions()
    begin = max(cluster.start(), change.start()) if start is None else start
    world = SimulatedCluster(cluster.configuration, start=begin, seed=options.seed)
    try:
        return world.loop.complete(_plan(world, cluster, change, options, deletions, drains))
    finally:
        world.close()


async def _plan(
    world: SimulatedCluster,
    cluster: Inputs,
    change: Inputs,
    options: SimulationOptions,
    deletions: Sequence[ObjectTarget],
    drains: Sequence[str],
) -> ChangePlan:
    given = runner.Results()
    rest = await prepare(world, cluster, options, given, change.manifests)
    await apply_manifests(world, rest, SimulationOptions(seed=options.seed), given)
    await world.settle()
    before, refused_before = _state(world), await refusals(world)
    results = runner.Results()
    await apply_manifests(world, change.manifests, options, results)
    await world.settle()
    client = world.client(options.user, lambda warning: None)
    try:
        for target in deletions:
            await client.delete(target.resource, target.name, target.namespace, propagation="Background")
        for node in drains:
            results.rejections += await drain(world, client, node, options.user)
    except NotFound as error:
        raise BadInput([error.message]) from error
    for scenario, _ in change.scenarios:
        await runner.run(scenario, world, results)
    await world.settle()
    preempted = {_involved(event) for event in world.objects(EVENTS) if event.get("reason") == "Preempted"}
    refused_after = await refusals(world)
    return ChangePlan(
        list(_compare(before, _state(world), preempted)),
        [each for each in results.rejections if not each.expected],
        [each for each in report.expectations(results) if not each["ok"]],
        given.rejections,
        [
            Recreation(*key, refused_before[key], why)
            for key, why in refused_after.items()
            if key in refused_before and bool(why) != bool(refused_before[key])
        ],
    )


def _state(world: SimulatedCluster) -> dict[ComparedKey, Mapping[str, Any]]:
    """What is compared: workloads, pods with their nodes, and the state of each system."""
    state: dict[ComparedKey, Mapping[str, Any]] = {}
    for resource in _WORKLOADS:
        for document in world.objects(resource):
            if controller_of(document) is None:
                state[resource.kind, document["metadata"]["namespace"], document["metadata"]["name"]] = _replicas(
                    document
                )
    for pod in world.objects(PODS):
        metadata, status = pod["metadata"], pod.get("status") or {}
        facts = {"node": (pod.get("spec") or {}).get("nodeName"), "phase": status.get("phase", "Pending")}
        if cost := (metadata.get("annotations") or {}).get(DELETION_COST):
            facts["deletionCost"] = cost
        if facts["node"] is None:
            conditions = status.get("conditions") or ()
            facts["message"] = (find_condition(conditions, "PodScheduled") or {}).get("message")
        state["Pod", metadata.get("namespace", ""), metadata["name"]] = facts
    for system in systems():
        state.update(system.report().compared(world.objects))
    return state


def _replicas(workload: Document) -> dict[str, Any]:
    """How many pods a workload wants and has, and why the API refuses more."""
    status = workload.get("status") or {}
    failure = find_condition(status.get("conditions") or (), "ReplicaFailure") or {}
    return {
        "wanted": (workload.get("spec") or {}).get("replicas", status.get("desiredNumberScheduled", 0)),
        "ready": status.get("readyReplicas", status.get("numberReady", 0)),
        "message": failure.get("message") if failure.get("status") == "True" else None,
    }


def _compare(
    before: Mapping[ComparedKey, Any], after: Mapping[ComparedKey, Any], preempted: set[ComparedKey]
) -> Iterable[PlannedChange]:
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key), after.get(key)
        if _compared(old) != _compared(new):
            yield PlannedChange(*key, _what(key, old, new, preempted), old, new)


def _compared(facts: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The facts without the message: it may change (one more node is counted) although nothing changed for the
    object."""
    return None if facts is None else {key: value for key, value in facts.items() if key != "message"}


def _what(
    key: ComparedKey, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None, preempted: set[ComparedKey]
) -> str:
    if new is None:
        return "preempted" if key in preempted else "gone"
    if old is None:
        return "new"
    if key[0] == "Pod" and old["node"] != new["node"]:
        return "scheduled" if old["node"] is None else "pending" if new["node"] is None else "moved"
    return "changed"


def _involved(event: Document) -> ComparedKey:
    involved = event.get("involvedObject") or {}
    return str(involved.get("kind")), str(involved.get("namespace", "")), str(involved.get("name"))


def _refusal(each: runner.Rejection) -> Document:
    return {"kind": each.kind, "namespace": each.namespace, "name": each.name, "message": each.message}


def _facts(facts: Mapping[str, Any] | None) -> str:
    if facts is None:
        return "-"
    shown = ", ".join(
        f"{key} {value if isinstance(value, str) else show(value)}" for key, value in facts.items() if value is not None
    )
    return shown or "-"
