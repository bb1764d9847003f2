"""Serves CapacityBuffers with ReservationSets: chunks of spare capacity that any pod may use, and that come back.

A pod that fits into a chunk, together with what its node has free, uses it at once. For a larger pod that waits, chunks of
one node give way; they are not kept again before the pod is bound or gone, or has not used the room for a minute.

The buffers of a namespace share its quotas, the oldest first, so they are served together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from wharfinger.api.conditions import new_condition, set_condition
from wharfinger.api.errors import AlreadyExists, NotFound
from wharfinger.api.keys import ObjectKey
from wharfinger.api.kinds.builtin import (
    DEPLOYMENTS,
    JOBS,
    POD_TEMPLATES,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
)
from wharfinger.api.node_affinity import required_node_affinity
from wharfinger.api.object_meta import controller_reference, object_key
from wharfinger.api.registry import Document
from wharfinger.api.resources import Amounts, nano, requests_nano
from wharfinger.api.taints import has_untolerated_taint
from wharfinger.api.views import Node, ObjectMeta, Pod, view
from wharfinger.controllers.context import ContextController, ControllerContext
from wharfinger.systems.reservation.controllers.buffer_quotas import BufferQuotas
from wharfinger.systems.reservation.kinds.capacity_buffer import ACTIVE_STRATEGY
from wharfinger.systems.reservation.kinds.names import CAPACITY_BUFFERS, RESERVATION_SETS, RESERVATIONS
from wharfinger.systems.reservation.kinds.views import Reservation
from wharfinger.systems.reservation.rules import buffers as rules
from wharfinger.systems.reservation.rules.buffer_quotas import Allowance, QuotaRoom, allot

GIVEN_SECONDS = 60.0  # for which a pod may leave room unused that was given to it
_WAITING: ObjectKey = ("", "")
"""The key for pods that wait. (NAMESPACE, "") is that for all buffers of a namespace, ("", NAME) that for a set whose buffer
may be gone."""
_SCALABLE = {
    (each.group, each.kind): each for each in (DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, JOBS, REPLICATION_CONTROLLERS)
}


class NotReadyBuffer(ValueError):
    """The buffer cannot be served; the message says why."""


class CapacityBufferController(ContextController[ObjectKey]):
    name = "capacitybuffer"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._buffers = context.documents(CAPACITY_BUFFERS)
        self._templates = context.documents(POD_TEMPLATES)
        self._sets = context.documents(RESERVATION_SETS)
        self._scalables = {key: context.documents(resource) for key, resource in _SCALABLE.items()}
        self._reservations = context.informers.of(RESERVATIONS, Reservation)
        self._nodes = context.nodes
        self._pods = context.pods
        self._quotas = BufferQuotas(context)
        self._given: dict[str, dict[str, int]] = {}  # by set: chunks that gave way, by uid of the pod
        self._since: dict[str, float] = {}  # by uid of the pod: when chunks last gave way to it
        self._tried: dict[str, set[str]] = {}  # by uid of the pod: nodes on which chunks gave way to it
        self._buffers.add_handler(self._enqueue, lambda old, new: self._enqueue(new), self._deleted)
        for informer in (self._templates, *self._scalables.values()):
            informer.add_handler(self._changed_in, lambda old, new: self._changed_in(new), self._changed_in)
        self._quotas.add_handler(self._changed_in_namespace)
        self._sets.add_handler(self._set_changed, lambda old, new: self._set_changed(new), self._set_changed)
        self._pods.add_handler(
            self._pod_changed, lambda old, new: self._pod_changed(new), self._pod_changed, while_any=self._buffers
        )

    # -- events

    def _enqueue(self, buffer: Document) -> None:
        self.queue.add((buffer["metadata"]["namespace"], ""))

    def _deleted(self, buffer: Document) -> None:
        self._enqueue(buffer)
        self.queue.add(("", rules.set_name(*object_key(buffer))))

    def _changed_in(self, document: Document) -> None:
        """A template or a workload changed: the buffers of its namespace may be of another size."""
        self._changed_in_namespace(document["metadata"].get("namespace", ""))

    def _changed_in_namespace(self, namespace: str) -> None:
        if any(buffer["metadata"].get("namespace", "") == namespace for buffer in self._buffers):
            self.queue.add((namespace, ""))

    def _set_changed(self, document: Document) -> None:
        if rules.BUFFER_LABEL in (document["metadata"].get("labels") or {}):
            name = document["metadata"]["name"]
            mine = [buffer for buffer in self._buffers if rules.set_name(*object_key(buffer)) == name]
            for buffer in mine:
                self._enqueue(buffer)
            if not mine:  # the buffer was deleted while no controller was running
                self.queue.add(("", name))
            self.queue.add(_WAITING)

    def _pod_changed(self, pod: Pod) -> None:
        if _waits(pod) or pod.metadata.uid in self._tried:
            self.queue.add(_WAITING)

    # -- the buffers of a namespace

    async def reconcile(self, key: ObjectKey) -> None:
        namespace, set_name = key
        if key == _WAITING:
            await self._give_way()
        elif namespace:
            await self._serve(namespace)
        elif not any(rules.set_name(*object_key(buffer)) == set_name for buffer in self._buffers):
            await self._remove_set(set_name)

    async def _serve(self, namespace: str) -> None:
        mine = [buffer for buffer in self._buffers if buffer["metadata"].get("namespace", "") == namespace]
        rooms = self._quotas.rooms(namespace)
        for buffer in sorted(mine, key=_age):
            if buffer["metadata"].get("deletionTimestamp"):
                await self._remove_set(rules.set_name(*object_key(buffer)))
            elif buffer["spec"].get("provisioningStrategy") in (None, "", ACTIVE_STRATEGY):
                await self._serve_one(buffer, rooms)

    async def _serve_one(self, buffer: Document, rooms: Sequence[QuotaRoom]) -> None:
        key = object_key(buffer)
        try:
            template, replicas = await self._template(buffer)
            chunk = rules.chunk_of(template["template"])
            allowance = allot(rooms, chunk, rules.chunks(buffer["spec"], chunk, replicas))
        except (NotReadyBuffer, rules.UnclearBuffer) as error:
            await self._remove_set(rules.set_name(*key))
            await self._write(buffer, {"replicas": None}, (False, "error", str(error)))
            return
        number = allowance.allowed
        present = await self._keep_set(key, template["template"], number)
        status = {
            "podTemplateRef": {"name": template["metadata"]["name"]},
            "podTemplateGeneration": template["metadata"].get("generation"),
            "replicas": number,
            "provisioningStrategy": buffer["spec"].get("provisioningStrategy") or ACTIVE_STRATEGY,
        }
        available = ((present or {}).get("status") or {}).get("available") or 0
        await self._write(buffer, status, (True, "AttributesSetSuccessfully", "ready"), available, allowance)

    async def _template(self, buffer: Document) -> tuple[Document, int | None]:
        """The PodTemplate of a buffer, and the replicas of its workload. Raises NotReadyBuffer."""
        spec, namespace = buffer["spec"], buffer["metadata"]["namespace"]
        if reference := spec.get("podTemplateRef"):
            found = self._templates.get(reference["name"], namespace)
            if found is None:
                raise NotReadyBuffer(f'podtemplates "{reference["name"]}" not found')
            return found, None
        if not (scalable := spec.get("scalableRef")):
            raise NotReadyBuffer("neither podTemplateRef nor scalableRef is set")
        group, kind, name = scalable.get("apiGroup") or "", scalable["kind"], scalable["name"]
        if (group, kind) not in self._scalables:
            raise NotReadyBuffer(f"kind {group}/{kind} is not supported to use pod template")
        workload = self._scalables[group, kind].get(name, namespace)
        if workload is None:
            raise NotReadyBuffer(f'{_SCALABLE[group, kind].group_plural} "{name}" not found')
        count = workload["spec"].get("parallelism" if kind == "Job" else "replicas")
        return await self._own_template(buffer, workload["spec"]["template"]), 1 if count is None else count

    async def _own_template(self, buffer: Document, template: Document) -> Document:
        """The PodTemplate that is kept for a buffer of a workload, as the workload has it now."""
        namespace, name = buffer["metadata"]["namespace"], rules.template_name(buffer["metadata"]["name"])
        metadata = {key: value for key, value in (template.get("metadata") or {}).items() if value}
        wanted = {"metadata": metadata, "spec": template["spec"]}
        found = self._templates.get(name, namespace)
        if found is None:
            owner = controller_reference(CAPACITY_BUFFERS, view(buffer["metadata"], ObjectMeta))
            document = {
                "apiVersion": "v1",
                "kind": "PodTemplate",
                "metadata": {"name": name, "namespace": namespace, "ownerReferences": [owner]},
                "template": wanted,
            }
            try:
                return await self.client.create(POD_TEMPLATES, document, namespace)
            except AlreadyExists:
                found = await self.client.get(POD_TEMPLATES, name, namespace)
        kept = {key: value for key, value in (found["template"].get("metadata") or {}).items() if value}
        if kept.get("labels") == metadata.get("labels") and found["template"]["spec"] == wanted["spec"]:
            return found
        return await self.client.update(POD_TEMPLATES, {**found, "template": wanted}, namespace)

    async def _keep_set(self, key: ObjectKey, template: Document, number: int) -> Document | None:
        """Makes the set of a buffer what it should be; returns it as it was before."""
        name = rules.set_name(*key)
        target = max(number - sum(self._given.get(name, {}).values()), 0)
        wanted = rules.reservation_set(*key, template, target)
        found = self._sets.get(name)
        if found is None:
            with suppress(AlreadyExists):
                await self.client.create(RESERVATION_SETS, wanted)
            return None
        if any(found["spec"].get(field) != value for field, value in wanted["spec"].items()):
            with suppress(NotFound):
                current = await self.client.get(RESERVATION_SETS, name)
                await self.client.update(RESERVATION_SETS, {**current, "spec": {**current["spec"], **wanted["spec"]}})
        return found

    async def _remove_set(self, name: str) -> None:
        self._given.pop(name, None)
        found = self._sets.get(name)
        if found is not None and rules.BUFFER_LABEL in (found["metadata"].get("labels") or {}):
            with suppress(NotFound):
                await self.client.delete(RESERVATION_SETS, name, uid=found["metadata"]["uid"])

    async def _write(
        self,
        buffer: Document,
        status: Document,
        ready: tuple[bool, str, str],
        available: int = 0,
        allowance: Allowance | None = None,
    ) -> None:
        """`available` is the number of chunks that hold room; without an allowance the buffer is not ready."""
        old, now = buffer.get("status") or {}, self.context.now()
        generation = buffer["metadata"].get("generation", 0)
        found = {"ReadyForProvisioning": ready, "Provisioning": _provisioning(available, allowance)}
        if allowance is not None:
            found["LimitedByQuotas"] = (allowance.limited, "ResourceQuotasAllocated", allowance.message)
        conditions = list(old.get("conditions") or ())
        for kind, told in found.items():
            new = {**new_condition(kind, *told, now), "observedGeneration": generation}
            conditions = set_condition(conditions, new)
        made: dict[str, Any] = {**status, "conditions": conditions}
        if any(old.get(field) != value for field, value in made.items()):
            metadata = buffer["metadata"]
            patch = {"metadata": {"uid": metadata["uid"]}, "status": made}
            with suppress(NotFound):
                await self.client.patch(
                    CAPACITY_BUFFERS, metadata["name"], patch, metadata["namespace"], subresource="status"
                )

    # -- pods that need more than a chunk

    async def _give_way(self) -> None:
        now = self.context.now()
        waiting = sorted((pod for pod in self._pods if _waits(pod)), key=_importance)
        self._take_back({pod.metadata.uid for pod in waiting}, now)
        held = self._chunks()
        for pod in waiting if held else ():
            found = self._place_for(pod, held)
            if found is None:
                continue
            node, names = found
            uid = pod.metadata.uid
            self._tried.setdefault(uid, set()).add(node)
            self._since[uid] = now
            for reservation in [each for each in held[node] if each.metadata.name in names]:
                await self._release(reservation, uid)
                held[node].remove(reservation)
            self.queue.add_after(_WAITING, GIVEN_SECONDS + 0.001, background=True)

    def _take_back(self, waiting: set[str], now: float) -> None:
        """Room that was given to pods that wait no longer, or do not use it, is kept free again."""
        for uid in [uid for uid, since in self._since.items() if uid not in waiting or now > since + GIVEN_SECONDS]:
            del self._since[uid]
            for given in self._given.values():
                given.pop(uid, None)
            for buffer in self._buffers:
                self._enqueue(buffer)
        for uid in [uid for uid in self._tried if uid not in waiting]:
            del self._tried[uid]

    def _chunks(self) -> dict[str, list[Reservation]]:
        """The chunks that hold room and are not used, by node."""
        found: dict[str, list[Reservation]] = {}
        for each in self._reservations:
            unused = each.phase == "Available" and not each.status.current_owners and not each.terminating
            if unused and rules.BUFFER_LABEL in each.metadata.labels:
                found.setdefault(each.status.node_name, []).append(each)
        return found

    def _place_for(self, pod: Pod, held: Mapping[str, list[Reservation]]) -> tuple[str, list[str]] | None:
        """The node on which the fewest chunks have to give way to the pod, and these chunks."""
        affinity, needs = required_node_affinity(pod.spec), requests_nano(pod)
        best: tuple[int, str, list[str]] | None = None
        for name, chunks in held.items():
            node = self._nodes.get(name)
            if node is None or node.spec.unschedulable or name in self._tried.get(pod.metadata.uid, ()):
                continue
            if not affinity.matches(node) or has_untolerated_taint(pod.spec.tolerations, node.spec.taints):
                continue
            sizes = [(each.metadata.name, nano(each.status.allocatable)) for each in chunks]
            names = rules.giving_way(needs, self._free(node), sizes)
            if names and (best is None or (len(names), name) < best[:2]):
                best = (len(names), name, names)
        return None if best is None else (best[1], best[2])

    def _free(self, node: Node) -> Amounts:
        name = node.metadata.name
        pods = [requests_nano(pod) for pod in self._pods if pod.spec.node_name == name and not pod.terminal]
        reserved = [
            nano(each.status.allocatable)
            for each in self._reservations
            if each.holds and each.status.node_name == name and not each.status.current_owners
        ]
        taken = rules.total([*pods, *reserved])
        return {key: amount - taken.get(key, 0) for key, amount in nano(node.status.allocatable).items()}

    async def _release(self, reservation: Reservation, uid: str) -> None:
        """The set is made smaller first, so that nothing takes the room again."""
        owner = reservation.metadata.controller
        if owner is None:
            return
        given = self._given.setdefault(owner.name, {})
        given[uid] = given.get(uid, 0) + 1
        with suppress(NotFound):
            found = await self.client.get(RESERVATION_SETS, owner.name)
            fewer = max(found["spec"].get("replicas", 1) - 1, 0)
            await self.client.patch(RESERVATION_SETS, owner.name, {"spec": {"replicas": fewer}})
            await self.client.delete(RESERVATIONS, reservation.metadata.name, uid=reservation.metadata.uid)


def _waits(pod: Pod) -> bool:
    if pod.spec.node_name or pod.terminal or pod.terminating:
        return False
    return any(
        each.type == "PodScheduled" and each.status == "False" and each.reason == "Unschedulable"
        for each in pod.status.conditions
    )


def _importance(pod: Pod) -> tuple[int, str, ObjectKey]:
    return -(pod.spec.priority or 0), pod.metadata.creation_timestamp, pod.metadata.key


def _age(buffer: Document) -> tuple[str, str]:
    """The order in which buffers get their share of quotas: the oldest first."""
    return buffer["metadata"].get("creationTimestamp", ""), buffer["metadata"]["name"]


def _provisioning(available: int, allowance: Allowance | None) -> tuple[bool, str, str]:
    """Status, reason and message of the condition."""
    if allowance is None:
        return False, "NotReadyForProvisioning", "CapacityBuffer is not ready for provisioning"
    wanted = allowance.allowed
    if not wanted:
        return False, "BufferIsEmpty", "CapacityBuffer has zero replicas"
    text = f"{min(available, wanted)} of {wanted} chunks hold room"
    return available >= wanted, "ReservationsAvailable" if available >= wanted else "ReservationsPending", text
