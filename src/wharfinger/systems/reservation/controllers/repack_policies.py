"""Carries out RepackPolicies: plans when a maintenance window begins, and makes the moves with PodMigrationJobs.

The plan is written to the status before the first move begins, and a job has the same name whoever creates it. So a
controller that is restarted goes on where the last one stopped, and nothing is moved twice.
"""

from __future__ import annotations

import asyncio
import logging
from copy import deepcopy
from typing import TYPE_CHECKING

from wharfinger.api.conditions import new_condition, set_condition
from wharfinger.api.errors import AlreadyExists, NotFound
from wharfinger.api.registry import Document
from wharfinger.api.times import format_time, parse_time
from wharfinger.client.timers import SystemClock
from wharfinger.controllers.context import ContextController, ControllerContext
from wharfinger.controllers.status_patches import patch_status
from wharfinger.repack.applying import CORDONED, REPACK_LABEL, cordon, has_ended, uncordon
from wharfinger.repack.finding import BadGoal, RepackOptions, find_plan
from wharfinger.repack.jobs import job_of, outcome_of
from wharfinger.repack.movable import BadCost
from wharfinger.repack.plans import RepackGoal, RepackPlan
from wharfinger.systems.reservation.kinds.names import POD_MIGRATION_JOBS, REPACK_POLICIES
from wharfinger.systems.reservation.rules import repacking as rules
from wharfinger.systems.reservation.settings import ReservationSettings

if TYPE_CHECKING:
    from wharfinger.scheduler.scheduler import Scheduler

log = logging.getLogger(__name__)

READING_SECONDS = 120.0  # that reading the cluster may take before a run is given up
SLACK = 0.001  # seconds after a moment at which it has certainly come


