"""Validation of PodCertificateRequests: what a kubelet asks for, and what a signer answers."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from wharfinger.api.fields import FieldError, immutable, invalid, invalid_whole, not_supported, required, too_long
from wharfinger.api.go_text import duration_text, time_text
from wharfinger.api.names import dns_subdomain, qualified_name
from wharfinger.api.pem import pem_blocks
from wharfinger.api.registry import Document
from wharfinger.api.times import BadTime, parse_time
from wharfinger.api.validation.certificates import signer_name_faults
from wharfinger.api.validation.devices.conditions import conditions_faults
from wharfinger.api.validation.selectors import ANNOTATIONS_LIMIT

if TYPE_CHECKING:
    from cryptography import x509

MIN_EXPIRATION, MAX_EXPIRATION, KUBERNETES_MAX_EXPIRATION = 3600, 91 * 24 * 3600, 24 * 3600  # seconds
FINAL = ("Issued", "Denied", "Failed")
_MOST_KEY_BYTES = 10 * 1024
_MOST_CHAIN_BYTES = 100 * 1024
_LONGEST_UID = 128
_RSA_BITS = (3072, 4096)
_REFRESH_MARGIN = 600.0  # seconds
_STUB = "spec.stubPKCS10Request"
_CHAIN = "status.certificateChain"
_NOT_BEFORE, _NOT_AFTER, _REFRESH = "status.notBefore", "status.notAfter", "status.beginRefreshAt"
_UNKNOWN_KEY = "unknown public key type; supported types are Ed25519, ECDSA, and RSA"


def longest_expiration(signer: str) -> int:
    """Kubernetes' own signers issue certificates for a day at most."""
    host = signer.partition("/")[0]
    own = host == "kubernetes.io" or host.endswith(".kubernetes.io")
    return KUBERNETES_MAX_EXPIRATION if own else MAX_EXPIRATION


def user_annotations_faults(annotations: Document, path: str) -> Iterator[FieldError]:
    for key in annotations:
        lower = key.lower()
        if not lower:
            yield required(path)
        elif faults := qualified_name(lower):
            yield from (invalid(path, lower, fault) for fault in faults)
        elif lower.count("/") != 1:
            yield invalid(path, lower, 'must be a domain-prefixed key (such as "acme.io/foo")')
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > ANNOTATIONS_LIMIT:
        yield too_long(path, ANNOTATIONS_LIMIT)


def pod_certificate_rules(document: Document, old: Document | None) -> Iterator[FieldError]:
    spec = document.get("spec") or {}
    if old is None:
        yield from _spec_faults(spec)
    elif spec != (old.get("spec") or {}):
        yield immutable("spec", spec)


def _spec_faults(spec: Document) -> Iterator[FieldError]:
    signer = spec.get("signerName") or ""
    yield from signer_name_faults(signer, "spec.signerName")
    yield from user_annotations_faults(spec.get("unverifiedUserAnnotations") or {}, "spec.unverifiedUserAnnotations")
    for owner, uid in (("podName", "podUID"), ("serviceAccountName", "serviceAccountUID"), ("nodeName", "nodeUID")):
        name, given = spec.get(owner) or "", spec.get(uid) or ""
        yield from (invalid(f"spec.{owner}", name, fault) for fault in dns_subdomain(name))
        if not given:
            yield invalid(f"spec.{uid}", "", "must not be empty")
        elif len(given.encode()) > _LONGEST_UID:
            yield too_long(f"spec.{uid}", _LONGEST_UID)
    seconds, most = spec.get("maxExpirationSeconds"), longest_expiration(signer)
    if seconds is None:
        yield required("spec.maxExpirationSeconds", "must be set")
        return
    if not MIN_EXPIRATION <= seconds <= most:
        yield invalid("spec.maxExpirationSeconds", seconds, f"must be in the range [{MIN_EXPIRATION}, {most}]")
    if stub := spec.get("stubPKCS10Request"):
        yield from _stub_faults(_bytes(stub))
    else:
        # Upstream's other two fields are not in this version of the kind.
        detail = "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set"
        yield invalid_whole("spec", detail)


