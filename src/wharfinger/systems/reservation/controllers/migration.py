"""Runs PodMigrationJobs: reserve room, wait until the reservation is Available, evict the pod, await the replacement.

Each reconciliation takes the next step and records the progress. A pod is evicted only while its reservation is
Available. A job that ends before the eviction leaves the pod running and deletes the reservation.
"""

from __future__ import annotations

import logging
from contextlib import suppress

from wharfinger.api.errors import AlreadyExists, ApiError, NotFound, TooManyRequests
from wharfinger.api.kinds.builtin import POD_DISRUPTION_BUDGETS, PODS
from wharfinger.api.registry import Document
from wharfinger.api.times import parse_time
from wharfinger.api.views import Pod, PodDisruptionBudget
from wharfinger.controllers.context import ContextController, ControllerContext
from wharfinger.systems.reservation.kinds.names import POD_MIGRATION_JOBS, RESERVATIONS
from wharfinger.systems.reservation.kinds.views import PodMigrationJob, Reservation
from wharfinger.systems.reservation.rules import migration as rules
from wharfinger.systems.reservation.rules.conditions import probed_condition, with_condition
from wharfinger.systems.reservation.settings import ReservationSettings

log = logging.getLogger(__name__)

RETRY_SECONDS = 10.0  # delay before retrying a blocked eviction, unless a PodDisruptionBudget changes before
_EVICTION, _BLOCKED = "Eviction", "EvictionBlocked"

Passed = tuple[str, str]
"""A completed step: the type of its condition and the message."""


