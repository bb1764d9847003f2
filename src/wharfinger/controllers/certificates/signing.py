"""Signs approved requests for Kubernetes' own signers. Requests that a signer refuses get the condition Failed."""

from __future__ import annotations

import logging

from wharfinger.api.certificate_requests import BadCertificateRequest, parse_request, signer_fault
from wharfinger.api.errors import NotFound
from wharfinger.api.kinds.builtin import CERTIFICATE_SIGNING_REQUESTS
from wharfinger.api.registry import Document
from wharfinger.api.times import format_time
from wharfinger.controllers.context import ContextController, ControllerContext

log = logging.getLogger(__name__)


class CertificateSigner(ContextController[str]):
    """Does nothing without the key of a certificate authority."""

    name = "csrsigning"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        if context.signing is None:
            return
        self._requests = context.documents(CERTIFICATE_SIGNING_REQUESTS)
        self._requests.add_handler(self._seen, lambda old, new: self._seen(new))

    def _seen(self, document: Document) -> None:
        if _awaits_signature(document):
            self.queue.add(document["metadata"]["name"])

    async def reconcile(self, key: str) -> None:
        document = self._requests.get(key)
        authority = self.context.signing
        if document is None or authority is None or not _awaits_signature(document):
            return
        spec = document["spec"]
        try:
            parsed = parse_request(spec.get("request") or "")
        except BadCertificateRequest as error:
            log.warning("cannot parse certificate signing request %s: %s", key, error)
            return
        usages = spec.get("usages") or ()
        fault = signer_fault(spec.get("signerName") or "", parsed, usages)
        if fault is None:
            return
        status = dict(document.get("status") or {})
        now = self.context.now()
        if fault:
            failed = {
                "type": "Failed",
                "status": "True",
                "reason": "SignerValidationFailure",
                "message": fault,
                "lastUpdateTime": format_time(now),
            }
            status["conditions"] = [*(status.get("conditions") or ()), failed]
        else:
            status["certificate"] = authority.sign(parsed, usages, spec.get("expirationSeconds"), now)
        changed = {**document, "status": status}
        try:
            await self.client.update(CERTIFICATE_SIGNING_REQUESTS, changed, name=key, subresource="status")
        except NotFound:
            return


def _awaits_signature(document: Document) -> bool:
    status = document.get("status") or {}
    types = {condition.get("type") for condition in status.get("conditions") or ()}
    return "Approved" in types and not types & {"Denied", "Failed"} and not status.get("certificate")
