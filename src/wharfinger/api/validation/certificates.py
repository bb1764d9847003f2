"""Validation of certificate signing requests, for the object and for its subresources."""

from __future__ import annotations

from collections.abc import Iterator

from wharfinger.api.certificate_requests import (
    LEGACY_UNKNOWN,
    BadCertificateRequest,
    certificate_fault,
    parse_request,
)
from wharfinger.api.fields import FieldError, duplicate, forbidden, invalid, not_supported, required, too_long
from wharfinger.api.names import dns_label, dns_subdomain
from wharfinger.api.registry import Document
from wharfinger.api.validation.common import Rules

USAGES = (
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
)
_DECISIONS = ("Approved", "Denied")
_FINAL = (*_DECISIONS, "Failed")
_MINIMUM_SECONDS = 600


def request_rules(subresource: str = "") -> Rules:
    """The rules of a write to the object, or to its subresource `status` or `approval`."""

    def rules(document: Document, old: Document | None) -> Iterator[FieldError]:
        yield from _spec_faults(document.get("spec") or {}, (old or {}).get("spec") or {})
        yield from _condition_faults(_conditions(document), [] if old is None else _conditions(old))
        yield from _certificate_faults(document, old)
        if old is not None:
            yield from _update_faults(document, old, subresource)

    return rules


def _spec_faults(spec: Document, before: Document) -> Iterator[FieldError]:
    """`before` is the stored spec, whose faults are tolerated; empty on create."""
    request = spec.get("request") or ""
    try:
        parse_request(request)
    except BadCertificateRequest as error:
        yield invalid("spec.request", request, str(error))
    usages, known = spec.get("usages") or [], before.get("usages") or []
    if not usages:
        yield required("spec.usages")
    if all(usage in USAGES for usage in known):
        for index, usage in enumerate(usages):
            if usage not in USAGES:
                yield not_supported(f"spec.usages[{index}]", usage, USAGES)
    if len(set(known)) == len(known):
        for index, usage in enumerate(usages):
            if usage in usages[:index]:
                yield duplicate(f"spec.usages[{index}]", usage)
    signer = spec.get("signerName") or ""
    if signer == LEGACY_UNKNOWN and before.get("signerName") != LEGACY_UNKNOWN:
        yield invalid("spec.signerName", signer, "the legacy signerName is not allowed via this API version")
    else:
        yield from signer_name_faults(signer, "spec.signerName")
    seconds = spec.get("expirationSeconds")
    if seconds is not None and seconds < _MINIMUM_SECONDS:
        text = "may not specify a duration less than 600 seconds (10 minutes)"
        yield invalid("spec.expirationSeconds", seconds, text)


def signer_name_faults(name: str, path: str) -> Iterator[FieldError]:
    if not name:
        yield required(path)
        return
    domain, slash, rest = name.partition("/")
    if not slash or "/" in rest:
        text = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        yield invalid(path, name, text)
        return
    if len(domain) > 253:
        yield too_long(path, 253)
    labels = domain.split(".")
    for label in labels:
        if faults := dns_label(label):
            yield from (invalid(path, domain, f'validating label "{label}": {fault}') for fault in faults)
            break
    if len(labels) < 2:
        yield invalid(path, domain, "should be a domain with at least two segments separated by dots")
    for label in rest.split("."):
        if faults := dns_subdomain(label):
            yield from (invalid(path, rest, f'validating label "{label}": {fault}') for fault in faults)
            break
    limit = 253 + 1 + 63 * 5  # a domain, a slash and a path, as upstream limits them
    if len(name) > limit:
        yield too_long(path, limit)


def _conditions(document: Document) -> list[Document]:
    return list((document.get("status") or {}).get("conditions") or ())


def _condition_faults(conditions: list[Document], old: list[Document]) -> Iterator[FieldError]:
    path = "status.conditions"
    before = [condition.get("type") or "" for condition in old]
    both = set(_DECISIONS) <= set(before)
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        here, type, status = f"{path}[{index}]", condition.get("type") or "", condition.get("status") or ""
        if not type and "" not in before:
            yield required(f"{here}.type")
        allowed = ("True",) if type in _FINAL else ("False", "True", "Unknown")
        if not status:
            yield required(f"{here}.status")
        elif status not in allowed:
            yield not_supported(f"{here}.status", status, allowed)
        other = {"Approved": "Denied", "Denied": "Approved"}.get(type)
        if not both and other in seen:
            yield invalid(path, type, "Approved and Denied conditions are mutually exclusive")
        if type in seen and len(set(before)) == len(before):
            yield duplicate(f"{here}.type", type)
        seen.add(type)


def _certificate(document: Document) -> str:
    found: str = (document.get("status") or {}).get("certificate") or ""
    return found


def _certificate_faults(document: Document, old: Document | None) -> Iterator[FieldError]:
    new, before = _certificate(document), "" if old is None else _certificate(old)
    if not new or (old is not None and (new == before or (before and certificate_fault(before)))):
        return
    if fault := certificate_fault(new):
        yield invalid("status.certificate", "<certificate data>", fault)


def _update_faults(document: Document, old: Document, subresource: str) -> Iterator[FieldError]:
    path = "status.conditions"
    new, before = _conditions(document), _conditions(old)
    for type in _FINAL:
        if len(_of_type(new, type)) < len(_of_type(before, type)):
            yield forbidden(path, f'updates may not remove a condition of type "{type}"')
    if subresource != "approval":
        for type in _DECISIONS:
            given, present = _of_type(new, type), _of_type(before, type)
            if len(given) > len(present):
                yield forbidden(path, f'updates may not add a condition of type "{type}"')
            elif len(given) == len(present) and given != present:
                yield forbidden(path, f'updates may not modify a condition of type "{type}"')
    if _certificate(document) != _certificate(old):
        if subresource != "status":
            yield forbidden("status.certificate", "updates may not set certificate content")
        elif _certificate(old):
            yield forbidden("status.certificate", "updates may not modify existing certificate content")


def _of_type(conditions: list[Document], type: str) -> list[Document]:
    return [condition for condition in conditions if condition.get("type") == type]
