"""Deletes certificate signing requests that nobody needs any more."""

from __future__ import annotations

from base64 import b64decode

from wharfinger.api.errors import NotFound
from wharfinger.api.kinds.builtin import CERTIFICATE_SIGNING_REQUESTS
from wharfinger.api.registry import Document
from wharfinger.api.times import parse_time
from wharfinger.controllers.certificates.requests import CertificateRequestController

DECIDED = 3600.0  # seconds that issued, denied and failed requests are kept
PENDING = 24 * 3600.0  # seconds that requests without a decision, or without a certificate, are kept


class CertificateRequestCleaner(CertificateRequestController):
    name = "csrcleaner"

    async def reconcile(self, key: str) -> None:
        document = self._requests.get(key)
        due = None if document is None else deadline(document)
        if document is None or due is None:
            return
        left = due - self.context.now()
        if left > 0:
            self.queue.add_after(key, left, background=True)
            return
        try:
            await self.client.delete(CERTIFICATE_SIGNING_REQUESTS, key, uid=document["metadata"]["uid"])
        except NotFound:
            return


def deadline(document: Document) -> float | None:
    """When a request is deleted; None for never."""
    status = document.get("status") or {}
    conditions, certificate = status.get("conditions") or [], status.get("certificate") or ""
    if not conditions:
        return parse_time(document["metadata"]["creationTimestamp"]) + PENDING
    found = []
    for condition in conditions:
        if not condition.get("lastUpdateTime"):
            continue
        updated = parse_time(condition["lastUpdateTime"])
        if condition.get("type") in ("Denied", "Failed"):
            found.append(updated + DECIDED)
        elif condition.get("type") == "Approved":
            found.append(updated + (DECIDED if certificate else PENDING))
            if certificate and (expires := _expiry(certificate)) is not None:
                found.append(expires)
    return min(found, default=None)


def _expiry(certificate: str) -> float | None:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(b64decode(certificate)).not_valid_after_utc.timestamp()
    except ValueError:
        return None
