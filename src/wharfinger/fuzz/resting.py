"""What must hold when faults have ended and everything has settled."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from msgspec.structs import replace

from wharfinger.api.registry import Document
from wharfinger.api.views import Pod
from wharfinger.engine.outcome import Decision
from wharfinger.fuzz.deadlines import deadlines
from wharfinger.fuzz.history import PlainHistory, condition, is_deleting, is_terminal, node_of, title
from wharfinger.fuzz.invariants.placing import placement_faults
from wharfinger.fuzz.leftovers import (
    expectations_met,
    left_entries,
    stale_copies,
    table_differences,
    task_counts,
    unfinished_work,
)
from wharfinger.scenario.document import ScenarioFault
from wharfinger.scheduler.queue import Place, QueuedPod
from wharfinger.scheduler.scheduler import Scheduler
from wharfinger.simulate.cluster import SimulatedCluster
from wharfinger.simulate.components import make_scheduler

BACK = 65.0  # seconds in which every process that was killed or paused is back
EXPECTED_FOR = 305.0  # seconds after which a controller no longer waits for events that it has missed
QUIET = 15.0  # seconds; longer than the longest back-off, shorter than the retry without an event
MOST_BEHIND = 30.0  # seconds that the clock of a component is behind at most

_NEEDED = ("PrioritySort", "DefaultBinder")  # plugins without which there is no profile
_HOLDING = "Reservation"  # the plugin that takes what is reserved and unused from the room of nodes


def scheduler_names(world: SimulatedCluster) -> list[str]:
    leading = world.leading_scheduler()
    return list(leading.engine.profiles) if leading is not None else []


class RestingCluster:
    def __init__(self, world: SimulatedCluster, history: PlainHistory, observe: Callable[[], object]) -> None:
        self.world = world
        self.history = history
        self._observe = observe
        self.fresh: Scheduler | None = None

    async def end_faults(self) -> None:
        self.world.end_faults()
        await self.world.advance(self.world.loop.time() + BACK)

    async def settle(self) -> None:
        world = self.world
        await world.settle()
        await world.advance(world.loop.time() + QUIET)
        await world.settle()
        if not expectations_met(world.clock.now()):
            await world.advance(world.loop.time() + EXPECTED_FOR)
            await world.settle()
        # A timer that was set while the clock was behind fires as much later as that.
        while self.history.skewed and self._has_just_passed(MOST_BEHIND):
            await world.advance(world.loop.time() + MOST_BEHIND)
            await world.settle()

    def _has_just_passed(self, seconds: float) -> bool:
        now = self.world.clock.now()
        return any(now - seconds <= each <= now for each in deadlines(self.history))

    @property
    def scheduler(self) -> Scheduler | None:
        return self.world.leading_scheduler()

    # -- incremental equals fresh

    async def incremental(self) -> list[str]:
        """Copies equal what the API server holds, and the answers for every waiting pod equal those of a scheduler that was
        loaded just now."""
        scheduler = self.scheduler
        if scheduler is None:
            return ["no scheduler is running"]
        found = await stale_copies(self.world.client("", lambda warning: None))
        fresh = await self._fresh()
        try:
            found += table_differences(scheduler, fresh)
            waiting, known = {each.key for each in scheduler.state.queue}, {each.key for each in fresh.state.queue}
            for key in sorted(waiting ^ known):
                found.append(f"{'/'.join(key)} is queued by {'one' if key in waiting else 'a new'} scheduler only")
            for item in scheduler.state.queue:
                if item.key in known and item.place is not Place.GATED:
                    one, other = _answer(scheduler, item), _answer(fresh, item)
                    if one != other:
                        found.append(f"{_name(item)}: the scheduler says {one}; a new one says {other}")
            return found
        finally:
            await fresh.stop()

    async def _fresh(self, plugins: Sequence[str] = ()) -> Scheduler:
        """A scheduler that was loaded just now, with all plugins or with some only."""
        world = self.world
        configuration = world.configuration
        if plugins:
            chosen = {"disabled": [{"name": "*"}], "enabled": [{"name": name} for name in (*plugins, *_NEEDED)]}
            names = scheduler_names(world)
            profiles = [{"schedulerName": name, "plugins": {"multiPoint": chosen}} for name in names]
            configuration = replace(configuration, scheduler={"profiles": profiles})
        client = world.client("", lambda warning: None)
        fresh, _ = make_scheduler(client, world.clock, configuration, world.registry, 0, random.Random("fresh"))
        await fresh.load()
        return fresh

    # -- liveness

    async def liveness(self) -> list[str]:
        """Nothing that fits somewhere waits, all work is done, and nothing is left over."""
        scheduler = self.scheduler
        if scheduler is None:
            return ["no scheduler is running"]
        state, found = scheduler.state, []
        if state.cycle.busy:
            found.append(f"{sorted(state.cycle.busy)} are still being bound")
        for item in state.queue:
            if item.place is Place.GATED or item.failed:
                continue
            if item.place is not Place.UNSCHEDULABLE:
                found.append(f"{_name(item)} is {item.place} though nothing happens")
                continue
            decision = scheduler.engine.schedule(item.pod)
            if decision.node is not None:
                found.append(
                    f"{_name(item)} waits though it fits on {decision.node}; refused by {sorted(item.refused_by)}"
                )
            elif decision.diagnosis is not None and state.cycle.may_preempt(item.pod):
                result = scheduler.engine.preempt(item.pod, decision.diagnosis)
                staying = [each.metadata.name for each in result.victims if not each.terminating]
                if staying:
                    found.append(f"{_name(item)} waits though it could preempt {staying} on {result.node}")
        queued = {each.key for each in state.queue}
        for pod in self._waiting():
            key = (pod["metadata"]["namespace"], pod["metadata"]["name"])
            if key not in queued and pod["spec"].get("schedulerName") in scheduler.engine.profiles:
                found.append(f"pod {title(pod)} waits, but no scheduler has it in its queue")
        assumed = [record.key for record in scheduler.engine.tables.pods.values() if record.assumed]
        if assumed:
            found.append(f"{sorted(assumed)} are still assumed")
        return [*found, *left_entries(scheduler), *unfinished_work(self.history)]

    def _waiting(self) -> list[Document]:
        return [
            each
            for each in self.history.of("pods")
            if not node_of(each) and not is_terminal(each) and not is_deleting(each)
        ]

    # -- explained

    async def explained(self) -> list[str]:
        """Every waiting pod has a reason, and the reason is true when asked anew."""
        scheduler = self.scheduler
        if scheduler is None:
            return []
        found = []
        for pod in self._waiting():
            if pod["spec"].get("schedulerName") not in scheduler.engine.profiles:
                continue
            item = scheduler.state.queue.get((pod["metadata"]["namespace"], pod["metadata"]["name"]))
            if item is not None and item.place is Place.GATED:
                continue  # as in stock Kubernetes, nothing is said of a pod whose resource claim does not exist
            told = condition(pod, "PodScheduled")
            message = str(told.get("message") or "")
            if told.get("status") != "False" or not told.get("reason"):
                found.append(f"pod {title(pod)} waits without a reason")
            elif told["reason"] == "Unschedulable" and (lie := await self._untrue(scheduler, pod, message)):
                found.append(f"pod {title(pod)} is told {message!r}, but {lie}")
        return found

    async def _untrue(self, scheduler: Scheduler, pod: Document, message: str) -> str:
        """Empty if the plugins that refused the pod still do, when they are asked alone."""
        view = scheduler.pod(pod["metadata"]["namespace"], pod["metadata"]["name"])
        if view is None:
            return "the scheduler does not know it"
        decision = scheduler.engine.schedule(view)
        if decision.node is not None:
            return f"it fits on {decision.node}"
        if decision.diagnosis is None or decision.diagnosis.message in message:
            return ""
        item = scheduler.state.queue.get(view.metadata.key)
        named = item.refused_by if item is not None else frozenset()
        if named & decision.diagnosis.plugins or not named:
            return ""
        # Another plugin may refuse first now, which hides the ones that did before.
        node = (await self._asked_alone(view, named)).node
        if node is None:
            return ""
        # Alone, they see reserved room as free.
        known = {name for profile in scheduler.engine.profiles.values() for name in profile.plugins}
        diagnosis = (await self._asked_alone(view, named | (known & {_HOLDING}))).diagnosis
        if diagnosis is not None and named & diagnosis.plugins:
            return ""
        return f"{sorted(named)} let it onto {node}"

    async def _asked_alone(self, view: Pod, plugins: Collection[str]) -> Decision:
        """The answer of a scheduler that has these plugins only."""
        alone = await self._fresh(sorted(plugins))
        try:
            return alone.engine.schedule(view)
        finally:
            await alone.stop()

    # -- placement

    async def placed(self) -> list[str]:
        """Decisions equal what a plain computation from the same objects gives, and every deadline has fired."""
        self._observe()
        return list(placement_faults(self.history))

    # -- restart equals no restart

    async def restarted(self) -> list[str]:
        """Once everything is at rest, a restart of every component changes nothing."""
        before, began, endings = self._projection(), self.world.clock.now(), self._endings()
        due = list(deadlines(self.history))  # those of what will be gone then, too
        await self.world.fault(ScenarioFault(restart="all"))
        await self.settle()
        self._observe()
        now = self.world.clock.now()
        passed = any(began - 1 <= moment <= now + 1 for moment in (*due, *deadlines(self.history)))
        if passed or self._endings() != endings:
            return []  # time alone changed something: not comparable
        after = self._projection()
        return [
            f"after a restart of everything, {what} is {after.get(what)!r} and not {before.get(what)!r}"
            for what in sorted(before.keys() | after.keys())
            if before.get(what) != after.get(what)
        ]

    def _endings(self) -> set[str]:
        """What has ended: pods that have finished, reservations that have expired."""
        pods = (each for each in self.history.of("pods") if is_terminal(each))
        reservations = (each for each in self.history.of("reservations") if _phase(each) in ("Succeeded", "Failed"))
        return {str(each["metadata"]["uid"]) for each in (*pods, *reservations)}

    def _projection(self) -> dict[str, Any]:
        """Who is placed where, what is reserved, how many each unit has, and which tasks run."""
        found: dict[str, Any] = {f"the number of tasks {name}": count for name, count in task_counts().items()}
        for pod in self.history.of("pods"):
            if node_of(pod) and not is_terminal(pod) and not is_deleting(pod):
                found[f"the node of pod {title(pod)} ({pod['metadata']['uid']})"] = node_of(pod)
        for each in self.history.of("reservations"):
            status = each.get("status") or {}
            if status.get("phase") in ("Available", "Waiting"):
                found[f"reservation {title(each)}"] = (
                    status["phase"],
                    status.get("nodeName"),
                    status.get("allocatable"),
                )
        for each in self.history.of("resourcepolicies"):
            found[f"the units of resource policy {title(each)}"] = (each.get("status") or {}).get("units")
        for each in self.history.of("placementdecisions"):
            decisions = (each.get("status") or {}).get("decisions") or ()
            found[f"placement decision {title(each)}"] = sorted(every["clusterName"] for every in decisions)
        return found


def _phase(reservation: Document) -> str:
    return str((reservation.get("status") or {}).get("phase") or "")


def _answer(scheduler: Scheduler, item: QueuedPod) -> str:
    decision = scheduler.engine.schedule(item.pod)
    if decision.node is not None:
        return "it fits"
    return decision.error or ("" if decision.diagnosis is None else decision.diagnosis.message)


def _name(item: QueuedPod) -> str:
    return "/".join(item.key)


RestCheck = Callable[[RestingCluster], Awaitable[list[str]]]

REST_CHECKS: dict[str, RestCheck] = {
    "incremental-equals-fresh": RestingCluster.incremental,
    "placement": RestingCluster.placed,
    "explained": RestingCluster.explained,
    "liveness": RestingCluster.liveness,
    "restart-equals-no-restart": RestingCluster.restarted,
}
