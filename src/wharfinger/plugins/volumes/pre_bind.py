"""Binds a pod's volumes before the pod itself is bound: what to write, and how to tell that it took effect.

The same steps and messages as upstream's bindAPIUpdate and checkBindings.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from wharfinger.api.views import Node, PersistentVolume, PersistentVolumeClaim, Pod
from wharfinger.api.views.core import ObjectReference
from wharfinger.framework.events import NODE, POD
from wharfinger.framework.prebinding import Preparation, Watched, Write
from wharfinger.framework.status import SUCCESS, Status, error
from wharfinger.plugins.volumes.catalogue import CLAIM, VOLUME, BindingPlan, VolumeCatalogue
from wharfinger.plugins.volumes.rules import (
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    fully_bound,
    refers_to,
)


class VolumesBound(Preparation):
    """Carries out the binding plan of an assumed pod."""

    def __init__(self, catalogue: VolumeCatalogue, pod: Pod, node_name: str, plan: BindingPlan, timeout: float) -> None:
        self.timeout = timeout
        self._catalogue = catalogue
        self._pod, self._node = pod, node_name
        self._plan = plan
        self._old: set[tuple[str, str]] = set()  # (name, resource version) from before the writes: to be ignored
        writes = []
        for name, claim in plan.bindings:
            write = _bind_volume(catalogue.volumes[name], claim)
            if write is not None:
                self._old.add((name, catalogue.volumes[name].metadata.resource_version))
                writes.append(write)
        for claim in plan.provisions:
            write = _select_node(claim, node_name)
            if write is not None:
                self._old.add((claim.metadata.name, claim.metadata.resource_version))
                writes.append(write)
        self.writes = tuple(writes)

    def watched(self) -> Collection[Watched]:
        metadata = self._pod.metadata
        found: set[Watched] = {(POD, metadata.namespace, metadata.name), (NODE, "", self._node)}
        found.update((VOLUME, "", name) for name, _ in self._plan.bindings)
        for claim in (*(claim for _, claim in self._plan.bindings), *self._plan.provisions):
            found.add((CLAIM, *claim.metadata.key))
            current = self._catalogue.claims.get(claim.metadata.key)
            if current is not None and current.spec.volume_name:
                found.add((VOLUME, "", current.spec.volume_name))
        return found

    def expired(self) -> Status:
        return _failed("context deadline exceeded")

    def check(self) -> Status | None:
        tables = self._catalogue.tables
        row = tables.row_of.get(self._node)
        node = None if row is None else tables.nodes[row]
        if node is None:
            return _failed(f'failed to get node "{self._node}": node "{self._node}" not found')
        if self._pod.metadata.key not in tables.pods:
            return _failed(f'pod does not exist any more: pod "{self._pod.metadata.name}" not found')
        waiting = False
        for name, claim in self._plan.bindings:
            status = self._binding(name, claim, node)
            if status is not None and not status.ok:
                return status
            waiting = waiting or status is None
        for claim in self._plan.provisions:
            status = self._provisioned(claim, node)
            if status is not None and not status.ok:
                return status
            waiting = waiting or status is None
        return None if waiting else SUCCESS

    def _binding(self, name: str, claim: PersistentVolumeClaim, node: Node) -> Status | None:
        volume = self._catalogue.volumes.get(name)
        if volume is None:
            return _failed(f'failed to check binding: persistentvolumes "{name}" not found')
        current = self._catalogue.claims.get(claim.metadata.key)
        if current is None:
            return _failed(f'failed to check binding: persistentvolumeclaims "{_text(claim)}" not found')
        if (name, volume.metadata.resource_version) in self._old:
            return None
        if not self._catalogue.usable(volume, node):
            return self._mismatch(volume)
        if volume.spec.claim_ref is None or not volume.spec.claim_ref.uid:
            return _failed(f'ClaimRef got reset for pv "{name}"')
        return SUCCESS if fully_bound(current) else None

    def _provisioned(self, claim: PersistentVolumeClaim, node: Node) -> Status | None:
        current = self._catalogue.claims.get(claim.metadata.key)
        if current is None:
            return _failed(f'failed to check provisioning pvc: persistentvolumeclaims "{_text(claim)}" not found')
        metadata = current.metadata
        if (metadata.name, metadata.resource_version) in self._old:
            return None
        if not metadata.annotations:
            return _failed(f'selectedNode annotation reset for PVC "{metadata.name}"')
        if metadata.annotations.get(SELECTED_NODE) != self._node:
            # A provisioner that fails removes the annotation, so that another node is tried.
            return _failed(f'provisioning failed for PVC "{metadata.name}"')
        if current.spec.volume_name:
            volume = self._catalogue.volumes.get(current.spec.volume_name)
            if volume is None:
                return None  # not seen yet; if it was deleted, the claim will become unbound
            if not self._catalogue.usable(volume, node):
                return self._mismatch(volume)
        return SUCCESS if fully_bound(current) else None

    def _mismatch(self, volume: PersistentVolume) -> Status:
        return _failed(
            f'pv "{volume.metadata.name}" node affinity doesn\'t match node "{self._node}": no matching NodeSelectorTerms'
        )


def _failed(why: str) -> Status:
    return error(f"binding volumes: {why}")


def _bind_volume(volume: PersistentVolume, claim: PersistentVolumeClaim) -> Write | None:
    """The patch that binds a volume to a claim; None if it already is."""
    present = volume.spec.claim_ref
    own = claim.metadata
    metadata: dict[str, Any] = {"resourceVersion": volume.metadata.resource_version}
    patch: dict[str, Any] = {"metadata": metadata}
    if present is None or not refers_to(present, claim):
        if BOUND_BY_CONTROLLER not in volume.metadata.annotations:
            metadata["annotations"] = {BOUND_BY_CONTROLLER: "yes"}
    if present is None or (present.namespace, present.name, present.uid) != (own.namespace, own.name, own.uid):
        reference = ObjectReference("v1", CLAIM, own.namespace, own.name, own.uid, own.resource_version)
        patch["spec"] = {"claimRef": _document(reference)}
    return None if len(patch) == 1 and len(metadata) == 1 else Write(VOLUME, "", volume.metadata.name, patch)


def _select_node(claim: PersistentVolumeClaim, node_name: str) -> Write | None:
    metadata = claim.metadata
    if metadata.annotations.get(SELECTED_NODE) == node_name:
        return None
    patch = {"metadata": {"resourceVersion": metadata.resource_version, "annotations": {SELECTED_NODE: node_name}}}
    return Write(CLAIM, metadata.namespace, metadata.name, patch)


def _document(reference: ObjectReference) -> dict[str, str]:
    named = {
        "apiVersion": reference.api_version,
        "kind": reference.kind,
        "namespace": reference.namespace,
        "name": reference.name,
        "uid": reference.uid,
        "resourceVersion": reference.resource_version,
    }
    return {key: text for key, text in named.items() if text}


def _text(claim: PersistentVolumeClaim) -> str:
    return f"{claim.metadata.namespace}/{claim.metadata.name}"
