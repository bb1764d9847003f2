"""Binds claims and volumes, provisions missing volumes, and reclaims volumes whose claim was deleted.

It is kube-controller-manager's volume binder and a CSI provisioner in one, for embedded and simulated clusters. Claims of a
class with WaitForFirstConsumer are left to the scheduler, which binds a volume or selects a node.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from wharfinger.api.errors import AlreadyExists, ApiError, Conflict, NotFound
from wharfinger.api.keys import ObjectKey
from wharfinger.api.kinds.builtin import (
    CSI_DRIVERS,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    STORAGE_CLASSES,
)
from wharfinger.api.quantity import family, format_nano, parse_nano
from wharfinger.api.registry import Document
from wharfinger.api.selectors import BadSelector, matches
from wharfinger.api.times import BadTime, parse_duration
from wharfinger.api.views import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    StorageClass,
    view,
)
from wharfinger.client.events import EventKind
from wharfinger.controllers.context import ContextController, ControllerContext
from wharfinger.controllers.provision_faults import PROVISIONING, PROVISIONING_TIME
from wharfinger.controllers.volumes.provisioner import POOL, CannotProvision, Provisioned, Storage, provision
from wharfinger.plugins.volumes.rules import (
    BETA_CLASS,
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    NO_PROVISIONER,
    SELECTED_NODE,
    capacity_of,
    claim_names,
    class_of_claim,
    class_of_volume,
    fully_bound,
    refers_to,
    size_of,
    waits_for_consumer,
)

DEFAULT_CLASS = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
_ATTEMPTS = 5
RETRY = 15.0  # seconds until provisioning is retried

CLAIM: Literal["claim"] = "claim"
VOLUME: Literal["volume"] = "volume"
BinderKey = tuple[str, str, str]
"""`claim` or `volume`, namespace, name."""


class VolumeBinder(ContextController[BinderKey]):
    name = "persistentvolume-binder"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        informers = context.informers
        self._claims = informers.of(PERSISTENT_VOLUME_CLAIMS, PersistentVolumeClaim)
        self._volumes = informers.of(PERSISTENT_VOLUMES, PersistentVolume)
        self._classes = informers.of(STORAGE_CLASSES, StorageClass)
        self._nodes = informers.of(NODES, Node)
        self._csi_nodes = informers.of(CSI_NODES, CSINode)
        self._drivers = informers.of(CSI_DRIVERS, CSIDriver)
        self._capacities = informers.of(CSI_STORAGE_CAPACITIES, CSIStorageCapacity)
        self._reserved = self._volumes.index("claim", _claim_of)
        self._free = self._volumes.index("free", _free_in_class)
        self._unbound = self._claims.index("unbound", _unbound_in_class)
        self._bound_to = self._claims.index("volume", _bound_to)
        self._pods = informers.of(PODS, Pod)
        self._users = self._pods.index("claims", _claims_of)
        self._ready: dict[str, float] = {}  # by claim uid: when provisioning completes
        self._pods.add_handler(self._pod_seen)
        self._claims.add_handler(self._claim_seen, lambda old, new: self._claim_seen(new), self._claim_gone)
        self._volumes.add_handler(self._volume_seen, lambda old, new: self._volume_seen(new), self._volume_gone)
        self._classes.add_handler(self._class_seen, lambda old, new: self._class_seen(new))
        self._capacities.add_handler(self._pool_seen, lambda old, new: self._pool_seen(new))

    async def reconcile(self, key: BinderKey) -> None:
        kind, namespace, name = key
        if kind == CLAIM:
            await self._claim(namespace, name)
            return
        try:
            await self._volume(name)
        except NotFound:
            return  # the volume or its claim was deleted; a deleted claim is an event

    # Claims

    async def _claim(self, namespace: str, name: str) -> None:
        claim = self._claims.get(name, namespace)
        if claim is None:
            return
        if fully_bound(claim):
            await self._bound_claim(claim)
        elif claim.metadata.deletion_timestamp:
            return
        elif claim.spec.volume_name:
            await self._bind_named(claim)
        else:
            await self._bind_any(claim)

    async def _bound_claim(self, claim: PersistentVolumeClaim) -> None:
        volume = await self._current_volume(claim.spec.volume_name)
        if volume is None or volume.spec.claim_ref is None or not refers_to(volume.spec.claim_ref, claim):
            if claim.status.phase != "Lost":
                await self._claim_status(claim, {"phase": "Lost", "capacity": None, "accessModes": None})
                why = "Bound claim has lost its PersistentVolume. Data on the volume is lost!"
                self._event(claim, "Warning", "ClaimLost", why)
            return
        await self._finish(claim, volume)

    async def _bind_named(self, claim: PersistentVolumeClaim) -> None:
        """Binds a claim to the volume that it names, if that is free or reserved for the claim, and large enough."""
        volume = self._volumes.get(claim.spec.volume_name)
        if volume is None or volume.metadata.deletion_timestamp:
            await self._pending(claim)
            return
        reference = volume.spec.claim_ref
        if (reference is None or refers_to(reference, claim)) and capacity_of(volume) >= size_of(claim):
            await self._bind(claim, volume)
        else:
            await self._pending(claim)

    async def _bind_any(self, claim: PersistentVolumeClaim) -> None:
        if claim.spec.storage_class_name is None and BETA_CLASS not in claim.metadata.annotations:
            default = self._default_class()
            if default is not None:
                await self._patch_claim(claim, {"spec": {"storageClassName": default.metadata.name}})
                return
        storage_class = self._classes.get(class_of_claim(claim))
        waits = waits_for_consumer(storage_class)
        volume = self._matching(claim, reserved_only=waits)
        if volume is not None:
            await self._bind(claim, volume)
            return
        await self._pending(claim)
        selected = claim.metadata.annotations.get(SELECTED_NODE)
        if waits and selected is None:
            self._explain_waiting(claim)
        elif not class_of_claim(claim):
            why = "no persistent volumes available for this claim and no storage class is set"
            self._event(claim, "Normal", "FailedBinding", why)
        if storage_class is None or storage_class.provisioner in ("", NO_PROVISIONER):
            return
        if not waits or selected is not None:
            await self._provision(claim, storage_class, selected if waits else None)

    def _explain_waiting(self, claim: PersistentVolumeClaim) -> None:
        """As upstream's emitEventForUnboundDelayBindingClaim."""
        waiting = sorted(
            pod.metadata.name
            for pod in self._users.get(claim.metadata.key)
            if not pod.terminal and not pod.spec.node_name
        )
        if not waiting:
            why = "waiting for first consumer to be created before binding"
            self._event(claim, "Normal", "WaitForFirstConsumer", why)
            return
        pods = f"pods {','.join(waiting)}" if len(waiting) > 1 else f"pod {waiting[0]}"
        self._event(claim, "Normal", "WaitForPodScheduled", f"waiting for {pods} to be scheduled")

    def _pod_seen(self, pod: Pod) -> None:
        """The claims of a new pod say that they wait for it; upstream looks again every 15 seconds."""
        if not pod.spec.node_name:
            for namespace, name in _claims_of(pod):
                claim = self._claims.get(name, namespace)
                if claim is not None and not fully_bound(claim):
                    self.queue.add((CLAIM, namespace, name))

    def _matching(self, claim: PersistentVolumeClaim, *, reserved_only: bool) -> PersistentVolume | None:
        """The volume reserved for the claim, or else the smallest suitable free volume."""
        reserved = [
            each for each in self._reserved.get(claim.metadata.key) if _refers(each, claim) and _suits(each, claim)
        ]
        if reserved or reserved_only:
            return min(reserved, key=_smallest, default=None)
        try:
            selector = None if claim.spec.selector is None else claim.spec.selector.compile()
        except BadSelector:
            return None
        fitting = (
            each
            for each in self._free.get(class_of_claim(claim))
            if _suits(each, claim)
            and set(claim.spec.access_modes) <= set(each.spec.access_modes)
            and (selector is None or matches(selector, each.metadata.labels))
        )
        return min(fitting, key=_smallest, default=None)

    async def _bind(self, claim: PersistentVolumeClaim, volume: PersistentVolume) -> None:
        """Writes the volume first: after a crash in between, the volume is reserved for the claim."""
        metadata: Document = {"resourceVersion": volume.metadata.resource_version}
        reference = volume.spec.claim_ref
        if reference is None or not reference.uid:
            own = claim.metadata
            if reference is None:
                metadata["annotations"] = {BOUND_BY_CONTROLLER: "yes"}
            named = {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": own.namespace,
                "name": own.name,
                "uid": own.uid,
                "resourceVersion": own.resource_version,
            }
            change = {"metadata": metadata, "spec": {"claimRef": named}}
            document = await self.client.patch(PERSISTENT_VOLUMES, volume.metadata.name, change)
            volume = view(document, PersistentVolume)
        annotations = {BIND_COMPLETED: "yes"}
        change = {}
        if not claim.spec.volume_name:
            annotations[BOUND_BY_CONTROLLER] = "yes"
            change["spec"] = {"volumeName": volume.metadata.name}
        bound = await self._patch_claim(claim, {"metadata": {"annotations": annotations}, **change})
        self._ready.pop(claim.metadata.uid, None)
        await self._finish(bound, volume)

    async def _finish(self, claim: PersistentVolumeClaim, volume: PersistentVolume) -> None:
        """Sets the phase of both to Bound."""
        if volume.status.phase != "Bound":
            await self._volume_status(volume, "Bound")
        if claim.status.phase != "Bound":
            status = {
                "phase": "Bound",
                "accessModes": list(volume.spec.access_modes),
                "capacity": dict(volume.spec.capacity),
            }
            await self._claim_status(claim, status)

    async def _pending(self, claim: PersistentVolumeClaim) -> None:
        if claim.status.phase != "Pending":
            await self._claim_status(claim, {"phase": "Pending"})

    def _default_class(self) -> StorageClass | None:
        """The newest default class, as upstream; ties are broken by name."""
        marked = [
            each
            for each in self._classes
            if any(each.metadata.annotations.get(name) == "true" for name in DEFAULT_CLASS)
        ]
        marked.sort(key=lambda each: each.metadata.name)
        return max(marked, key=lambda each: each.metadata.creation_timestamp, default=None)

    # Provisioning

    async def _provision(
        self, claim: PersistentVolumeClaim, storage_class: StorageClass, node_name: str | None
    ) -> None:
        annotations = {**storage_class.metadata.annotations, **claim.metadata.annotations}
        if not self._provisioning_time_passed(claim, annotations.get(PROVISIONING_TIME, "")):
            return
        try:
            if annotations.get(PROVISIONING) == "fail" or self.context.provision_faults.fails():
                raise CannotProvision("injected failure")
            made = provision(claim, storage_class, node_name, self._storage())
        except CannotProvision as why:
            await self._report_failure(claim, storage_class, str(why))
            return
        document = await self._create(made, size_of(claim))
        volume = view(document, PersistentVolume)
        self._event(claim, "Normal", "ProvisioningSucceeded", f"Successfully provisioned volume {volume.metadata.name}")
        await self._bind(claim, volume)

    async def _create(self, made: Provisioned, size: int) -> Document:
        """Creates the volume. The capacity is reduced first, so that it cannot be used twice."""
        if made.pool is not None:
            await self._change_capacity(made.pool, -size)
        try:
            return await self.client.create(PERSISTENT_VOLUMES, made.volume)
        except ApiError as error:
            # Rejected, or created and counted before a restart. If the outcome is unknown, the capacity stays reduced.
            if made.pool is not None and error.code < 500:
                await self._release_capacity(made.pool.metadata.key, size)
            if not isinstance(error, AlreadyExists):
                raise
            return await self.client.get(PERSISTENT_VOLUMES, made.volume["metadata"]["name"])

    def _provisioning_time_passed(self, claim: PersistentVolumeClaim, text: str) -> bool:
        """Whether the simulated provisioning time has passed; otherwise the claim is requeued."""
        if not text:
            return True
        if text == "never":
            return False
        try:
            needed = parse_duration(text)
        except BadTime:
            return True
        now = self.context.now()
        until = self._ready.setdefault(claim.metadata.uid, now + needed)
        if until > now:
            self.queue.add_after((CLAIM, *claim.metadata.key), until - now)
            return False
        return True

    async def _report_failure(self, claim: PersistentVolumeClaim, storage_class: StorageClass, why: str) -> None:
        """Lets the scheduler select another node; without a selected node, provisioning is retried later."""
        self._ready.pop(claim.metadata.uid, None)
        message = f'failed to provision volume with StorageClass "{storage_class.metadata.name}": {why}'
        self._event(claim, "Warning", "ProvisioningFailed", message)
        if SELECTED_NODE in claim.metadata.annotations:
            await self._patch_claim(claim, {"metadata": {"annotations": {SELECTED_NODE: None}}})
        else:
            self.queue.add_after((CLAIM, *claim.metadata.key), RETRY, background=True)

    def _storage(self) -> Storage:
        return Storage(self._nodes.items, self._csi_nodes.items, self._drivers.items, self._capacities.items)

    async def _change_capacity(self, pool: CSIStorageCapacity, change: int) -> None:
        """Changes the free capacity by so many nano-bytes. Raises Conflict if it changed in the meantime."""
        if pool.capacity is None:
            return
        left = format_nano(max(parse_nano(pool.capacity) + change, 0), family(pool.capacity))
        metadata = pool.metadata
        patch = {"metadata": {"resourceVersion": metadata.resource_version}, "capacity": left}
        await self.client.patch(CSI_STORAGE_CAPACITIES, metadata.name, patch, metadata.namespace)

    async def _release_capacity(self, pool: ObjectKey, size: int) -> None:
        """Reads from the server, since the cache may be stale and a conflict would not be retried by others."""
        for _ in range(_ATTEMPTS):
            try:
                found = await self.client.get(CSI_STORAGE_CAPACITIES, pool[1], pool[0], view=CSIStorageCapacity)
                await self._change_capacity(found, size)
            except NotFound:
                return
            except Conflict:
                continue
            return

    # Volumes

    async def _volume(self, name: str) -> None:
        """Reconciles a volume, also one that is being deleted: pv-protection reads its phase."""
        volume = self._volumes.get(name)
        if volume is None:
            return
        reference = volume.spec.claim_ref
        if reference is None or not reference.uid:
            if volume.status.phase != "Available":
                await self._volume_status(volume, "Available")
            return
        claim = await self._current_claim(reference.namespace, reference.name)
        if claim is not None and claim.metadata.uid == reference.uid:
            if fully_bound(claim) and claim.spec.volume_name == name:
                await self._finish(claim, volume)
            return
        delete = volume.spec.persistent_volume_reclaim_policy == "Delete"
        if delete:
            await self._reclaim_capacity(volume)  # before the phase allows its deletion
        if volume.status.phase != "Released":
            await self._volume_status(volume, "Released")
        if delete and not volume.metadata.deletion_timestamp:
            await self.client.delete(PERSISTENT_VOLUMES, name, uid=volume.metadata.uid)

    async def _reclaim_capacity(self, volume: PersistentVolume) -> None:
        """Releases the capacity once, whoever deletes the volume: the annotation is removed first."""
        own = volume.metadata
        namespace, _, pool = own.annotations.get(POOL, "").partition("/")
        if pool:
            metadata = {"resourceVersion": own.resource_version, "annotations": {POOL: None}}
            await self.client.patch(PERSISTENT_VOLUMES, own.name, {"metadata": metadata})
            await self._release_capacity((namespace, pool), capacity_of(volume))

    # Reads and writes

    async def _current_claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        """The claim from the cache, or else from the server: it may be new."""
        found = self._claims.get(name, namespace)
        if found is not None:
            return found
        try:
            return await self.client.get(PERSISTENT_VOLUME_CLAIMS, name, namespace, view=PersistentVolumeClaim)
        except NotFound:
            return None

    async def _current_volume(self, name: str) -> PersistentVolume | None:
        found = self._volumes.get(name)
        if found is not None:
            return found
        try:
            return await self.client.get(PERSISTENT_VOLUMES, name, view=PersistentVolume)
        except NotFound:
            return None

    async def _patch_claim(self, claim: PersistentVolumeClaim, change: Document) -> PersistentVolumeClaim:
        own = claim.metadata
        metadata = {**change.get("metadata", {}), "resourceVersion": own.resource_version}
        patch = {**change, "metadata": metadata}
        document = await self.client.patch(PERSISTENT_VOLUME_CLAIMS, own.name, patch, own.namespace)
        return view(document, PersistentVolumeClaim)

    async def _claim_status(self, claim: PersistentVolumeClaim, status: Document) -> None:
        own = claim.metadata
        patch = {"metadata": {"uid": own.uid}, "status": status}
        await self.client.patch(PERSISTENT_VOLUME_CLAIMS, own.name, patch, own.namespace, subresource="status")

    async def _volume_status(self, volume: PersistentVolume, phase: str) -> None:
        own = volume.metadata
        patch = {"metadata": {"uid": own.uid}, "status": {"phase": phase}}
        await self.client.patch(PERSISTENT_VOLUMES, own.name, patch, subresource="status")

    def _event(self, claim: PersistentVolumeClaim, type: EventKind, reason: str, message: str) -> None:
        self.context.recorder.event(PERSISTENT_VOLUME_CLAIMS, claim, type, reason, message)

    # Informer events

    def _claim_seen(self, claim: PersistentVolumeClaim) -> None:
        self.queue.add((CLAIM, *claim.metadata.key))

    def _claim_gone(self, claim: PersistentVolumeClaim) -> None:
        self._ready.pop(claim.metadata.uid, None)
        for volume in self._reserved.get(claim.metadata.key):
            self.queue.add((VOLUME, "", volume.metadata.name))

    def _volume_seen(self, volume: PersistentVolume) -> None:
        self.queue.add((VOLUME, "", volume.metadata.name))
        reference = volume.spec.claim_ref
        if reference is not None:
            self.queue.add((CLAIM, reference.namespace, reference.name))
        elif volume.status.phase == "Available":  # a claim that names the volume may wait for it
            self._enqueue(self._bound_to.get(volume.metadata.name))
            self._enqueue(self._unbound.get(class_of_volume(volume)))

    def _volume_gone(self, volume: PersistentVolume) -> None:
        self._enqueue(self._bound_to.get(volume.metadata.name))

    def _class_seen(self, storage_class: StorageClass) -> None:
        self._enqueue(claim for claim in self._claims if not claim.spec.volume_name)

    def _pool_seen(self, pool: CSIStorageCapacity) -> None:
        self._enqueue(self._unbound.get(pool.storage_class_name))

    def _enqueue(self, claims: Iterable[PersistentVolumeClaim]) -> None:
        for claim in claims:
            self.queue.add((CLAIM, *claim.metadata.key))


