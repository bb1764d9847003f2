"""Storage object in use protection: claims and volumes get a finalizer, which a controller removes once they are unused."""

from __future__ import annotations

from wharfinger.admission.request import PASS, Request, Review
from wharfinger.api.kinds.builtin import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES

CLAIM_PROTECTION = "kubernetes.io/pvc-protection"
VOLUME_PROTECTION = "kubernetes.io/pv-protection"
_FINALIZERS = {PERSISTENT_VOLUME_CLAIMS.plural: CLAIM_PROTECTION, PERSISTENT_VOLUMES.plural: VOLUME_PROTECTION}


class StorageProtectionReviewer:
    """Mutating, on creation, as upstream's StorageObjectInUseProtection."""

    def concerns(self, group: str, plural: str, subresource: str) -> bool:
        return plural in _FINALIZERS and not group and not subresource

    def review(self, request: Request) -> Review:
        if not self.concerns(request.resource.group, request.resource.plural, request.subresource):
            return PASS
        if request.operation != "CREATE" or request.object is None:
            return PASS
        metadata = request.object["metadata"]
        given = metadata.get("finalizers") or []
        finalizer = _FINALIZERS[request.resource.plural]
        if isinstance(given, list) and finalizer not in given:  # otherwise validation reports it
            metadata["finalizers"] = [*given, finalizer]
        return PASS
