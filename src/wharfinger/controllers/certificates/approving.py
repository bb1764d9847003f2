"""Approves requests of kubelets for client certificates, if the requester may have one."""

from __future__ import annotations

import logging

from wharfinger.api.certificate_requests import (
    KUBELET_CLIENT,
    BadCertificateRequest,
    common_name,
    kubelet_client_fault,
    parse_request,
)
from wharfinger.api.errors import MethodNotAllowed, NotFound
from wharfinger.api.kinds.builtin import CERTIFICATE_SIGNING_REQUESTS, SUBJECT_ACCESS_REVIEWS
from wharfinger.api.registry import Document
from wharfinger.controllers.certificates.requests import CertificateRequestController

log = logging.getLogger(__name__)

_RETRY = 30.0  # seconds until a request whose requester lacks the permission is looked at again


class CertificateApprover(CertificateRequestController):
    name = "csrapproving"

    async def reconcile(self, key: str) -> None:
        document = self._requests.get(key)
        if document is None or _decided(document):
            return
        tried = _permissions(document)
        for subresource, message in tried:
            if await self._may(document, subresource):
                await self._approve(document, message)
                return
        if tried:
            self.queue.add_after(key, _RETRY, background=True)

    async def _may(self, document: Document, subresource: str) -> bool:
        spec = document["spec"]
        asked: Document = {
            "user": spec.get("username") or "",
            "uid": spec.get("uid") or "",
            "groups": spec.get("groups") or [],
            "extra": spec.get("extra") or {},
            "resourceAttributes": {
                "group": CERTIFICATE_SIGNING_REQUESTS.group,
                "resource": CERTIFICATE_SIGNING_REQUESTS.plural,
                "subresource": subresource,
                "verb": "create",
                "version": "*",
            },
        }
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": asked}
        try:
            answer = await self.client.create(SUBJECT_ACCESS_REVIEWS, review)
        except (MethodNotAllowed, NotFound):
            return False  # a simulation has no authorizer to ask
        return bool((answer.get("status") or {}).get("allowed"))

    async def _approve(self, document: Document, message: str) -> None:
        condition = {"type": "Approved", "status": "True", "reason": "AutoApproved", "message": message}
        status = dict(document.get("status") or {})
        status["conditions"] = [*(status.get("conditions") or ()), condition]
        try:
            await self.client.update(
                CERTIFICATE_SIGNING_REQUESTS,
                {**document, "status": status},
                name=document["metadata"]["name"],
                subresource="approval",
            )
        except NotFound:
            return


def _decided(document: Document) -> bool:
    status = document.get("status") or {}
    types = {condition.get("type") for condition in status.get("conditions") or ()}
    return bool(status.get("certificate") or types & {"Approved", "Denied"})


def _permissions(document: Document) -> list[tuple[str, str]]:
    """The permissions of which one is needed, with the message of the approval; none for requests of others."""
    spec = document.get("spec") or {}
    if spec.get("signerName") != KUBELET_CLIENT:
        return []
    try:
        parsed = parse_request(spec.get("request") or "")
    except BadCertificateRequest as error:
        log.warning("cannot parse certificate signing request %s: %s", document["metadata"]["name"], error)
        return []
    if kubelet_client_fault(parsed, spec.get("usages") or ()):
        return []
    found = []
    if spec.get("username") == common_name(parsed):
        text = "Auto approving self kubelet client certificate after SubjectAccessReview."
        found.append(("selfnodeclient", text))
    found.append(("nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview."))
    return found
