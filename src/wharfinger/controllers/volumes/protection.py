"""Keeps claims that a pod uses, and volumes that are bound, until they are free: then their finalizer goes, and so do they.

What kube-controller-manager's pvc-protection and pv-protection do, for embedded and simulated clusters. Admission adds the
finalizers; here they are added only to what was stored without them, or lost them.
"""

from __future__ import annotations

from typing import Final

from wharfinger.admission.storage_protection import CLAIM_PROTECTION, VOLUME_PROTECTION
from wharfinger.api.errors import ApiError, NotFound
from wharfinger.api.kinds.builtin import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS
from wharfinger.api.registry import Resource
from wharfinger.api.views import PersistentVolume, PersistentVolumeClaim, Pod
from wharfinger.api.views.meta import ObjectMeta
from wharfinger.client.controller import Controller
from wharfinger.client.interface import Client
from wharfinger.controllers.context import ControllerContext
from wharfinger.plugins.volumes.rules import claim_name, claim_names, not_created_for

BOUND: Final = "Bound"


class ClaimProtection(Controller[str]):
    """Keys are namespaces: the claims that are due in one share one list of its pods."""

    name = "pvc-protection"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(observer=context.observer)
        self._client = context.client
        self._claims = context.informers.of(PERSISTENT_VOLUME_CLAIMS, PersistentVolumeClaim)
        self._pods = context.informers.of(PODS, Pod)
        self._users = self._pods.index("claims", _claims_of)
        self._due: dict[str, set[str]] = {}  # by namespace, the claims to look at
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
                if _unprotected(claim.metadata, CLAIM_PROTECTION):
                    await _protect(self._client, PERSISTENT_VOLUME_CLAIMS, claim.metadata, CLAIM_PROTECTION)
                elif _leaving(claim.metadata, CLAIM_PROTECTION) and not _used(claim, self._users.get((key, name))):
                    if live is None:  # a pod that uses the claim may not have reached our copy yet
                        live = list((await self._client.list(PODS, key, view=Pod)).items)
                    if not _used(claim, live):
                        await _release(self._client, PERSISTENT_VOLUME_CLAIMS, claim.metadata, CLAIM_PROTECTION)
            except ApiError as error:
                self._due.setdefault(key, set()).add(name)
                failure = error
        if failure is not None:
            raise failure

    def _claim_seen(self, claim: PersistentVolumeClaim) -> None:
        if _unprotected(claim.metadata, CLAIM_PROTECTION) or _leaving(claim.metadata, CLAIM_PROTECTION):
            self._look_at(*claim.metadata.key)

    def _pod_seen(self, pod: Pod) -> None:
        if pod.spec.volumes and (not pod.spec.node_name or _shut_down(pod)):
            self._pod_gone(pod)

    def _pod_gone(self, pod: Pod) -> None:
        """A claim that begins to leave later is looked at then."""
        namespace = pod.metadata.namespace
        for name in claim_names(pod):
            claim = self._claims.get(name, namespace)
            if claim is not None and _leaving(claim.metadata, CLAIM_PROTECTION):
                self._look_at(namespace, name)

    def _look_at(self, namespace: str, name: str) -> None:
        self._due.setdefault(namespace, set()).add(name)
        self.queue.add(namespace)


class VolumeProtection(Controller[str]):
    """Keys are volumes. Whether one is in use is what the binder wrote into its phase."""

    name = "pv-protection"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(observer=context.observer)
        self._client = context.client
        self._volumes = context.informers.of(PERSISTENT_VOLUMES, PersistentVolume)
        self._volumes.add_handler(self._seen, lambda old, new: self._seen(new))

    async def reconcile(self, key: str) -> None:
        volume = self._volumes.get(key)
        if volume is None:
            return
        if _unprotected(volume.metadata, VOLUME_PROTECTION):
            await _protect(self._client, PERSISTENT_VOLUMES, volume.metadata, VOLUME_PROTECTION)
        elif _leaving(volume.metadata, VOLUME_PROTECTION) and volume.status.phase != BOUND:
            await _release(self._client, PERSISTENT_VOLUMES, volume.metadata, VOLUME_PROTECTION)

    def _seen(self, volume: PersistentVolume) -> None:
        if _unprotected(volume.metadata, VOLUME_PROTECTION) or _leaving(volume.metadata, VOLUME_PROTECTION):
            self.queue.add(volume.metadata.name)


def _claims_of(pod: Pod) -> list[tuple[str, str]]:
    return [(pod.metadata.namespace, name) for name in claim_names(pod)] if pod.spec.volumes else []


def _used(claim: PersistentVolumeClaim, pods: list[Pod]) -> bool:
    return any(_uses(pod, claim) for pod in pods)


def _uses(pod: Pod, claim: PersistentVolumeClaim) -> bool:
    """Whether the pod keeps the claim: it is on a node, since none may go to one with a claim that leaves.

    A pod that ended keeps it too, as long as it is there. One that only finalizers keep gives up its ephemeral claims:
    they might be what it waits for (upstream's pvc_protection_controller.go).
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


def _unprotected(metadata: ObjectMeta, finalizer: str) -> bool:
    return not metadata.deletion_timestamp and finalizer not in metadata.finalizers


def _leaving(metadata: ObjectMeta, finalizer: str) -> bool:
    return bool(metadata.deletion_timestamp) and finalizer in metadata.finalizers


async def _protect(client: Client, resource: Resource, metadata: ObjectMeta, finalizer: str) -> None:
    await _write(client, resource, metadata, [*metadata.finalizers, finalizer])


async def _release(client: Client, resource: Resource, metadata: ObjectMeta, finalizer: str) -> None:
    await _write(client, resource, metadata, [each for each in metadata.finalizers if each != finalizer])


async def _write(client: Client, resource: Resource, metadata: ObjectMeta, finalizers: list[str]) -> None:
    """Raises Conflict where the object is not the one we looked at any more."""
    change = {"metadata": {"resourceVersion": metadata.resource_version, "finalizers": finalizers}}
    try:
        await client.patch(resource, metadata.name, change, metadata.namespace)
    except NotFound:
        return
