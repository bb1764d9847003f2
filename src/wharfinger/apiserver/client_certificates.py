"""Client certificates that our authority issues: for the API server as a client of kubelets, and for kubelets."""

from __future__ import annotations

import datetime
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509

from wharfinger.apiserver.default_roles import KUBELET_CALLER
from wharfinger.apiserver.files import write_private
from wharfinger.http.certificates import (
    certificate_pem,
    client_certificate,
    key_pem,
    load_key,
    new_key,
    usable_certificate,
)

LIFETIME = datetime.timedelta(days=365)
_RENEW_BEFORE = datetime.timedelta(days=30)


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """A client certificate with its key, both as PEM."""

    certificate: bytes
    key: bytes


def issue_client(pki: Path, name: str, groups: tuple[str, ...] = ()) -> ClientCredentials:
    """A certificate for a user in these groups, issued by the authority in this folder."""
    authority = x509.load_pem_x509_certificate((pki / "ca.crt").read_bytes())
    key = new_key()
    certificate = client_certificate(
        key.public_key(),
        name,
        groups,
        datetime.datetime.now(datetime.UTC),
        LIFETIME,
        authority=authority,
        authority_key=load_key((pki / "ca.key").read_bytes()),
    )
    return ClientCredentials(certificate_pem(certificate), key_pem(key))


class KubeletTls:
    """The TLS settings for connections to kubelets: with our client certificate, which is renewed in time.

    As kube-apiserver does by default, it accepts any certificate of a kubelet; kubelets sign theirs themselves.
    """

    def __init__(self, pki: Path) -> None:
        self._pki = pki
        self._context: ssl.SSLContext | None = None
        self._renew_at = datetime.datetime.min.replace(tzinfo=datetime.UTC)

    def __call__(self) -> ssl.SSLContext:
        if self._context is None or datetime.datetime.now(datetime.UTC) > self._renew_at:
            certificate, key = self._pki / "kubelet-client.crt", self._pki / "kubelet-client.key"
            self._renew_at = self._prepare(certificate, key) - _RENEW_BEFORE
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            self._context.check_hostname = False
            self._context.verify_mode = ssl.CERT_NONE
            self._context.load_cert_chain(certificate, key)
        return self._context

    def _prepare(self, certificate: Path, key: Path) -> datetime.datetime:
        """Issues the certificate if it is missing or expires soon; returns when it expires."""
        authority = x509.load_pem_x509_certificate((self._pki / "ca.crt").read_bytes())
        if certificate.exists() and key.exists():
            found = usable_certificate(certificate.read_bytes(), key.read_bytes(), authority=authority, names=())
            if found is not None and found.not_valid_after_utc - datetime.datetime.now(datetime.UTC) > _RENEW_BEFORE:
                return found.not_valid_after_utc
        issued = issue_client(self._pki, KUBELET_CALLER)
        write_private(key, issued.key)
        write_private(certificate, issued.certificate)
        return x509.load_pem_x509_certificate(issued.certificate).not_valid_after_utc
