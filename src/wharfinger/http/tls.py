"""TLS contexts of our servers."""

from __future__ import annotations

import datetime
import ssl
import tempfile
from collections.abc import Sequence
from pathlib import Path

from wharfinger.http.certificates import (
    authority_certificate,
    certificate_pem,
    key_pem,
    new_key,
    serving_certificate,
)

SELF_SIGNED_LIFETIME = datetime.timedelta(days=3650)


def server_context(certificate: bytes, key: bytes, context: ssl.SSLContext | None = None) -> ssl.SSLContext:
    """A context for servers with this certificate; a given one gets it for new connections."""
    if context is None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
    with tempfile.TemporaryDirectory() as folder:  # the ssl module reads files only
        certificate_file, key_file = Path(folder) / "tls.crt", Path(folder) / "tls.key"
        certificate_file.write_bytes(certificate)
        key_file.touch(mode=0o600)
        key_file.write_bytes(key)
        context.load_cert_chain(certificate_file, key_file)
    return context


def self_signed_context(names: Sequence[str], now: datetime.datetime) -> ssl.SSLContext:
    """A context with a certificate that nobody can verify, as Kubernetes components make one where none is given."""
    key, issuer = new_key(), new_key()
    authority = authority_certificate(issuer, f"{names[0]}-ca", now, SELF_SIGNED_LIFETIME)
    made = serving_certificate(key, names, now, SELF_SIGNED_LIFETIME, authority=authority, authority_key=issuer)
    return server_context(certificate_pem(made) + certificate_pem(authority), key_pem(key))
