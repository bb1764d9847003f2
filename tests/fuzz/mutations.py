"""Defects that are put back on purpose, in memory. The fault simulation must find each.

`python -m tests.fuzz.mutations` looks for the first seed that finds each, and prints the table of docs/fuzzing.md.
"""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from wharfinger.admission.quota import QuotaReviewer
from wharfinger.admission.request import PASS
from wharfinger.api.errors import Expired
from wharfinger.client.informer import Informer, InformerSet
from wharfinger.client.leases import Leader
from wharfinger.devices.usage import DeviceUsage
from wharfinger.engine.engine import Engine
from wharfinger.framework.status import SUCCESS
from wharfinger.framework.tables import Tables
from wharfinger.fuzz.playing import play_seed
from wharfinger.fuzz.profiles import PROFILES
from wharfinger.node.kubelet import Kubelets
from wharfinger.plugins.volumes.restrictions import _Restrictions
from wharfinger.scheduler.cycle import SchedulingCycle
from wharfinger.scheduler.pod_statuses import PodStatusWriter
from wharfinger.scheduler.scheduler import Scheduler
from wharfinger.scheduler.state import SchedulingState
from wharfinger.systems.placement.rules.fleet import Fleet
from wharfinger.systems.reservation.controllers.lifecycle import ReservationController
from wharfinger.systems.reservation.plugin.holding import ReservationHolding
from wharfinger.systems.reservation.rules.owners import CompiledOwner
from wharfinger.systems.resource_class.plugin.ledger import DeviceLedger
from wharfinger.systems.resource_policy.plugin.charges import Charges
from wharfinger.systems.resource_policy.plugin.sized import SizedCharges
from wharfinger.systems.scheduling_policy.admission.webhook import WatchedPolicies
from wharfinger.systems.scheduling_policy.rules.lookup import PolicySet

STEPS = 200
Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True, slots=True)
class Mutation:
    name: str
    defect: str
    apply: Patch
    seed: int  # the first that finds it
    invariant: str  # what it violates first
    profile: str = "default"


def _set(target: Any, name: str, value: Any) -> Patch:
    """`target` is a class, or the name of a module."""
    if isinstance(target, str):
        return lambda patch: patch.setattr(f"{target}.{name}", value)
    return lambda patch: patch.setattr(target, name, value)


def _unassumed(self: Engine, pod: Any, node_name: str, profile: str | None = None) -> Any:
    return SUCCESS


def _drop_orphans(self: Tables, row: int) -> None:
    for pod in list(self.pods_on[row].values()):
        self._detach(pod)
        self.pods.pop(pod.key)


async def _load_unsynced(self: Scheduler) -> None:
    self._informers.start()
    self.state.synced()


def _replace_without_deletions(self: Informer[Any], items: Any) -> None:
    for item in items:
        key = (item.metadata.namespace, item.metadata.name) if not isinstance(item, dict) else _key(item)
        self._put(key, item, self._objects.get(key))


def _key(item: dict[str, Any]) -> tuple[str, str]:
    return item["metadata"].get("namespace") or "", item["metadata"]["name"]


def _gap_ignored(patch: pytest.MonkeyPatch) -> None:
    list_all = Informer._list_all

    async def kept(self: Informer[Any]) -> Any:
        """After a gap, the informer goes on from the newest version without looking at what it missed."""
        items, version = await list_all(self)
        return (list(self._objects.values()) if self.lists else items), version

    patch.setattr(Informer, "_list_all", kept)


def _used_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReservationHolding, "used_up", property(lambda self: False))
    patch.setattr(ReservationHolding, "usable", lambda self: not self.closed)


def _victims_of_equal_priority(tables: Tables, pod: Any, row: int, plugins: Any, sparing: Any) -> list[Any]:
    return [each for each in tables.pods_on[row].values() if each.priority <= (pod.spec.priority or 0)]


def _no_nomination(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SchedulingCycle, "_preempt", _preempting_at_once)


