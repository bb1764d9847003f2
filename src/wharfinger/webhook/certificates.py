"""The webhook's certificates: made by itself, kept in a Secret that all replicas share, and renewed in good time.

The authority is renewed too; while it changes, the bundle that API servers trust holds the old and the new one.
"""

from __future__ import annotations

import datetime
import ipaddress
from base64 import b64decode, b64encode
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from wharfinger.api.errors import AlreadyExists, Conflict, NotFound
from wharfinger.api.kinds.builtin import NAMESPACES, SECRETS
from wharfinger.api.registry import Document
from wharfinger.client.interface import Client

AUTHORITY_DAYS, SERVING_DAYS = 5 * 365, 90
LEFT = 3  # renewed when less than a third of the time is left


@dataclass(frozen=True, slots=True)
class Certificates:
    """All in PEM. `bundle` is what callers should trust; its first certificate is the present authority's."""

    bundle: bytes
    authority_key: bytes
    certificate: bytes
    key: bytes


def make_certificates(names: tuple[str, ...], now: datetime.datetime, old: Certificates | None = None) -> Certificates:
    """Certificates for these DNS names and addresses; the authority of `old` is kept as long as it is good."""
    authorities = [] if old is None else _bundle(old.bundle)
    if old is None or _expires_soon(authorities[0], now):
        authority_key = ec.generate_private_key(ec.SECP256R1())
        authority = _sign(
            authority_key, "wharfinger webhook authority", now, AUTHORITY_DAYS, issuer=None, signer=authority_key
        )
        # What is about to expire stays trusted, since some replica may still serve with what it signed.
        authorities = [authority, *(each for each in authorities if each.not_valid_after_utc > now)][:2]
    else:
        loaded = serialization.load_pem_private_key(old.authority_key, None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        authority_key, authority = loaded, authorities[0]
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _sign(key, names[0], now, SERVING_DAYS, issuer=authority, signer=authority_key, names=names)
    return Certificates(
        b"".join(each.public_bytes(serialization.Encoding.PEM) for each in authorities),
        _private(authority_key),
        certificate.public_bytes(serialization.Encoding.PEM),
        _private(key),
    )


def need_renewal(held: Certificates, names: tuple[str, ...], now: datetime.datetime) -> bool:
    try:
        certificate, authority = x509.load_pem_x509_certificate(held.certificate), _bundle(held.bundle)[0]
        certificate.verify_directly_issued_by(authority)
        alternative = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except Exception:  # whatever is wrong with it, a fresh one is right
        return True
    have = {str(each.value) for each in alternative}
    return not set(names) <= have or _expires_soon(certificate, now) or _expires_soon(authority, now)


class CertificateSecret:
    """Certificates in a Secret. Two replicas that renew at once agree on what the first one wrote."""

    def __init__(
        self, client: Client, name: str, namespace: str, names: tuple[str, ...], now: Callable[[], float]
    ) -> None:
        self._client = client
        self._name = name
        self._namespace = namespace
        self._names = names
        self._now = now

    async def current(self) -> Certificates:
        """The certificates to use from now on, made or renewed if need be."""
        while True:
            now = datetime.datetime.fromtimestamp(self._now(), datetime.UTC)
            try:
                secret = await self._client.get(SECRETS, self._name, self._namespace)
            except NotFound:
                made = make_certificates(self._names, now)
                try:
                    await self._client.create(SECRETS, self._document(made), self._namespace)
                except AlreadyExists:
                    continue
                except NotFound:
                    await self._make_namespace()
                    continue
                return made
            held = _held(secret)
            if held is not None and not need_renewal(held, self._names, now):
                return held
            made = make_certificates(self._names, now, held)
            renewed = self._document(made)
            renewed["metadata"]["resourceVersion"] = secret["metadata"]["resourceVersion"]
            try:
                await self._client.update(SECRETS, renewed, self._namespace)
            except Conflict:
                continue
            return made

    async def _make_namespace(self) -> None:
        document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self._namespace}}
        with suppress(AlreadyExists):
            await self._client.create(NAMESPACES, document)

    def _document(self, made: Certificates) -> Document:
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "type": "kubernetes.io/tls",
            "data": {
                "ca.crt": b64encode(made.bundle).decode(),
                "ca.key": b64encode(made.authority_key).decode(),
                "tls.crt": b64encode(made.certificate).decode(),
                "tls.key": b64encode(made.key).decode(),
            },
        }


def _held(secret: Document) -> Certificates | None:
    data = secret.get("data") or {}
    try:
        parts = [b64decode(data[name]) for name in ("ca.crt", "ca.key", "tls.crt", "tls.key")]
        if not _bundle(parts[0]):
            return None
        serialization.load_pem_private_key(parts[1], None)
    except (KeyError, ValueError, TypeError):
        return None
    return Certificates(*parts)


def _bundle(pem: bytes) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(pem)


def _expires_soon(certificate: x509.Certificate, now: datetime.datetime) -> bool:
    whole = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    return certificate.not_valid_after_utc - now < whole / LEFT


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _sign(
    key: ec.EllipticCurvePrivateKey,
    name: str,
    now: datetime.datetime,
    days: int,
    *,
    issuer: x509.Certificate | None,
    signer: ec.EllipticCurvePrivateKey,
    names: tuple[str, ...] = (),
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))  # clocks differ
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(
            x509.BasicConstraints(ca=issuer is None, path_length=0 if issuer is None else None), critical=True
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    usage = dict.fromkeys(
        (
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "encipher_only",
            "decipher_only",
        ),
        False,
    )
    is_authority = issuer is None
    builder = builder.add_extension(
        x509.KeyUsage(digital_signature=True, key_cert_sign=is_authority, crl_sign=is_authority, **usage), critical=True
    )
    if names:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_alternative(each) for each in names]), critical=False
        )
        builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    return builder.sign(signer, hashes.SHA256())


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
