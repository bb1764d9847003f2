"""The pvc-protection and pv-protection controllers: remove the finalizer of claims and volumes that are being deleted, once
they are unused.

For embedded and simulated clusters. Admission adds the finalizers; here they are added only to objects without them.
"""

from __future__ import annotations

from typing import Final

from wharfinger.admission.storage_protection import CLAIM_PROTECTION, VOLUME_PROTECTION
from wharfinger.api.errors import ApiError, NotFound
from wharfinger.api.keys import ObjectKey
from wharfinger.api.kinds.builtin import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS
from wharfinger.api.registry import Resource
from wharfinger.api.views import PersistentVolume, PersistentVolumeClaim, Pod
from wharfinger.api.views.meta import ObjectMeta
from wharfinger.client.interface import Client
from wharfinger.controllers.context import ContextController, ControllerContext
from wharfinger.plugins.volumes.rules import claim_name, claim_names, not_created_for

BOUND: Final = "Bound"


class ClaimProtection(ContextController[str]):
    """Keys are namespaces, so that the pods are listed once for all pending claims of a namespace."""

    name = "pvc-protection"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._claims = context.informers.of(PERSISTENT_VOLUME_CLAIMS, PersistentVolumeClaim)
        self._pods = context.pods
        self._users = self._pods.index("claims", _claims_of)
        self._due: dict[str, set[str]] = {}  # by namespace: claims to check
        self._claims.add_handler(self._claim_seen, lambda old, new: self._claim_seen(new))
        self._pods.add_handler(self._pod_seen, lambda old, new: self._pod_seen(new), self._pod_gone)

    async def reconcile(self, key: str) -> None:
        due = self._due.pop(key, set())
        live: list[Pod] | None = None
        failure: ApiError | None = None
        for name in sorted(due):
            claim = self._claims.get(name, key)
            if claim is None:
                continue
            try:
                if _lacks(claim.metadata, CLAIM_PROTECTION):
                    await _protect(self.client, PERSISTENT_VOLUME_CLAIMS, claim.metadata, CLAIM_PROTECTION)
                elif _is_deleted(claim.metadata, CLAIM_PROTECTION) and not _used(claim, self._users.get((key, name))):
                    if live is None:  # the cache may lack a pod that uses the claim
                        live = list((await self.client.list(PODS, key, view=Pod)).items)
                    if not _used(claim, live):
                        await _release(self.client, PERSISTENT_VOLUME_CLAIMS, claim.metadata, CLAIM_PROTECTION)
            except ApiError as error:
                self._due.setdefault(key, set()).add(name)
                failure = error
        if failure is not None:
            raise failure

    def _claim_seen(self, claim: PersistentVolumeClaim) -> None:
        if _lacks(claim.metadata, CLAIM_PROTECTION) or _is_deleted(claim.metadata, CLAIM_PROTECTION):
            self._check(*claim.metadata.key)

    def _pod_seen(self, pod: Pod) -> None:
        if pod.spec.volumes and (not pod.spec.node_name or _shut_down(pod)):
            self._pod_gone(pod)

    def _pod_gone(self, pod: Pod) -> None:
        """Checks the claims of the pod that are being deleted."""
        namespace = pod.metadata.namespace
        for name in claim_names(pod):
            claim = self._claims.get(name, namespace)
            if claim is not None and _is_deleted(claim.metadata, CLAIM_PROTECTION):
                self._check(namespace, name)

    def _check(self, namespace: str, name: str) -> None:
        self._due.setdefault(namespace, set()).add(name)
        self.queue.add(namespace)


class VolumeProtection(ContextController[str]):
    """Keys are volumes. A volume is in use while its phase is Bound."""

    name = "pv-protection"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._volumes = context.informers.of(PERSISTENT_VOLUMES, PersistentVolume)
        self._volumes.add_handler(self._seen, lambda old, new: self._seen(new))

    async def reconcile(self, key: str) -> None:
        volume = self._volumes.get(key)
        if volume is None:
            return
        if _lacks(volume.metadata, VOLUME_PROTECTION):
            await _protect(self.client, PERSISTENT_VOLUMES, volume.metadata, VOLUME_PROTECTION)
        elif _is_deleted(volume.metadata, VOLUME_PROTECTION) and volume.status.phase != BOUND:
            await _release(self.client, PERSISTENT_VOLUMES, volume.metadata, VOLUME_PROTECTION)

    def _seen(self, volume: PersistentVolume) -> None:
        if _lacks(volume.metadata, VOLUME_PROTECTION) or _is_deleted(volume.metadata, VOLUME_PROTECTION):
            self.queue.add(volume.metadata.name)


def _claims_of(pod: Pod) -> list[ObjectKey]:
    return [(pod.metadata.namespace, name) for name in claim_names(pod)] if pod.spec.volumes else []


def _used(claim: PersistentVolumeClaim, pods: list[Pod]) -> bool:
    return any(_uses(pod, claim) for pod in pods)


def _uses(pod: Pod, claim: PersistentVolumeClaim) -> bool:
    """Whether the pod uses the claim. Unscheduled pods do not: the scheduler rejects pods whose claim is being deleted.

    Finished pods use it until they are deleted. A pod that only finalizers keep does not use its ephemeral claims, since
    it might wait for their deletion (upstream's pvc_protection_controller.go).
    """
    if not pod.spec.node_name:
        return False
    for volume in pod.spec.volumes:
        if claim_name(pod, volume) != claim.metadata.name:
            continue
        if volume.ephemeral is None or not (_shut_down(pod) or not_created_for(pod, claim)):
            return True
    return False


def _shut_down(pod: Pod) -> bool:
    return bool(pod.metadata.deletion_timestamp) and pod.metadata.deletion_grace_period_seconds == 0


def _lacks(metadata: ObjectMeta, finalizer: str) -> bool:
    return not metadata.deletion_timestamp and finalizer not in metadata.finalizers


def _is_deleted(metadata: ObjectMeta, finalizer: str) -> bool:
    return bool(metadata.deletion_timestamp) and finalizer in metadata.finalizers


async def _protect(client: Client, resource: Resource, metadata: ObjectMeta, finalizer: str) -> None:
    await _write(client, resource, metadata, [*metadata.finalizers, finalizer])


async def _release(client: Client, resource: Resource, metadata: ObjectMeta, finalizer: str) -> None:
    await _write(client, resource, metadata, [each for each in metadata.finalizers if each != finalizer])


async def _write(client: Client, resource: Resource, metadata: ObjectMeta, finalizers: list[str]) -> None:
    """Raises Conflict if the object changed in the meantime."""
    change = {"metadata": {"resourceVersion": metadata.resource_version, "finalizers": finalizers}}
    try:
        await client.patch(resource, metadata.name, change, metadata.namespace)
    except NotFound:
        return