def _bytes(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


def _key_fault(key: Any) -> FieldError | None:
    """Why a key of this type or size is not accepted."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    if isinstance(key, ec.EllipticCurvePublicKey):
        if not isinstance(key.curve, (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)):
            detail = "elliptic public keys must use curve P256, P384, or P521"
            return invalid(_STUB, f"curve {key.curve.name}", detail)
    elif isinstance(key, rsa.RSAPublicKey):
        if key.key_size not in _RSA_BITS:
            return invalid(_STUB, f"{key.key_size}-bit modulus", "RSA keys must have modulus size 3072 or 4096")
    elif not isinstance(key, ed25519.Ed25519PublicKey):
        return invalid_whole(_STUB, _UNKNOWN_KEY)
    return None


def _stub_faults(data: bytes) -> Iterator[FieldError]:
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

    if len(data) > _MOST_KEY_BYTES:
        yield too_long(_STUB, _MOST_KEY_BYTES)
        return
    request = _stub_request(data)
    if request is None:
        yield invalid_whole(_STUB, "must be a valid PKCS#10 CSR")
        return
    if (fault := _key_fault(request.public_key())) is not None:
        yield fault
        return
    try:
        signed = request.is_signature_valid
    except (InvalidSignature, UnsupportedAlgorithm, ValueError):
        signed = False
    if not signed:
        yield invalid_whole(_STUB, "invalid signature")


def _stub_request(data: bytes) -> x509.CertificateSigningRequest | None:
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        request = x509.load_der_x509_csr(data)
        request.public_key()
    except (ValueError, UnsupportedAlgorithm):
        return None
    return request


# Status


def pod_certificate_status_rules(document: Document, old: Document | None) -> Iterator[FieldError]:
    """The rules of a write to the status; whether the time of issue is near is decided by who knows the time."""
    status, before = document.get("status") or {}, (old or {}).get("status") or {}
    conditions = status.get("conditions") or []
    faults = [*_condition_faults(conditions), *conditions_faults(conditions, "status.conditions")]
    if faults:
        yield from faults
        return
    if _outcome(before):
        if status != before:
            yield invalid_whole("status", "immutable after PodCertificateRequest is issued, denied, or failed")
    elif _outcome(status) in ("Denied", "Failed"):
        if any(value for name, value in status.items() if name != "conditions"):
            detail = "non-condition status fields must be empty when denying or failing the PodCertificateRequest"
            yield invalid_whole("status", detail)
    elif _outcome(status) == "Issued":
        yield from _issued_faults(status, (old or {}).get("spec") or {})
    elif status != before:
        detail = 'status is immutable unless transitioning to "Issued", "Denied", or "Failed"'
        yield invalid_whole("status", detail)


def _outcome(status: Document) -> str:
    true = (one.get("type") for one in status.get("conditions") or () if one.get("status") == "True")
    return next((str(type) for type in true if type in FINAL), "")


def _condition_faults(conditions: list[Document]) -> Iterator[FieldError]:
    known = 0
    for index, condition in enumerate(conditions):
        type, status, path = condition.get("type") or "", condition.get("status") or "", f"status.conditions.[{index}]"
        if type not in FINAL:
            yield not_supported(f"{path}.type", type, FINAL)
            continue
        known += 1
        if known > 1:
            detail = 'There may be at most one condition with type "Issued", "Denied", or "Failed"'
            yield invalid(f"{path}.type", type, detail)
        if status != "True":
            yield not_supported(f"{path}.status", status, ("True",))


def _issued_faults(status: Document, spec: Document) -> Iterator[FieldError]:
    chain = status.get("certificateChain") or ""
    if len(chain.encode()) > _MOST_CHAIN_BYTES:
        yield too_long(_CHAIN, _MOST_CHAIN_BYTES)
        return
    blocks = list(pem_blocks(chain))
    if not blocks:
        yield invalid(_CHAIN, chain, "issued certificate chain must contain at least one certificate")
        return
    if blocks[0].type != "CERTIFICATE":
        yield invalid(_CHAIN, chain, "issued certificate chain must consist entirely of CERTIFICATE PEM blocks")
        return
    leaf = _certificate(blocks[0].data)
    if leaf is None:
        yield invalid(_CHAIN, chain, "leaf certificate does not parse as valid X.509")
        return
    yield from _name_faults(leaf)
    if not _is_for(leaf, spec):
        yield invalid(_CHAIN, chain, "leaf certificate was not issued to the requested public key")
        return
    faults = list(_time_faults(status, leaf, spec))
    yield from faults
    for block in blocks[1:] if not faults else ():
        if block.type != "CERTIFICATE":
            # The typing error is upstream's.
            yield invalid(_CHAIN, chain, "issued certificate chain must consist entirely of CERTFICATE PEM blocks")
            return
        if _certificate(block.data) is None:
            yield invalid(_CHAIN, chain, "intermediate certificate does not parse as valid X.509")
            return


def _certificate(data: bytes) -> x509.Certificate | None:
    from cryptography import x509

    try:
        return x509.load_der_x509_certificate(data)
    except ValueError:
        return None


def _name_faults(leaf: x509.Certificate) -> Iterator[FieldError]:
    from cryptography import x509

    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return
    for name in names.get_values_for_type(x509.DNSName):
        if not name:
            yield invalid(_CHAIN, name, "leaf certificate should not contain empty DNSName")
        if ".." in name:
            yield invalid(_CHAIN, name, "leaf certificate's DNSName should not contain '..'")
        if name.startswith(".") or name.endswith("."):
            yield invalid(_CHAIN, name, "leaf certificate's DNSName should not start or end with '.'")


def _is_for(leaf: x509.Certificate, spec: Document) -> bool:
    """Whether the certificate has the public key that was asked for."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    request = _stub_request(_bytes(spec.get("stubPKCS10Request") or ""))
    wanted = None if request is None else request.public_key()
    form = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    return wanted is not None and wanted.public_bytes(*form) == leaf.public_key().public_bytes(*form)


def _time_faults(status: Document, leaf: x509.Certificate, spec: Document) -> Iterator[FieldError]:
    consistent = "must be present and consistent with the issued certificate"
    refresh = "must be present and in the range [notbefore+10min, notafter-10min]"
    missing = [
        required(path, detail)
        for path, detail in ((_NOT_BEFORE, consistent), (_NOT_AFTER, consistent), (_REFRESH, refresh))
        if not status.get(path.removeprefix("status."))
    ]
    if missing:
        yield from missing
        return
    try:
        begin, end, again = (parse_time(status[name]) for name in ("notBefore", "notAfter", "beginRefreshAt"))
    except BadTime:
        return  # its type is wrong, which is reported
    starts, ends = leaf.not_valid_before_utc.timestamp(), leaf.not_valid_after_utc.timestamp()
    most = spec.get("maxExpirationSeconds") or 0
    if begin != starts:
        detail = "must be set to the NotBefore time encoded in the leaf certificate"
        yield _invalid_text(_NOT_BEFORE, time_text(begin), detail)
    elif end != ends:
        detail = "must be set to the NotAfter time encoded in the leaf certificate"
        yield _invalid_text(_NOT_AFTER, time_text(end), detail)
    elif ends - starts < MIN_EXPIRATION:
        yield _invalid_text(_CHAIN, duration_text(ends - starts), "leaf certificate lifetime must be >= 1 hour")
    elif ends - starts > most:
        detail = f"leaf certificate lifetime must be <= spec.maxExpirationSeconds ({most})"
        yield _invalid_text(_CHAIN, duration_text(ends - starts), detail)
    elif again < begin + _REFRESH_MARGIN:
        yield _invalid_text(_REFRESH, time_text(again), "must be at least 10 minutes after status.notBefore")
    elif again > end - _REFRESH_MARGIN:
        yield _invalid_text(_REFRESH, time_text(again), "must be at least 10 minutes before status.notAfter")


def _invalid_text(path: str, text: str, detail: str) -> FieldError:
    """For values that have a text of their own in Go."""
    return FieldError(path, "FieldValueInvalid", f"Invalid value: {text}: {detail}")