class PodMigrationController(ContextController[str]):
    name = "podmigration"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._keep_seconds = context.configuration.of(ReservationSettings).gc_seconds
        self._jobs = context.informers.of(POD_MIGRATION_JOBS, PodMigrationJob)
        self._reservations = context.informers.of(RESERVATIONS, Reservation)
        self._pods = context.pods
        self._by_pod = self._jobs.index("pod", lambda job: [(job.spec.pod_ref.namespace, job.spec.pod_ref.name)])
        self._by_reservation = self._jobs.index("reservation", lambda job: [rules.reservation_name(job)])
        self._jobs.add_handler(self._enqueue, lambda old, new: self._enqueue(new))
        self._reservations.add_handler(
            self._reservation_changed, lambda old, new: self._reservation_changed(new), self._reservation_changed
        )
        self._pods.add_handler(on_delete=self._pod_deleted)
        budgets = context.informers.of(POD_DISRUPTION_BUDGETS, PodDisruptionBudget)
        budgets.add_handler(None, lambda old, new: self._budget_changed(new), self._budget_changed)

    def _enqueue(self, job: PodMigrationJob) -> None:
        self.queue.add(job.metadata.name)

    def _reservation_changed(self, reservation: Reservation) -> None:
        for job in self._by_reservation.get(reservation.metadata.name):
            self.queue.add(job.metadata.name)

    def _pod_deleted(self, pod: Pod) -> None:
        for job in self._by_pod.get(pod.metadata.key):
            self.queue.add(job.metadata.name)

    def _budget_changed(self, budget: PodDisruptionBudget) -> None:
        for job in self._jobs:
            if job.status.status == _BLOCKED and job.spec.pod_ref.namespace == budget.metadata.namespace:
                self.queue.add(job.metadata.name)

    # -- reconciling a job

    async def reconcile(self, key: str) -> None:
        known = self._jobs.get(key)
        if known is None or known.metadata.deletion_timestamp:
            return
        if known.ended:
            await self._collect(known)
            return
        try:
            # The next step depends on the last status written, which the informer may not have received yet.
            job = await self.client.get(POD_MIGRATION_JOBS, key, view=PodMigrationJob)
        except NotFound:
            return
        if job.ended or job.metadata.deletion_timestamp:
            return
        evicted = _evicted(job)
        if not evicted and job.metadata.annotations.get(rules.ABORT) == "true":
            await self._end(job, "Aborted", "Aborted", f"annotation {rules.ABORT} is set")
            return
        if await self._out_of_time(job, evicted):
            return
        if job.spec.paused:
            if not job.status.phase:  # a real API server does not set the status of new objects
                await self._write(job, {"phase": "Pending"})
            return
        if job.spec.mode == "EvictDirectly":
            await self._evict_directly(job, evicted)
        elif evicted:
            await self._await_replacement(job)
        else:
            await self._reserve_first(job)

    async def _collect(self, job: PodMigrationJob) -> None:
        """Delete a job some time after it has ended."""
        ended = job.status.condition("Complete")
        if not self._keep_seconds or ended is None or not ended.last_transition_time:
            return
        left = parse_time(ended.last_transition_time) + self._keep_seconds - self.context.now()
        if left > 0:
            self.queue.add_after(job.metadata.name, left, background=True)
            return
        with suppress(NotFound):
            await self.client.delete(POD_MIGRATION_JOBS, job.metadata.name, uid=job.metadata.uid)

    async def _out_of_time(self, job: PodMigrationJob, evicted: bool) -> bool:
        moment, now = rules.deadline(job), self.context.now()
        if moment is None:
            return False
        if now <= moment:
            self.queue.add_after(job.metadata.name, moment - now + 0.001, background=True)
            return False
        waited = job.status.message or job.status.status or "no step completed"
        if evicted:
            waited = "the pod was evicted, but no replacement used the reservation"
        await self._end(job, "Failed", rules.TIMEOUT, f"timed out after {job.spec.ttl}: {waited}", keep=evicted)
        return True

    async def _evict_directly(self, job: PodMigrationJob, evicted: bool) -> None:
        pod = await self._pod(job)
        if evicted:
            if pod is None:
                await self._end(job, "Succeeded", rules.EVICTED, "the pod was evicted")
        elif pod is None:
            await self._end(job, "Failed", rules.NO_POD, "pod not found")
        else:
            await self._evict(job, pod, node="")

    async def _reserve_first(self, job: PodMigrationJob) -> None:
        pod = await self._pod(job)
        if pod is None or not pod["spec"].get("nodeName"):
            await self._end(job, "Failed", rules.NO_POD, "pod not found or not scheduled")
            return
        if why := rules.unmovable(pod):
            await self._end(job, "Failed", rules.UNMOVABLE, f"the pod {why}")
            return
        reservation = await self._reservation(job, pod)
        if reservation is None:
            return
        name, status = reservation.metadata.name, reservation.status
        if reservation.phase == "Failed":
            await self._end(job, "Failed", rules.EXPIRED, f"reservation {name} failed")
        elif reservation.phase == "Succeeded":
            await self._end(job, "Failed", rules.TAKEN, f"reservation {name} was used by another pod")
        elif reservation.phase == "Available":
            await self._evict(job, pod, node=status.node_name)
        else:
            found = status.condition("Scheduled")
            why = (
                found.message
                if found is not None and found.status != "True"
                else f"reservation {name} is being scheduled"
            )
            if reservation.phase == "Waiting":
                why = f"reservation {name} is waiting for resources on node {status.node_name}"
            await self._progress(
                job, "WaitForReservationScheduled", why, condition_type="ReservationScheduled", node=status.node_name
            )

    async def _reservation(self, job: PodMigrationJob, pod: Document) -> Reservation | None:
        name = rules.reservation_name(job)
        try:
            return await self.client.get(RESERVATIONS, name, view=Reservation)
        except NotFound:
            if rules.uses_given(job) or job.status.condition("ReservationCreated") is not None:
                await self._end(job, "Failed", rules.NO_RESERVATION, f"reservation {name} not found")
                return None
        try:
            await self.client.create(RESERVATIONS, rules.reservation_for(job, pod))
        except AlreadyExists:
            return None  # the next reconciliation finds it
        except ApiError as error:
            if error.code >= 500 or error.code == 429:
                raise
            await self._end(job, "Failed", "FailedCreateReservation", str(error))
            return None
        await self._progress(
            job,
            "ReservationCreated",
            f"reservation {name} created",
            condition_type="ReservationCreated",
            condition_status=True,
        )
        self.queue.add(job.metadata.name)
        return None

    async def _await_replacement(self, job: PodMigrationJob) -> None:
        name = rules.reservation_name(job)
        try:
            reservation = await self.client.get(RESERVATIONS, name, view=Reservation)
        except NotFound:
            await self._end(job, "Failed", rules.NO_RESERVATION, f"reservation {name} was deleted after the eviction")
            return
        taken = [owner for owner in reservation.status.current_owners if owner.uid != job.spec.pod_ref.uid]
        if taken:
            owner = taken[0]
            reference = {"namespace": owner.namespace, "name": owner.name, "uid": owner.uid, "kind": "Pod"}
            message = f"pod {owner.namespace}/{owner.name} runs on node {reservation.status.node_name}"
            bound = ("ReservationBound", f"pod {owner.namespace}/{owner.name} uses reservation {name}")
            await self._end(job, "Succeeded", "Complete", message, pod=reference, keep=True, passed=bound)
        elif reservation.phase == "Failed":
            await self._end(job, "Failed", rules.EXPIRED, f"reservation {name} failed after the eviction")
        else:
            await self._progress(
                job,
                "WaitForPodBindReservation",
                "the pod was evicted; waiting for its replacement",
                condition_type="ReservationBound",
                node=reservation.status.node_name,
            )

    # -- eviction

    async def _evict(self, job: PodMigrationJob, pod: Document, *, node: str) -> None:
        metadata = pod["metadata"]
        options = {**(job.spec.delete_options or {})}
        options["preconditions"] = {**(options.get("preconditions") or {}), "uid": metadata["uid"]}
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
            "deleteOptions": options,
        }
        try:
            if not metadata.get("deletionTimestamp"):
                await self.client.create(
                    PODS, eviction, metadata["namespace"], name=metadata["name"], subresource="eviction"
                )
        except NotFound:
            pass
        except TooManyRequests as error:
            await self._progress(job, _BLOCKED, str(error), condition_type=_EVICTION, node=node)
            self.queue.add_after(job.metadata.name, max(RETRY_SECONDS, error.retry_after or 0.0), background=True)
            return
        reference = {"namespace": metadata["namespace"], "name": metadata["name"]}
        message = f"pod {reference['namespace']}/{reference['name']} evicted from node {pod['spec'].get('nodeName')}"
        reserved = ("ReservationScheduled", f"reservation {rules.reservation_name(job)} is available on node {node}")
        await self._progress(
            job,
            "Evicting",
            message,
            condition_type=_EVICTION,
            condition_status=True,
            node=node,
            passed=reserved if node else None,
        )
        self.context.recorder.event(POD_MIGRATION_JOBS, job, "Normal", "Evicting", message)

    async def _pod(self, job: PodMigrationJob) -> Document | None:
        reference = job.spec.pod_ref
        try:
            found = await self.client.get(PODS, reference.name, reference.namespace)
        except NotFound:
            return None
        return found if reference.uid in ("", found["metadata"]["uid"]) else None

    # -- status updates

    async def _progress(
        self,
        job: PodMigrationJob,
        reason: str,
        message: str,
        *,
        condition_type: str,
        condition_status: bool = False,
        node: str = "",
        passed: Passed | None = None,
    ) -> None:
        if (job.status.status, job.status.message, job.status.node_name) == (
            reason,
            message,
            node,
        ) and job.status.phase == "Running":
            return
        new = probed_condition(condition_type, condition_status, reason, message, self.context.now())
        await self._write(
            job,
            {
                "phase": "Running",
                "status": reason,
                "message": message,
                "nodeName": node or None,
                "conditions": self._conditions(job, new, passed),
            },
        )

    async def _end(
        self,
        job: PodMigrationJob,
        phase: str,
        reason: str,
        message: str,
        *,
        pod: Document | None = None,
        keep: bool = False,
        passed: Passed | None = None,
    ) -> None:
        """End the job. Unless `keep` is set, the reservation created for it is deleted."""
        if not keep and not rules.uses_given(job):
            await self._give_up_reservation(job)
        new = probed_condition("Complete", phase == "Succeeded", reason, message, self.context.now())
        status: Document = {
            "phase": phase,
            "status": "Complete" if phase == "Succeeded" else reason,
            "reason": reason,
            "message": message,
            "conditions": self._conditions(job, new, passed),
        }
        if pod is not None:
            status["podRef"] = pod
        await self._write(job, status)
        self.context.recorder.event(
            POD_MIGRATION_JOBS, job, "Normal" if phase == "Succeeded" else "Warning", reason, message
        )

    def _conditions(self, job: PodMigrationJob, new: Document, passed: Passed | None) -> list[Document]:
        conditions = with_condition(job.status.conditions, new)
        if passed is None:
            return conditions
        kind, message = passed
        done = probed_condition(kind, True, kind, message, self.context.now())
        others = [each for each in conditions if each["type"] not in (kind, new["type"])]
        return [*others, done, *(each for each in conditions if each["type"] == new["type"])]

    async def _give_up_reservation(self, job: PodMigrationJob) -> None:
        try:
            found = await self.client.get(RESERVATIONS, rules.reservation_name(job), view=Reservation)
            owner = found.metadata.controller
            if owner is not None and owner.uid == job.metadata.uid and not found.status.current_owners:
                await self.client.delete(RESERVATIONS, found.metadata.name, uid=found.metadata.uid)
        except NotFound:
            return

    async def _write(self, job: PodMigrationJob, status: Document) -> None:
        metadata = {"resourceVersion": job.metadata.resource_version, "uid": job.metadata.uid}
        await self.client.patch(
            POD_MIGRATION_JOBS, job.metadata.name, {"metadata": metadata, "status": status}, subresource="status"
        )


def _evicted(job: PodMigrationJob) -> bool:
    found = job.status.condition(_EVICTION)
    return found is not None and found.status == "True"
