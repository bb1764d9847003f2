"""The webhook's certificates: made by itself, kept in a Secret that all replicas share, and renewed in good time.

The authority is renewed too, in two steps: at first the next one is only added to the bundle that API servers trust, and
signs nothing; it takes over when all of them must have heard of it. The former one stays in the bundle after that, since
some replica may still serve with what it signed.
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
SKEW = datetime.timedelta(minutes=5)  # clocks differ
SETTLED = datetime.timedelta(minutes=10)  # until everyone trusts an authority that was added to the bundle


@dataclass(frozen=True, slots=True)
class Certificates:
    """All in PEM. `bundle` is what callers should trust; its first certificate is the present authority's. With a
    `next_key`, the second one's turn comes next."""

    bundle: bytes
    authority_key: bytes
    certificate: bytes
    key: bytes
    next_key: bytes = b""


def renewed(names: tuple[str, ...], now: datetime.datetime, held: Certificates | None = None) -> Certificates:
    """Certificates for these DNS names and addresses: those held, as long as nothing about them has to change."""
    authorities, key, next_key = _authorities(held, now)
    bundle = b"".join(each.public_bytes(serialization.Encoding.PEM) for each in authorities)
    if held is not None and _serves(held, authorities[0], names, now):
        made = Certificates(bundle, key, held.certificate, held.key, next_key)
        return held if made == held else made
    own = ec.generate_private_key(ec.SECP256R1())
    signer = serialization.load_pem_private_key(key, None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    certificate = _sign(own, names[0], now, SERVING_DAYS, issuer=authorities[0], signer=signer, names=names)
    return Certificates(bundle, key, certificate.public_bytes(serialization.Encoding.PEM), _private(own), next_key)


def _authorities(held: Certificates | None, now: datetime.datetime) -> tuple[list[x509.Certificate], bytes, bytes]:
    """Those to trust, the present one first, with its key, and that of the next one if there is one."""
    authorities: list[x509.Certificate] = []
    key = next_key = b""
    if held is not None:
        authorities, key, next_key = _bundle(held.bundle), held.authority_key, held.next_key
    if next_key and (now - authorities[1].not_valid_before_utc > SKEW + SETTLED or _expired(authorities[0], now)):
        authorities, key, next_key = [authorities[1], authorities[0]], next_key, b""
    if not authorities or _expired(authorities[0], now):
        made, key = _make_authority(now)
        return [made], key, b""
    if not next_key and _expires_soon(authorities[0], now):
        made, next_key = _make_authority(now)
        authorities.insert(1, made)
    return [each for each in authorities[:2] if not _expired(each, now)], key, next_key


def _make_authority(now: datetime.datetime) -> tuple[x509.Certificate, bytes]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = "wharfinger webhook authority"
    return _sign(key, name, now, AUTHORITY_DAYS, issuer=None, signer=key), _private(key)


def _serves(held: Certificates, authority: x509.Certificate, names: tuple[str, ...], now: datetime.datetime) -> bool:
    """Whether one can serve with this certificate and key for some time."""
    try:
        certificate = x509.load_pem_x509_certificate(held.certificate)
        if serialization.load_pem_private_key(held.key, None).public_key() != certificate.public_key():
            return False
        certificate.verify_directly_issued_by(authority)
        alternative = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except Exception:  # whatever is wrong with it, a fresh one is right
        return False
    return set(names) <= {str(each.value) for each in alternative} and not _expires_soon(certificate, now)


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

    async def current(self, serving: Certificates | None = None) -> Certificates:
        """The certificates to use from now on, made or renewed if need be. `serving` are those in use, which stand in for
        a Secret that was deleted or spoilt: API servers trust them."""
        while True:
            now = datetime.datetime.fromtimestamp(self._now(), datetime.UTC)
            try:
                secret = await self._client.get(SECRETS, self._name, self._namespace)
            except NotFound:
                made = renewed(self._names, now, serving)
                try:
                    await self._client.create(SECRETS, self._document(made), self._namespace)
                except AlreadyExists:
                    continue
                except NotFound:
                    await self._make_namespace()
                    continue
                return made
            held = _held(secret)
            made = renewed(self._names, now, held or serving)
            if made == held:
                return held
            document = self._document(made)
            document["metadata"]["resourceVersion"] = secret["metadata"]["resourceVersion"]
            try:
                await self._client.update(SECRETS, document, self._namespace)
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
                **({"next.key": b64encode(made.next_key).decode()} if made.next_key else {}),
            },
        }


def _held(secret: Document) -> Certificates | None:
    data = secret.get("data") or {}
    try:
        parts = [data[name] for name in ("ca.crt", "ca.key", "tls.crt", "tls.key")]
        held = Certificates(*(b64decode(part) for part in (*parts, data.get("next.key") or "")))
        keys = [held.authority_key, *([held.next_key] if held.next_key else ())]
        for authority, key in zip(_bundle(held.bundle), keys, strict=False):
            if serialization.load_pem_private_key(key, None).public_key() != authority.public_key():
                return None
        return held if len(_bundle(held.bundle)) >= len(keys) else None
    except (KeyError, ValueError, TypeError):
        return None


def _bundle(pem: bytes) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(pem)


def _expires_soon(certificate: x509.Certificate, now: datetime.datetime) -> bool:
    whole = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    return certificate.not_valid_after_utc - now < whole / LEFT


def _expired(certificate: x509.Certificate, now: datetime.datetime) -> bool:
    return certificate.not_valid_after_utc <= now


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
        .not_valid_before(now - SKEW)
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