def _claim_of(volume: PersistentVolume) -> list[ObjectKey]:
    reference = volume.spec.claim_ref
    return [] if reference is None else [(reference.namespace, reference.name)]


def _free_in_class(volume: PersistentVolume) -> list[str]:
    free = volume.spec.claim_ref is None and volume.status.phase == "Available"
    return [class_of_volume(volume)] if free else []


def _unbound_in_class(claim: PersistentVolumeClaim) -> list[str]:
    return [] if claim.spec.volume_name else [class_of_claim(claim)]


def _bound_to(claim: PersistentVolumeClaim) -> list[str]:
    return [claim.spec.volume_name] if claim.spec.volume_name else []


def _refers(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    return volume.spec.claim_ref is not None and refers_to(volume.spec.claim_ref, claim)


def _suits(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    return (
        capacity_of(volume) >= size_of(claim)
        and volume.spec.volume_mode == claim.spec.volume_mode
        and volume.spec.volume_attributes_class_name == claim.spec.volume_attributes_class_name
        and not volume.metadata.deletion_timestamp
    )


def _smallest(volume: PersistentVolume) -> tuple[int, str]:
    return capacity_of(volume), volume.metadata.name


def _claims_of(pod: Pod) -> Iterable[ObjectKey]:
    return [(pod.metadata.namespace, name) for name in claim_names(pod)] if pod.spec.volumes else ()