class RepackPolicyController(ContextController[str]):
    name = "repackpolicy"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._enabled = context.configuration.of(ReservationSettings).repack_policies
        self._policies = context.documents(REPACK_POLICIES)
        self._jobs = context.documents(POD_MIGRATION_JOBS)
        self._nodes = context.nodes
        self._pods = context.pods
        self._policies.add_handler(self._enqueue, lambda old, new: self._enqueue(new), self._enqueue)
        self._jobs.add_handler(self._job_changed, lambda old, new: self._job_changed(new), self._job_changed)

    def _enqueue(self, policy: Document) -> None:
        self.queue.add(policy["metadata"]["name"])

    def _job_changed(self, job: Document) -> None:
        policy = (job["metadata"].get("labels") or {}).get(rules.POLICY_LABEL)
        if policy:
            self.queue.add(policy)

    async def reconcile(self, key: str) -> None:
        if self._policies.get(key) is None:
            await self._let_go(key)
            return
        try:
            # What to do next depends on the last status written, which the informer may not have received yet.
            policy = await self.client.get(REPACK_POLICIES, key)
        except NotFound:
            return
        if policy["metadata"].get("deletionTimestamp"):
            return
        if not self._enabled:
            why = "set reservation.repackPolicies: true in the configuration of the controllers"
            await self._write(policy, {}, ("Ready", False, "Disabled", why))
            return
        if (policy.get("status") or {}).get("run"):
            await self._go_on(policy)
        else:
            await self._begin_if_due(policy)

    async def _let_go(self, name: str) -> None:
        """Nodes that were cordoned for a policy that was deleted in the middle of a run take pods again."""
        for node in list(self._nodes):
            if node.metadata.annotations.get(CORDONED) == _by(name) and self._has_moved_pods(node.metadata.name):
                await uncordon(self.client, node.metadata.name)

    def _has_moved_pods(self, node: str) -> bool:
        return any(
            pod.spec.node_name == node
            and not pod.terminal
            and not any(each.controller and each.kind == "DaemonSet" for each in pod.metadata.owner_references)
            for pod in self._pods
        )

    # -- beginning a run

    async def _begin_if_due(self, policy: Document) -> None:
        name, now = policy["metadata"]["name"], self.context.now()
        times = rules.times_of(policy, now)
        if times.next is not None:
            self.queue.add_after(name, times.next - now + SLACK, background=True)
        if policy["spec"].get("suspend"):
            await self._write(policy, {}, ("Ready", False, "Suspended", "spec.suspend is set"))
        elif times.due is None:
            status: Document = {} if times.missed is None else {"lastScheduleTime": format_time(times.missed)}
            await self._write(policy, status, ("Ready", True, "Scheduled", _next_text(times)))
        else:
            await self._begin(policy, times)

    async def _begin(self, policy: Document, times: rules.RepackTimes) -> None:
        now, goal = self.context.now(), rules.goal_of(policy["spec"])
        assert times.due is not None
        plan, why = await self._plan(goal, policy["spec"]["maxMoves"])
        run: Document = {
            "started": format_time(now),
            "until": format_time(times.until),
            "goal": goal.text(),
            "moves": [rules.move_document(move) for move in plan.moves],
            "freed": list(plan.freed),
        }
        status: Document = {"lastScheduleTime": format_time(times.due)}
        if why or not plan.moves:
            outcome = "NoPlan" if why else "NothingToDo"
            message = why or f"nothing needs to move: {goal.text()}"
            status["lastRun"] = {**run, "completed": format_time(now), "outcome": outcome, "message": message}
            await self._write(policy, status, ("Ready", True, "Scheduled", _next_text(times)))
            return
        status["run"] = run
        message = f"{len(plan.moves)} moves: {goal.text()}"
        await self._write(policy, status, ("Ready", True, "Running", message))
        self.queue.add(policy["metadata"]["name"])

    async def _plan(self, goal: RepackGoal, most: int) -> tuple[RepackPlan, str]:
        """A plan of at most so many moves, and why there is none."""
        # Imported here: most controllers never plan, and the engine takes time and memory.
        from wharfinger.scheduler import profiles
        from wharfinger.scheduler.scheduler import Scheduler

        configuration = self.context.configuration
        loaded = profiles.load(configuration.scheduler, settings=configuration)
        scheduler = Scheduler(self.client, self.context.clock, loaded, self.context.registry)
        try:
            async with asyncio.timeout(READING_SECONDS):
                await scheduler.load()
        except TimeoutError:
            return RepackPlan(goal), f"the cluster could not be read within {READING_SECONDS:.0f}s"
        finally:
            await scheduler.stop()

        def find() -> tuple[RepackPlan, str]:
            return _within(scheduler, goal, most)

        # On the loop of a simulation nothing else happens meanwhile; a live controller must renew its lease.
        return await asyncio.to_thread(find) if isinstance(self.context.clock, SystemClock) else find()

    # -- making the moves

    async def _go_on(self, policy: Document) -> None:
        name, spec, now = policy["metadata"]["name"], policy["spec"], self.context.now()
        run = deepcopy(policy["status"]["run"])
        await self._cordon(name, run)
        for move in run["moves"]:
            if move["state"] == rules.RUNNING:
                await self._check(name, run, move)
        for move in rules.to_begin(run, spec, now):
            await self._begin_move(name, run, move, now)
        outcome = rules.outcome_of_run(run, spec, now)
        if outcome is None:
            left = parse_time(run["until"]) - now
            if left >= 0:  # afterwards only a job that ends changes anything
                self.queue.add_after(name, left + SLACK, background=True)
            done = sum(move["state"] == rules.SUCCEEDED for move in run["moves"])
            message = f"{done} of {len(run['moves'])} moves made: {run['goal']}"
            await self._write(policy, {"run": run}, ("Ready", True, "Running", message))
            return
        for node in rules.half_freed(run):
            await self._uncordon(name, node)
        last = {**run, "completed": format_time(now), "outcome": outcome[0], "message": outcome[1]}
        times = rules.times_of({**policy, "status": {**policy["status"], "run": None}}, now)
        await self._write(policy, {"run": None, "lastRun": last}, ("Ready", True, "Scheduled", _next_text(times)))
        if times.next is not None:
            self.queue.add_after(name, times.next - now + SLACK, background=True)

    async def _cordon(self, name: str, run: Document) -> None:
        for node in run.get("freed") or ():
            try:
                await cordon(self.client, node, _by(name))
            except NotFound:
                continue  # it is gone, so it is free

    async def _uncordon(self, name: str, node: str) -> None:
        found = self._nodes.get(node)
        if found is not None and found.metadata.annotations.get(CORDONED, _by(name)) == _by(name):
            try:
                await uncordon(self.client, node)
            except NotFound:
                return

    async def _check(self, name: str, run: Document, move: Document) -> None:
        """Notes how a move that is under way has ended, if it has."""
        try:
            job = await self.client.get(POD_MIGRATION_JOBS, rules.job_name(name, run, move))
        except NotFound:
            move |= {"state": rules.FAILED, "message": f"the job that moves {move['pod']} was deleted"}
            return
        if has_ended(job):
            why = outcome_of(job, rules.move_of(move))
            move |= {"state": rules.FAILED, "message": why} if why else {"state": rules.SUCCEEDED}

    async def _begin_move(self, name: str, run: Document, move: Document, now: float) -> None:
        namespace, _, pod_name = move["pod"].partition("/")
        pod = self._pods.get(pod_name, namespace)
        job = job_of(rules.move_of(move), rules.job_name(name, run, move))
        job["metadata"]["labels"] = {REPACK_LABEL: "true", rules.POLICY_LABEL: name}
        left = max(parse_time(run["until"]) - now, rules.SHORTEST_TTL)
        job["spec"]["ttl"] = f"{left:.0f}s"
        if pod is None or pod.spec.node_name != move["from"] or pod.terminating or pod.terminal:
            try:
                await self.client.get(POD_MIGRATION_JOBS, job["metadata"]["name"])
            except NotFound:
                move |= {"state": rules.FAILED, "message": f"{move['pod']} does not run on {move['from']} any more"}
                return
            # The job was created before a restart, and has moved the pod by now.
        else:
            try:
                await self.client.create(POD_MIGRATION_JOBS, job)
            except AlreadyExists:
                log.debug("%s: job %s exists already", name, job["metadata"]["name"])
        move["state"] = rules.RUNNING

    async def _write(self, policy: Document, status: Document, condition: tuple[str, bool, str, str]) -> None:
        present = (policy.get("status") or {}).get("conditions") or ()
        generation = policy["metadata"].get("generation", 0)
        new = {**new_condition(*condition, self.context.now()), "observedGeneration": generation}
        conditions = set_condition(present, new)
        made = {**status, "conditions": conditions, "observedGeneration": generation}
        await patch_status(self.client, REPACK_POLICIES, policy, made, locked=True)


