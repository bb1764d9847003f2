"""Admission of certificate signing requests: who asks, and who may approve and sign for which signer."""

from __future__ import annotations

from collections.abc import Callable

from wharfinger.admission.rbac import Attributes, RbacDecision
from wharfinger.admission.request import PASS, Request, Review, User
from wharfinger.api.certificate_requests import (
    KUBE_APISERVER_CLIENT,
    BadCertificateRequest,
    organizations,
    parse_request,
)
from wharfinger.api.kinds.builtin import CERTIFICATE_SIGNING_REQUESTS
from wharfinger.api.registry import Document
from wharfinger.api.times import format_time

_MASTERS = "system:masters"

Allowed = Callable[[Attributes], RbacDecision]


def _concerns(group: str, plural: str) -> bool:
    return (group, plural) == (CERTIFICATE_SIGNING_REQUESTS.group, CERTIFICATE_SIGNING_REQUESTS.plural)


class CertificateRequesterReviewer:
    """Records who made a request, and when its conditions were set."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now

    def concerns(self, group: str, plural: str, subresource: str) -> bool:
        return _concerns(group, plural)

    def review(self, request: Request) -> Review:
        document = request.object
        if document is None:
            return PASS
        if request.operation == "CREATE" and not request.subresource:
            spec = document.get("spec")
            document["spec"] = {**(spec if isinstance(spec, dict) else {}), **request.user.info()}
        elif request.operation == "UPDATE" and request.subresource in ("approval", "status"):
            self._set_times(document, request.old or {})
        return PASS

    def _set_times(self, document: Document, old: Document) -> None:
        conditions = (document.get("status") or {}).get("conditions")
        before = (old.get("status") or {}).get("conditions") or ()
        stamp = format_time(self._now())
        for condition in conditions if isinstance(conditions, list) else ():
            if not isinstance(condition, dict):
                continue
            if not condition.get("lastUpdateTime"):
                condition["lastUpdateTime"] = stamp
            if not condition.get("lastTransitionTime"):
                key = (condition.get("type"), condition.get("status"))
                times = (
                    each.get("lastTransitionTime") for each in before if (each.get("type"), each.get("status")) == key
                )
                condition["lastTransitionTime"] = next((time for time in times if time), stamp)


class CertificateSubjectReviewer:
    """Nobody becomes an administrator by a certificate: upstream's plugin CertificateSubjectRestriction."""

    def concerns(self, group: str, plural: str, subresource: str) -> bool:
        return _concerns(group, plural) and not subresource

    def review(self, request: Request) -> Review:
        spec = (request.object or {}).get("spec") or {}
        if request.operation != "CREATE" or spec.get("signerName") != KUBE_APISERVER_CLIENT:
            return PASS
        try:
            parsed = parse_request(spec.get("request") or "")
        except BadCertificateRequest as error:
            return request.refused(f"failed to parse CSR: {error}")
        if _MASTERS in organizations(parsed):
            return request.refused(f"use of {KUBE_APISERVER_CLIENT} signer with {_MASTERS} group is not allowed")
        return PASS


class CertificateSignerReviewer:
    """Approving and signing need the verbs `approve` and `sign` on the signer: upstream's plugins CertificateApproval and
    CertificateSigning."""

    def __init__(self, allowed: Allowed) -> None:
        self._allowed = allowed

    def concerns(self, group: str, plural: str, subresource: str) -> bool:
        return _concerns(group, plural) and subresource in ("approval", "status")

    def review(self, request: Request) -> Review:
        if request.operation != "UPDATE" or request.old is None or request.object is None:
            return PASS
        signer = (request.old.get("spec") or {}).get("signerName") or ""
        if request.subresource == "approval":
            verb = "approve"
        elif _signed_part(request.old) == _signed_part(request.object):
            return PASS
        else:
            verb = "sign"
        if self._may(request.user, verb, signer):
            return PASS
        return request.refused(f'user not permitted to {verb} requests with signerName "{signer}"')

    def _may(self, user: User, verb: str, signer: str) -> bool:
        """Whether the user may do so for this signer, or for all signers of its domain."""
        names = (signer, f"{signer.partition('/')[0]}/*")
        asked = (Attributes(user, verb, CERTIFICATE_SIGNING_REQUESTS.group, "signers", "", name) for name in names)
        return any(self._allowed(each).allowed for each in asked)


def _signed_part(document: Document) -> tuple[object, object]:
    status = document.get("status") or {}
    return status.get("certificate") or "", status.get("conditions") or []
