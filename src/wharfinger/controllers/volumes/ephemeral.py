"""Creates the claims of generic ephemeral volumes, which the pod owns."""

from __future__ import annotations

from wharfinger.api.errors import AlreadyExists, NotFound
from wharfinger.api.keys import ObjectKey
from wharfinger.api.kinds.builtin import PERSISTENT_VOLUME_CLAIMS, PODS
from wharfinger.api.object_meta import controller_reference
from wharfinger.api.registry import Document
from wharfinger.api.views import ObjectMeta, PersistentVolumeClaim, Pod, view
from wharfinger.controllers.context import ContextController, ControllerContext
from wharfinger.plugins.volumes.rules import claim_name, not_created_for


class EphemeralVolumes(ContextController[ObjectKey]):
    """Keys are pods."""

    name = "ephemeral-volume"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._pods = context.pods
        self._claims = context.informers.of(PERSISTENT_VOLUME_CLAIMS, PersistentVolumeClaim)
        self._pods.add_handler(self._seen)
        self._claims.add_handler(on_delete=self._claim_gone)

    async def reconcile(self, key: ObjectKey) -> None:
        pod = self._pods.get(key[1], key[0])
        if pod is None or pod.terminating or pod.terminal:
            return
        missing: dict[str, str] = {}
        for volume in pod.spec.volumes:
            name = claim_name(pod, volume)
            if volume.ephemeral is None or name is None:
                continue
            found = self._claims.get(name, key[0])
            if found is None:
                missing[volume.name] = name
            elif fault := not_created_for(pod, found):
                self.context.recorder.event(PODS, pod, "Warning", "FailedBinding", f"ephemeral volume {volume.name}: {fault}")  # fmt: skip
        if not missing:
            return
        try:
            document = await self.client.get(PODS, key[1], key[0])
        except NotFound:
            return
        if document["metadata"]["uid"] == pod.metadata.uid:
            for volume in document["spec"].get("volumes", ()):
                if volume["name"] in missing:
                    await self._create(document, volume, missing[volume["name"]])

    async def _create(self, pod: Document, volume: Document, name: str) -> None:
        template = volume["ephemeral"].get("volumeClaimTemplate") or {}
        given = template.get("metadata") or {}
        metadata = {
            "name": name,
            "namespace": pod["metadata"]["namespace"],
            "labels": given.get("labels") or {},
            "annotations": given.get("annotations") or {},
            "ownerReferences": [controller_reference(PODS, view(pod["metadata"], ObjectMeta))],
        }
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": metadata,
            "spec": template.get("spec") or {},
        }
        try:
            await self.client.create(PERSISTENT_VOLUME_CLAIMS, claim, pod["metadata"]["namespace"])
        except AlreadyExists:
            return  # the cache lacks it

    def _seen(self, pod: Pod) -> None:
        if any(volume.ephemeral is not None for volume in pod.spec.volumes):
            self.queue.add(pod.metadata.key)

    def _claim_gone(self, claim: PersistentVolumeClaim) -> None:
        owner = claim.metadata.controller
        if owner is not None and owner.kind == "Pod":
            self.queue.add((claim.metadata.namespace, owner.name))