def _within(scheduler: Scheduler, goal: RepackGoal, most: int) -> tuple[RepackPlan, str]:
    """The plan that needs at most so many moves: of several nodes to free as many as that allows, of an improvement its
    first moves."""
    options = RepackOptions(alone=False)
    try:
        plan = find_plan(scheduler.engine, list(scheduler.pods()), goal, options)
        number = goal.free_nodes or 0
        while number > 1 and (not plan.reached or len(plan.moves) > most):
            number -= 1
            fewer = RepackGoal(free_nodes=number, nodes=goal.nodes)
            plan = find_plan(scheduler.engine, list(scheduler.pods()), fewer, options)
    except (BadGoal, BadCost) as error:
        return RepackPlan(goal), str(error)
    if not plan.reached:
        return RepackPlan(goal), "; ".join(plan.blocked)
    if len(plan.moves) > most and goal.improves:
        plan.moves = plan.moves[:most]
    if len(plan.moves) > most:
        return RepackPlan(goal), f"{len(plan.moves)} moves are needed, but maxMoves is {most}"
    return plan, ""


def _by(name: str) -> str:
    return f"repack-policy.{name}"


def _next_text(times: rules.RepackTimes) -> str:
    return "no further window" if times.next is None else f"the next window begins at {format_time(times.next)}"
