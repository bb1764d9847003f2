"""The server's own certificate authority, and the certificate it serves with.

Both are made on first start and kept. The server certificate is renewed when it runs out soon or lacks a name it needs;
the authority stays, so that kubeconfigs remain valid.
"""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from wharfinger.apiserver.files import private_directory, write_private

_AUTHORITY_DAYS = 3650
_SERVER_DAYS = 365
_RENEW_BEFORE = datetime.timedelta(days=30)
_NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)


@dataclass(frozen=True, slots=True)
class Certificates:
    """Paths of what TLS needs; `authority` is also what clients trust."""

    authority: Path
    certificate: Path
    key: Path


def prepare_certificates(directory: Path, hosts: tuple[str, ...] = ("127.0.0.1", "::1")) -> Certificates:
    """Reads or makes the certificates in `directory`."""
    private_directory(directory)
    authority_path, authority_key_path = directory / "ca.crt", directory / "ca.key"
    if not (authority_path.exists() and authority_key_path.exists()):
        key = ec.generate_private_key(ec.SECP256R1())
        write_private(authority_key_path, private_pem(key))
        write_private(authority_path, _authority(key).public_bytes(serialization.Encoding.PEM))
    paths = Certificates(authority_path, directory / "server.crt", directory / "server.key")
    authority = x509.load_pem_x509_certificate(authority_path.read_bytes())
    if not _usable(paths, authority, hosts):
        authority_key = load_key(authority_key_path)
        server_key = ec.generate_private_key(ec.SECP256R1())
        certificate = _server(server_key, authority, authority_key, hosts)
        write_private(paths.key, private_pem(server_key))
        write_private(paths.certificate, certificate.public_bytes(serialization.Encoding.PEM))
    return paths


def load_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key: PrivateKeyTypes = serialization.load_pem_private_key(path.read_bytes(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{path}: not an elliptic-curve key")
    return key


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(subject: x509.Name, issuer: x509.Name, days: int) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .serial_number(x509.random_serial_number())
        # Clocks of client and server may differ a little.
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _authority(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = _name("wharfinger-ca")
    return (
        _builder(name, name, _AUTHORITY_DAYS)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _server(
    key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    hosts: tuple[str, ...],
) -> x509.Certificate:
    names: list[x509.GeneralName] = [x509.DNSName(name) for name in _NAMES]
    names += [x509.IPAddress(ipaddress.ip_address(host)) for host in hosts]
    return (
        _builder(_name("wharfinger"), authority.subject, _SERVER_DAYS)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()),
            critical=False,
        )
        .sign(authority_key, hashes.SHA256())
    )


def _usable(paths: Certificates, authority: x509.Certificate, hosts: tuple[str, ...]) -> bool:
    if not (paths.certificate.exists() and paths.key.exists()):
        return False
    try:
        certificate = x509.load_pem_x509_certificate(paths.certificate.read_bytes())
        certificate.verify_directly_issued_by(authority)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        same_key = load_key(paths.key).public_key() == certificate.public_key()
    except Exception:  # damaged or foreign: a new one costs nothing, the authority is what clients trust
        return False
    served = {str(address) for address in names.get_values_for_type(x509.IPAddress)}
    lasts = certificate.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    return same_key and lasts > _RENEW_BEFORE and served.issuperset(hosts)
