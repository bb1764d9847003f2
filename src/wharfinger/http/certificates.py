"""X.509 for our servers: P-256 keys, self-signed authorities, and the serving certificates that they issue.

Pure functions over keys and certificates; where these are stored and when they are renewed is decided by each server.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CLOCK_SKEW = datetime.timedelta(minutes=5)
"""Certificates are valid from this long before they are issued."""

PrivateKey = ec.EllipticCurvePrivateKey
PublicKey = ec.EllipticCurvePublicKey


def new_key() -> PrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def load_key(pem: bytes) -> PrivateKey:
    """Raises ValueError."""
    key = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("not an elliptic-curve key")
    return key


def key_pem(key: PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def certificate_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def authority_certificate(
    key: PrivateKey, name: str, now: datetime.datetime, lifetime: datetime.timedelta
) -> x509.Certificate:
    """A self-signed certificate of an authority that may issue serving certificates."""
    subject = _subject(name)
    return (
        _builder(subject, subject, key, key, now, lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def serving_certificate(
    key: PrivateKey,
    names: Sequence[str],
    now: datetime.datetime,
    lifetime: datetime.timedelta,
    *,
    authority: x509.Certificate,
    authority_key: PrivateKey,
) -> x509.Certificate:
    """A certificate for these DNS names and IP addresses; the first one is also its common name."""
    return (
        _builder(_subject(names[0]), authority.subject, key, authority_key, now, lifetime)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )


def client_certificate(
    key: PublicKey,
    name: str,
    groups: Sequence[str],
    now: datetime.datetime,
    lifetime: datetime.timedelta,
    *,
    authority: x509.Certificate,
    authority_key: PrivateKey,
) -> x509.Certificate:
    """A certificate with which a client authenticates as a user in these groups."""
    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    subject = x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, name)])
    return (
        _builder(subject, authority.subject, key, authority_key, now, lifetime)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )


def usable_certificate(
    certificate: bytes, key: bytes, *, authority: x509.Certificate, names: Sequence[str]
) -> x509.Certificate | None:
    """The certificate if it was issued by the authority for this key and all of these names; None if it must be replaced."""
    try:
        loaded = x509.load_pem_x509_certificate(certificate)
        loaded.verify_directly_issued_by(authority)
        if load_key(key).public_key() != loaded.public_key():
            return None
        if not names:
            return loaded
        covered = loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except Exception:  # whatever is wrong with it, a new one can be issued
        return None
    return loaded if {str(name.value) for name in covered}.issuperset(names) else None


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: PrivateKey | PublicKey,
    issuer_key: PrivateKey,
    now: datetime.datetime,
    lifetime: datetime.timedelta,
) -> x509.CertificateBuilder:
    public = key.public_key() if isinstance(key, ec.EllipticCurvePrivateKey) else key
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )


_UNUSED_KEY_USAGES = (
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "encipher_only",
    "decipher_only",
)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        **dict.fromkeys(_UNUSED_KEY_USAGES, False),
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