def _preempting_at_once(self: SchedulingCycle, item: Any, diagnosis: Any, now: float) -> Any:
    """Evicts without remembering for whom, and tries again: double preemption."""
    if self.may_preempt(item.pod):
        result = self._engine.preempt(item.pod, diagnosis)
        if result.node is not None:
            from wharfinger.scheduler.instructions import Evict

            self.evictions[item.key] = Evict(item, result.node, list(result.victims), diagnosis.plugins)
            self.busy.add(item.key)
            self._outbox.append(self.evictions[item.key])
            return "unschedulable"
    return self._refuse(item, "waiting", diagnosis.plugins, now, keeps_nomination=False)


def _kept_assumed(self: SchedulingState, binding: Any, message: str, now: float, *, gone: bool = False) -> bool:
    self.cycle.busy.discard(binding.item.key)
    self.cycle.fail(binding.item, message, now)
    return True


def _no_retry(self: PodStatusWriter, key: Any, wanted: Any, at_least: float) -> None:
    return


def _deaf(patch: pytest.MonkeyPatch) -> None:
    happened = SchedulingState._happened

    def only_additions(self: SchedulingState, event: Any, now: float, concerned: Any) -> None:
        if event.new is not None:
            happened(self, event, now, concerned)

    patch.setattr(SchedulingState, "_happened", only_additions)


def _stale_rows(patch: pytest.MonkeyPatch) -> None:
    detach = Tables._detach

    def quietly(self: Tables, pod: Any) -> None:
        log, self.pod_log = self.pod_log, type(self.pod_log)()
        try:
            detach(self, pod)
        finally:
            self.pod_log = log

    patch.setattr(Tables, "_detach", quietly)


async def _fail_silently(self: ReservationController, reservation: Any, message: str) -> None:
    await self._write(reservation, {"phase": "Failed"})


def _broken_kubelet(self: Kubelets, pod: Any, node: Any, now: float) -> Any:
    raise KeyError("resize")


def _gap_raises(patch: pytest.MonkeyPatch) -> None:
    run = Informer._watch

    async def ended(self: Informer[Any]) -> None:
        try:
            await run(self)
        except Expired as error:
            raise RuntimeError("watch ended") from error

    patch.setattr(Informer, "_watch", ended)


def _fit_ignored(patch: pytest.MonkeyPatch) -> None:
    from wharfinger.plugins.node_resources import fit

    init = fit._Fit.__init__

    def wanting_nothing(self: Any, *args: Any, **options: Any) -> None:
        init(self, *args, **options)
        self._wanted = []

    patch.setattr(fit._Fit, "__init__", wanting_nothing)


def _owned_by_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CompiledOwner, "matches", lambda self, pod: True)
    patch.setattr(CompiledOwner, "features", lambda self: [("any", "")])


def _scores_kept(patch: pytest.MonkeyPatch) -> None:
    score = Fleet.score

    def endless(self: Fleet, resource: str, name: str) -> Any:
        values, until = score(self, resource, name)
        return values, np.full_like(until, np.inf)

    patch.setattr(Fleet, "score", endless)


def _predicates_ignored(patch: pytest.MonkeyPatch) -> None:
    fitting = Fleet.fitting
    patch.setattr(Fleet, "fitting", lambda self, predicates, now: fitting(self, (), now))


def _worst_first(patch: pytest.MonkeyPatch) -> None:
    score = Fleet.score

    def negated(self: Fleet, resource: str, name: str) -> Any:
        values, until = score(self, resource, name)
        return -values, until

    patch.setattr(Fleet, "score", negated)


def _has_room(self: Any, unit: int, size: Any = None) -> bool:
    return True


def _devices_doubled(patch: pytest.MonkeyPatch) -> None:
    from wharfinger.systems.resource_class.rules import assigning

    divided, assign_one = assigning._divided, assigning._assign_one
    patch.setattr(assigning, "_divided", lambda demands, free: divided(demands, [each + 1 for each in free]))
    patch.setattr(assigning, "_assign_one", lambda demand, free: assign_one(demand, [each + 1 for each in free]))


def _first_policies(self: WatchedPolicies) -> PolicySet:
    if not self._set.policies:
        self._set = PolicySet(self._policies, self._set)
    return self._set


