"""Plans a change: a cluster is simulated until idle, then with the change until idle again, and the two are compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from wharfinger.api.errors import NotFound
from wharfinger.api.kinds.builtin import EVENTS
from wharfinger.api.registry import Document
from wharfinger.client.memory import gc_paused_while_loading, gc_rare
from wharfinger.contributions import ComparedKey
from wharfinger.scenario import runner
from wharfinger.scenario.document import ObjectTarget
from wharfinger.simulate import report
from wharfinger.simulate.choosing import ObjectChoice, chosen_nodes, chosen_objects
from wharfinger.simulate.cluster import SimulatedCluster
from wharfinger.simulate.draining import BlockedEviction, drain
from wharfinger.simulate.inputs import BadInput, Inputs
from wharfinger.simulate.plan_state import ComparedState, read_state
from wharfinger.simulate.plan_workloads import WorkloadChange, by_workload
from wharfinger.simulate.recreating import NewPod, new_pods
from wharfinger.simulate.simulation import SimulationOptions, apply_manifests, prepare


class PlannedChange(msgspec.Struct, frozen=True):
    """A change to one object. `before` and `after` are the facts that are compared; None if it does not exist."""

    kind: str
    namespace: str
    name: str
    what: str  # scheduled, pending, moved, gone, new, preempted, changed
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    workload: ComparedKey | None = None  # of a pod: the outermost controller

    def document(self) -> Document:
        return {
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "change": self.what,
            "before": None if self.before is None else dict(self.before),
            "after": None if self.after is None else dict(self.after),
            **({} if self.workload is None else {"workload": {"kind": self.workload[0], "name": self.workload[2]}}),
        }


class Recreation(msgspec.Struct, frozen=True):
    """A workload whose new pods would be refused or find no node with the change and not without it, or the other way
    round. Pods that run are not asked again, so nothing else shows it."""

    kind: str
    namespace: str
    name: str
    before: NewPod
    after: NewPod

    def document(self) -> Document:
        return {
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "before": self.before.why or None,
            "after": self.after.why or None,
            "problem": (self.after if self.after.why else self.before).problem,
        }


class ScaleInChange(msgspec.Struct, frozen=True):
    """A workload that would delete its pods in another order when it is scaled in."""

    kind: str
    namespace: str
    name: str
    before: list[str]
    after: list[str]

    def document(self) -> Document:
        return {
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "before": self.before,
            "after": self.after,
        }


class ChangePlan(msgspec.Struct):
    changes: list[PlannedChange] = msgspec.field(default_factory=list)
    refused: list[runner.Rejection] = msgspec.field(default_factory=list)
    failed: list[Document] = msgspec.field(default_factory=list)  # expectations of the change's scenarios
    left_out: list[runner.Rejection] = msgspec.field(
        default_factory=list
    )  # objects of the cluster that could not be loaded
    recreations: list[Recreation] = msgspec.field(default_factory=list)
    blocked: list[BlockedEviction] = msgspec.field(default_factory=list)  # also among the refused requests
    workloads: list[WorkloadChange] = msgspec.field(default_factory=list)
    scale_in: list[ScaleInChange] = msgspec.field(default_factory=list)

    @property
    def empty(self) -> bool:
        return not self.changes and not self.refused and not self.recreations and not self.blocked

    def numbers(self) -> dict[str, int]:
        """The number of changes of each type."""
        return dict(Counter(change.what for change in self.changes).most_common())

    def bad_news(self) -> dict[str, int]:
        """What `--fail-on` can name: pods that would wait, requests and pods that would be refused, pods that would be
        preempted, and evictions that budgets block."""
        evictions = {(each.namespace, each.pod) for each in self.blocked}
        refused = [each for each in self.refused if each.kind != "Pod" or (each.namespace, each.name) not in evictions]
        not_created = sum(1 for each in self.changes if _is_short(each))
        return {
            "blocked": len(self.blocked),
            "refused": len(refused)
            + not_created
            + sum(1 for each in self.recreations if each.after.problem == "Refused"),
            "preempted": sum(each.preempted for each in self.workloads),
            "pending": sum(each.pending for each in self.workloads)
            + sum(1 for each in self.recreations if each.after.problem == "Unschedulable"),
        }

    def document(self) -> Document:
        return {
            "kind": "Plan",
            "apiVersion": "wharfinger.dev/v1alpha1",
            "summary": {**self.bad_news(), "changes": len(self.changes)},
            "workloads": [each.document() for each in self.workloads],
            "blocked": [each.document() for each in self.blocked],
            "changes": [change.document() for change in self.changes],
            "refused": [_refusal(each) for each in self.refused],
            "whenCreatedAnew": [each.document() for each in self.recreations],
            "scaleIn": [each.document() for each in self.scale_in],
            "failed": self.failed,
            "leftOut": [_refusal(each) for each in self.left_out],
        }


def plan(
    cluster: Inputs,
    change: Inputs,
    *,
    start: float | None = None,
    options: SimulationOptions | None = None,
    deletions: Sequence[ObjectChoice | ObjectTarget] = (),
    drains: Sequence[str] = (),
) -> ChangePlan:
    """Applies the change to the cluster: its manifests, then deletions and drains, then its scenarios. `drains` are names
    of nodes or selectors. The configuration is the cluster's. Raises BadInput if an object to delete or drain does not
    exist."""
    options = options or SimulationOptions()
    begin = max(cluster.start(), change.start()) if start is None else start
    world = SimulatedCluster(cluster.configuration, start=begin, seed=options.seed)
    if not change.scenarios:
        world.store.forget_read_changes()  # without faults, nobody reads them again
    try:
        with gc_rare():
            return world.loop.complete(_plan(world, cluster, change, options, deletions, drains))
    finally:
        world.close()


async def _plan(
    world: SimulatedCluster,
    cluster: Inputs,
    change: Inputs,
    options: SimulationOptions,
    deletions: Sequence[ObjectChoice | ObjectTarget],
    drains: Sequence[str],
) -> ChangePlan:
    given = runner.Results()
    with gc_paused_while_loading():
        rest = await prepare(world, cluster, options, given, change.manifests)
    await apply_manifests(world, rest, SimulationOptions(seed=options.seed), given)
    await world.settle()
    before, new_before = read_state(world), await new_pods(world)
    results = runner.Results()
    await apply_manifests(world, change.manifests, options, results)
    await world.settle()
    client = world.client(options.user, lambda warning: None)
    try:
        for target in chosen_objects(world, deletions):
            await client.delete(target.resource, target.name, target.namespace, propagation="Background")
        blocked = await drain(world, client, chosen_nodes(world, drains))
        results.rejections += [each.rejection(options.user) for each in blocked]
    except NotFound as error:
        raise BadInput([error.message]) from error
    for scenario, _ in change.scenarios:
        await runner.run(scenario, world, results)
    await world.settle()
    preempted = {_involved(event) for event in world.objects(EVENTS) if event.get("reason") == "Preempted"}
    after, new_after = read_state(world, before), await new_pods(world)
    changes = list(_compare(before, after, preempted))
    return ChangePlan(
        changes,
        [each for each in results.rejections if not each.expected],
        [each for each in report.expectations(results) if not each["ok"]],
        given.rejections,
        [
            Recreation(*key, new_before[key], new)
            for key, new in new_after.items()
            if key in new_before and bool(new.why) != bool(new_before[key].why)
        ],
        blocked,
        by_workload(before, after, changes),
        list(_other_order(before, after)),
    )


def _compare(before: ComparedState, after: ComparedState, preempted: set[ComparedKey]) -> Iterable[PlannedChange]:
    both = before.facts.keys() | after.facts.keys()
    for key in sorted(key for key in both if before.facts.get(key) != after.facts.get(key)):
        old, new = before.facts.get(key), after.facts.get(key)
        if _compared(old) != _compared(new):
            workload = after.workload_of.get(key) or before.workload_of.get(key)
            yield PlannedChange(*key, _what(key, old, new, preempted), old, new, workload)


def _other_order(before: ComparedState, after: ComparedState) -> Iterable[ScaleInChange]:
    """Workloads in which pods that stay would be deleted in another order, because their costs changed."""
    for key in sorted(before.scale_in.keys() | after.scale_in.keys()):
        old, new = before.scale_in.get(key, []), after.scale_in.get(key, [])
        both = set(old) & set(new)
        costs = (
            {name: (state.facts["Pod", key[1], name]).get("deletionCost") for name in both} for state in (before, after)
        )
        if next(costs) != next(costs) and [each for each in old if each in both] != [
            each for each in new if each in both
        ]:
            yield ScaleInChange(*key, old, new)


def _is_short(change: PlannedChange) -> bool:
    """Whether a workload gets fewer pods than it wants because the API refuses them, and did not before."""
    before, after = change.before or {}, change.after or {}
    return "wanted" in after and bool(after.get("message")) and not before.get("message")


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
