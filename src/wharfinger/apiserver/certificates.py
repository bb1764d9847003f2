"""The API server's certificate authority and serving certificate, kept in the data directory.

Both are created on first start. The serving certificate is reissued when it expires soon or lacks a name; the authority stays,
so that kubeconfigs remain valid.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509

from wharfinger.apiserver.files import private_directory, write_private
from wharfinger.apiserver.kubernetes_service import SERVICE_ADDRESS
from wharfinger.http.certificates import (
    authority_certificate,
    certificate_pem,
    key_pem,
    load_key,
    new_key,
    serving_certificate,
    usable_certificate,
)

_AUTHORITY_LIFETIME = datetime.timedelta(days=3650)
_SERVING_LIFETIME = datetime.timedelta(days=365)
_RENEW_BEFORE = datetime.timedelta(days=30)
_NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    SERVICE_ADDRESS,
)


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Paths of PEM files; clients trust `authority`."""

    authority: Path
    certificate: Path
    key: Path


def prepare_certificates(directory: Path, hosts: tuple[str, ...] = ("127.0.0.1", "::1")) -> CertificateFiles:
    """The files in `directory`, created or renewed as needed."""
    private_directory(directory)
    now = datetime.datetime.now(datetime.UTC)
    authority_path, authority_key_path = directory / "ca.crt", directory / "ca.key"
    if not (authority_path.exists() and authority_key_path.exists()):
        key = new_key()
        write_private(authority_key_path, key_pem(key))
        authority = authority_certificate(key, "wharfinger-ca", now, _AUTHORITY_LIFETIME)
        write_private(authority_path, certificate_pem(authority))
    files = CertificateFiles(authority_path, directory / "server.crt", directory / "server.key")
    authority = x509.load_pem_x509_certificate(authority_path.read_bytes())
    names = (*_NAMES, *hosts)
    if not _usable(files, authority, names, now):
        authority_key = load_key(authority_key_path.read_bytes())
        key = new_key()
        certificate = serving_certificate(
            key, names, now, _SERVING_LIFETIME, authority=authority, authority_key=authority_key
        )
        write_private(files.key, key_pem(key))
        write_private(files.certificate, certificate_pem(certificate))
    return files


def _usable(
    files: CertificateFiles, authority: x509.Certificate, names: tuple[str, ...], now: datetime.datetime
) -> bool:
    if not (files.certificate.exists() and files.key.exists()):
        return False
    found = usable_certificate(files.certificate.read_bytes(), files.key.read_bytes(), authority=authority, names=names)
    return found is not None and found.not_valid_after_utc - now > _RENEW_BEFORE