def _devices_forgotten(patch: pytest.MonkeyPatch) -> None:
    real = DeviceLedger._read

    def read(self: DeviceLedger, row: int) -> None:
        real(self, row)
        if not self._slots.get(row):
            self._holders.pop(row, None)

    patch.setattr(DeviceLedger, "_read", read)


def _devices_free(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DeviceUsage, "exclusive", lambda self, device: False)
    patch.setattr(DeviceUsage, "in_use", lambda self, device: False)


def _interrupted_ends(patch: pytest.MonkeyPatch) -> None:
    """What a controller does to end is cancelled, too."""

    async def end(tasks: Any) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def stop(self: InformerSet) -> None:
        for informer in self:
            await informer.stop()

    patch.setattr("wharfinger.client.controller._end", end)
    patch.setattr(InformerSet, "stop", stop)


MUTATIONS = (
    Mutation("pods-fit-always", "requests are not compared with the room of a node", _fit_ignored, 1, "no-overcommit"),
    Mutation(
        "host-ports-ignored",
        "host ports are not compared",
        _set("wharfinger.plugins.node_ports", "conflict", lambda wanted, used: False),
        3,
        "no-overcommit",
        "calm",
    ),
    Mutation(
        "nothing-assumed",
        "a pod is not counted before its binding is seen",
        _set(Engine, "assume", _unassumed),
        1,
        "no-overcommit",
    ),
    Mutation(
        "ghost-pods",
        "pods on a node that is deleted and created again are forgotten",
        _set(Tables, "_before_removal", _drop_orphans),
        0,
        "no-overcommit",
        "scheduling",
    ),
    Mutation(
        "unsynced",
        "a scheduler decides before its caches are synced",
        _set(Scheduler, "load", _load_unsynced),
        0,
        "informed",
    ),
    Mutation("everybody-owns", "everybody may use a reservation", _owned_by_all, 0, "reserved-means-reserved"),
    Mutation(
        "used-twice",
        "a reservation for one pod accepts several",
        _used_twice,
        34,
        "reserved-means-reserved",
    ),
    Mutation(
        "reserved-is-free",
        "what is reserved and unused counts as free",
        _set(ReservationHolding, "charge", lambda self: ()),
        3,
        "no-overcommit",
    ),
    Mutation(
        "fails-silently",
        "an expired reservation gets no condition",
        _set(ReservationController, "_fail", _fail_silently),
        0,
        "reserved-means-reserved",
    ),
    Mutation(
        "units-without-end",
        "maxCount is ignored",
        _set(Charges, "has_room", _has_room),
        11,
        "unit-limits",
        "scheduling",
    ),
    Mutation(
        "quota-ignored",
        "quota refuses nothing",
        _set(QuotaReviewer, "review", lambda self, request: PASS),
        2,
        "quota",
        "tenants",
    ),
    Mutation("devices-doubled", "a node seems to have more free devices than it has", _devices_doubled, 0, "devices"),
    Mutation(
        "policies-ignored",
        "scheduling policies refuse nothing",
        _set("wharfinger.systems.scheduling_policy.rules.checks", "_allowed", lambda merged, wishes, update=False: ()),
        0,
        "admission",
        "tenants",
    ),
    Mutation(
        "equals-preempted",
        "pods of equal priority are victims",
        _set("wharfinger.engine.preemption", "possible_victims", _victims_of_equal_priority),
        0,
        "preemption",
    ),
    Mutation(
        "tolerated-for-ever",
        "tolerations of clusters do not end",
        _set("wharfinger.systems.placement.rules.taints", "_added", lambda taint: math.inf),
        1,
        "placement",
        "placement",
    ),
    Mutation("predicates-ignored", "every cluster fits", _predicates_ignored, 0, "placement", "placement"),
    Mutation("worst-first", "clusters with the lowest scores are chosen", _worst_first, 1, "placement", "placement"),
    Mutation(
        "stale-rows",
        "an answer is not computed anew when a pod leaves",
        _stale_rows,
        6,
        "incremental-equals-fresh",
        "calm",
    ),
    Mutation("deaf", "pods that leave wake nobody", _deaf, 2, "liveness", "calm"),
    Mutation(
        "kept-assumed",
        "a pod whose binding failed stays assumed",
        _set(SchedulingState, "bind_failed", _kept_assumed),
        0,
        "liveness",
        "requests",
    ),
    Mutation("broken-resize", "a kubelet meets an error", _set(Kubelets, "_resize", _broken_kubelet), 1, "unbroken"),
    Mutation(
        "replace-keeps-the-deleted",
        "a list does not remove what is gone",
        _set(Informer, "_replace", _replace_without_deletions),
        0,
        "incremental-equals-fresh",
        "watches",
    ),
    Mutation("gap-ignored", "after a gap, nothing is relisted", _gap_ignored, 0, "incremental-equals-fresh", "watches"),
    Mutation("gap-ends-it", "a gap ends the informer", _gap_raises, 0, "unbroken", "watches"),
    Mutation(
        "bound-again",
        "the API server binds what is bound or being deleted",
        _set("wharfinger.store.pods", "_unbindable", lambda pod: ""),
        6,
        "bound-once",
        "leaders",
    ),
    Mutation(
        "double-preemption", "for whom victims were evicted is forgotten", _no_nomination, 2, "preemption", "calm"
    ),
    Mutation(
        "scores-for-ever",
        "scores do not expire",
        _scores_kept,
        1,
        "placement",
        "placement",
    ),
    Mutation(
        "unexplained",
        "a status that could not be written is not written again",
        _set(PodStatusWriter, "_retry", _no_retry),
        10,
        "explained",
        "requests",
    ),
    Mutation(
        "two-leaders",
        "who lost the lease goes on",
        _set(Leader, "check", lambda self: None),
        1,
        "one-leader",
        "leaders",
    ),
    Mutation(
        "informers-left-running",
        "a controller that ends leaves its informers running",
        _interrupted_ends,
        1,
        "incremental-equals-fresh",
        "leaders",
    ),
    Mutation(
        "devices-given-twice",
        "devices that claims have already are free",
        _devices_free,
        5,
        "claims",
        "claims",
    ),
    Mutation(
        "webhook-fails-open",
        "pods are admitted while the webhook is down",
        _set("wharfinger.webhook.configurations", "fail_open", lambda handlers: True),
        0,
        "admission",
        "tenants",
    ),
    Mutation(
        "policies-read-once",
        "the webhook does not follow policies",
        _set(WatchedPolicies, "policies", _first_policies),
        1,
        "admission",
        "tenants",
    ),
    Mutation(
        "devices-forgotten",
        "pods lose their devices while the device agent of the node is gone",
        _devices_forgotten,
        13,
        "devices",
        "scheduling",
    ),
    Mutation(
        "units-without-size",
        "maxResources is ignored",
        _set(SizedCharges, "has_room", _has_room),
        15,
        "unit-limits",
        "scheduling",
    ),
    Mutation(
        "claims-shared",
        "claims for one pod are given to several",
        _set(_Restrictions, "_uses", lambda self: 0),
        10,
        "volumes",
        "scheduling",
    ),
)


@contextmanager
def mutated(mutation: Mutation) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        mutation.apply(patch)
        yield


def found_by(mutation: Mutation, seed: int) -> tuple[str, str] | None:
    """The invariant that a seed sees violated, and the message."""
    with mutated(mutation):
        played = play_seed(seed, STEPS, PROFILES[mutation.profile], (mutation.invariant,))
    return (played.violations[0].invariant, played.violations[0].message) if played.violations else None


def main(names: list[str]) -> None:
    for mutation in MUTATIONS:
        if names and mutation.name not in names:
            continue
        began = time.process_time()
        for seed in range(12):
            found = found_by(mutation, seed)
            if found is not None:
                break
        seconds = time.process_time() - began
        print(
            f"| {mutation.name} | {mutation.defect} | {found and found[0]} | {mutation.profile} {seed} | {seconds:.1f} |",
            found and found[1][:90],
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
