"""Preparation of ResourceClaims: a simulated kubelet starts a pod once its claims are allocated and reserved for it."""

from __future__ import annotations

from collections.abc import Callable

from wharfinger.api.kinds.builtin import RESOURCE_CLAIMS
from wharfinger.api.registry import Document
from wharfinger.api.views import Pod
from wharfinger.client.informer import Informer, InformerSet
from wharfinger.devices.pod_claims import claim_keys, claim_name, is_made_for, is_reserved_for

_DOCUMENT: type[Document] = dict


class ClaimPreparation:
    """Calls `again` with the pods that a changed claim belongs to."""

    def __init__(self, informers: InformerSet, pods: Informer[Pod], again: Callable[[Pod], None]) -> None:
        self._claims = informers.of(RESOURCE_CLAIMS, _DOCUMENT)
        self._by_claim = pods.index("resourceclaims", claim_keys)
        self._again = again
        self._claims.add_handler(self._changed, lambda old, new: self._changed(new))

    def prepared(self, pod: Pod) -> bool:
        for entry in pod.spec.resource_claims:
            name = claim_name(pod, entry)
            if name is None:
                return False
            if not name:
                continue  # no claim is needed
            claim = self._claims.get(name, pod.metadata.namespace)
            if claim is None or (claim.get("status") or {}).get("allocation") is None:
                return False
            if entry.resource_claim_template_name is not None and not is_made_for(claim, pod):
                return False
            if not is_reserved_for(claim, pod):
                return False
        return self._extended_prepared(pod)

    def _extended_prepared(self, pod: Pod) -> bool:
        extended = pod.status.extended_resource_claim_status
        if extended is None:
            return True
        claim = self._claims.get(extended.resource_claim_name, pod.metadata.namespace)
        return claim is not None and is_reserved_for(claim, pod)

    def _changed(self, claim: Document) -> None:
        metadata = claim["metadata"]
        for pod in self._by_claim.get((metadata.get("namespace") or "", metadata["name"])):
            if pod.spec.node_name:
                self._again(pod)
