"""What a CertificateSigningRequest asks for: the parsed request, and the rules of Kubernetes' own signers. Pure."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Collection
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509

KUBE_APISERVER_CLIENT = "kubernetes.io/kube-apiserver-client"
KUBELET_CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
KUBELET_SERVING = "kubernetes.io/kubelet-serving"
LEGACY_UNKNOWN = "kubernetes.io/legacy-unknown"
NODE_GROUP, NODE_PREFIX = "system:nodes", "system:node:"

_BLOCK = re.compile(rb"-----BEGIN ([^-]+)-----\s.*?-----END \1-----", re.DOTALL)
_SERVING_USAGES = ("digital signature", "key encipherment", "server auth")
_CLIENT_USAGES = ("client auth", "digital signature", "key encipherment")


class BadCertificateRequest(ValueError):
    """The request cannot be parsed, or its signature is wrong."""


@lru_cache(32)
def parse_request(encoded: str) -> x509.CertificateSigningRequest:
    """The X.509 request in `spec.request`, with a valid signature. Raises `BadCertificateRequest`."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

    try:
        pem = b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        pem = b""
    block = _BLOCK.search(pem)
    if block is None or block[1] != b"CERTIFICATE REQUEST":
        raise BadCertificateRequest("PEM block type must be CERTIFICATE REQUEST")
    try:
        parsed = x509.load_pem_x509_csr(block[0])
        signed = parsed.is_signature_valid
    except (ValueError, InvalidSignature, UnsupportedAlgorithm) as error:
        raise BadCertificateRequest(f"x509: malformed certificate request: {error}") from None
    if not signed:
        raise BadCertificateRequest("x509: invalid signature: parent certificate cannot sign this kind of certificate")
    return parsed


def certificate_fault(encoded: str) -> str:
    """Why `status.certificate` is not a chain of certificates; empty if it is."""
    from cryptography import x509

    try:
        pem = b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        pem = b""
    blocks = list(_BLOCK.finditer(pem))
    for block in blocks:
        if block[1] != b"CERTIFICATE":
            return f'only CERTIFICATE PEM blocks are allowed, found "{block[1].decode("latin-1")}"'
        if re.search(rb"^[^\s:]+: ", block[0], re.MULTILINE):
            return "no PEM block headers are permitted"
        try:
            x509.load_pem_x509_certificate(block[0])
        except ValueError as error:
            return f"x509: malformed certificate: {error}"
    return "" if blocks else "must contain at least one CERTIFICATE PEM block"


def _attributes(request: x509.CertificateSigningRequest, oid: x509.ObjectIdentifier) -> list[str]:
    return [str(each.value) for each in request.subject.get_attributes_for_oid(oid)]


def common_name(request: x509.CertificateSigningRequest) -> str:
    from cryptography.x509.oid import NameOID

    names = _attributes(request, NameOID.COMMON_NAME)
    return names[-1] if names else ""


def organizations(request: x509.CertificateSigningRequest) -> list[str]:
    from cryptography.x509.oid import NameOID

    return _attributes(request, NameOID.ORGANIZATION_NAME)


def alternative_names(request: x509.CertificateSigningRequest) -> list[x509.GeneralName]:
    from cryptography import x509

    try:
        return list(request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except (x509.ExtensionNotFound, x509.DuplicateExtension, x509.UnsupportedGeneralNameType, ValueError):
        return []


def _kinds(request: x509.CertificateSigningRequest) -> dict[str, bool]:
    from cryptography import x509

    names = alternative_names(request)
    kinds = {"DNS": x509.DNSName, "IP": x509.IPAddress, "Email": x509.RFC822Name, "URI": x509.UniformResourceIdentifier}
    return {name: any(isinstance(each, kind) for each in names) for name, kind in kinds.items()}


def signer_fault(signer: str, request: x509.CertificateSigningRequest, usages: Collection[str]) -> str | None:
    """Why one of Kubernetes' signers refuses a request; empty if it signs it, None for signers that are not ours."""
    match signer:
        case "kubernetes.io/kubelet-serving":
            return _serving_fault(request, usages)
        case "kubernetes.io/kube-apiserver-client-kubelet":
            return kubelet_client_fault(request, usages)
        case "kubernetes.io/kube-apiserver-client":
            return _client_fault(usages)
        case "kubernetes.io/legacy-unknown":
            return ""
    return None


def _serving_fault(request: x509.CertificateSigningRequest, usages: Collection[str]) -> str:
    kinds = _kinds(request)
    if organizations(request) != [NODE_GROUP]:
        return "subject organization is not system:nodes"
    if not (kinds["DNS"] or kinds["IP"]):
        return "DNS or IP subjectAltName is required"
    for kind in ("Email", "URI"):
        if kinds[kind]:
            return f"{kind} subjectAltNames are not allowed"
    if fault := _usage_fault(usages, _SERVING_USAGES):
        return fault
    return "" if common_name(request).startswith(NODE_PREFIX) else _NOT_A_NODE


_NOT_A_NODE = "subject common name does not begin with system:node:"


def kubelet_client_fault(request: x509.CertificateSigningRequest, usages: Collection[str]) -> str:
    """Why a request is not one of a kubelet for its client certificate; empty if it is."""
    kinds = _kinds(request)
    if organizations(request) != [NODE_GROUP]:
        return "subject organization is not system:nodes"
    for kind in ("DNS", "Email", "IP", "URI"):
        if kinds[kind]:
            return f"{kind} subjectAltNames are not allowed"
    if not common_name(request).startswith(NODE_PREFIX):
        return _NOT_A_NODE
    return _usage_fault(usages, _CLIENT_USAGES)


def _usage_fault(usages: Collection[str], wanted: tuple[str, ...]) -> str:
    given = set(usages)
    if given in (set(wanted), set(wanted) - {"key encipherment"}):
        return ""
    return f"usages did not match [{' '.join(wanted)}]"


def _client_fault(usages: Collection[str]) -> str:
    for usage in usages:
        if usage not in ("digital signature", "key encipherment", "client auth"):
            return f"invalid usage for client certificate: {usage}"
    return "" if "client auth" in usages else "missing required usage for client certificate: client auth"
