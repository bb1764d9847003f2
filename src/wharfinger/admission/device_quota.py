"""What ResourceClaims are charged, with the DeviceClasses and pods that this depends on."""

from __future__ import annotations

from collections.abc import Callable

from wharfinger.admission.reads import Derived, Reads
from wharfinger.api.device_quota import (
    ExtendedNames,
    device_claim_usage,
    extended_claim_owner,
    extended_names,
    is_extended_claim_of,
)
from wharfinger.api.kinds.builtin import DEVICE_CLASSES, PODS, RESOURCE_CLAIMS
from wharfinger.api.registry import Document
from wharfinger.api.resources import Amounts

PodCharge = Callable[[Document], Amounts]


class DeviceClaimCharges:
    def __init__(self, objects: Reads) -> None:
        self._objects = objects
        self._extended = Derived(
            objects, DEVICE_CLASSES, lambda found: extended_names(each.document() for each in found)
        )

    def extended(self) -> ExtendedNames:
        """The extended resources that classes serve: the same object until a class changed."""
        return self._extended.get()

    def charge(self, claim: Document, of_pod: PodCharge) -> Amounts:
        return device_claim_usage(claim, self.extended(), self._of_owner(claim, of_pod))

    def _of_owner(self, claim: Document, of_pod: PodCharge) -> Amounts:
        """What the pod is charged already for whose extended resources a scheduler made the claim."""
        owner = extended_claim_owner(claim)
        if owner is None:
            return {}
        namespace = claim["metadata"].get("namespace") or ""
        found = self._objects.peek(PODS, owner[0], namespace)
        if found is None:
            return {}
        pod = found.document()
        if pod["metadata"].get("uid") != owner[1]:
            return {}
        claims = (each.document() for each in self._objects.scan(RESOURCE_CLAIMS, namespace))
        others = [each for each in claims if extended_claim_owner(each) == owner]
        named = ((pod.get("status") or {}).get("extendedResourceClaimStatus") or {}).get("resourceClaimName")
        return of_pod(pod) if is_extended_claim_of(claim, named, others) else {}
