"""The webhook's certificates: self-issued, kept in a Secret that all replicas share, and renewed in time.

The authority is rotated in two steps. At first the next authority is only added to the bundle that API servers trust. It takes
over once all of them must have seen it; the former one stays in the bundle, since another replica may still serve with a
certificate that it issued.
"""

from __future__ import annotations

import datetime
from base64 import b64decode, b64encode
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from cryptography import x509

from wharfinger.api.errors import AlreadyExists, Conflict, NotFound
from wharfinger.api.kinds.builtin import NAMESPACES, SECRETS
from wharfinger.api.registry import Document
from wharfinger.client.interface import Client
from wharfinger.http.certificates import (
    CLOCK_SKEW,
    authority_certificate,
    certificate_pem,
    key_pem,
    load_key,
    new_key,
    serving_certificate,
    usable_certificate,
)

AUTHORITY_LIFETIME = datetime.timedelta(days=5 * 365)
SERVING_LIFETIME = datetime.timedelta(days=90)
RENEW_FRACTION = 3  # renewed when less than a third of the lifetime is left
PROPAGATION = datetime.timedelta(minutes=10)  # until every API server trusts an authority added to the bundle


@dataclass(frozen=True, slots=True)
class WebhookCertificates:
    """All in PEM. API servers trust `bundle`, whose first certificate is the current authority. If there is a `next_key`, it
    belongs to the second one, which takes over next."""

    bundle: bytes
    authority_key: bytes
    certificate: bytes
    key: bytes
    next_key: bytes = b""


def renewed(
    names: tuple[str, ...], now: datetime.datetime, held: WebhookCertificates | None = None
) -> WebhookCertificates:
    """Certificates for these DNS names and addresses; `held` itself if nothing has to change."""
    authorities, authority_key, next_key = _rotated(held, now)
    bundle = b"".join(map(certificate_pem, authorities))
    if held is not None:
        found = usable_certificate(held.certificate, held.key, authority=authorities[0], names=names)
        if found is not None and not _expires_soon(found, now):
            made = WebhookCertificates(bundle, authority_key, held.certificate, held.key, next_key)
            return held if made == held else made
    key = new_key()
    certificate = serving_certificate(
        key, names, now, SERVING_LIFETIME, authority=authorities[0], authority_key=load_key(authority_key)
    )
    return WebhookCertificates(bundle, authority_key, certificate_pem(certificate), key_pem(key), next_key)


def _rotated(held: WebhookCertificates | None, now: datetime.datetime) -> tuple[list[x509.Certificate], bytes, bytes]:
    """The authorities to trust, the current one first; its key; and the key of the next one, if there is one."""
    authorities: list[x509.Certificate] = []
    key = next_key = b""
    if held is not None:
        authorities, key, next_key = _bundle(held.bundle), held.authority_key, held.next_key
    if next_key:
        propagated = now - authorities[1].not_valid_before_utc > CLOCK_SKEW + PROPAGATION
        if propagated or _expired(authorities[0], now):
            authorities, key, next_key = [authorities[1], authorities[0]], next_key, b""
    if not authorities or _expired(authorities[0], now):
        made, key = _new_authority(now)
        return [made], key, b""
    if not next_key and _expires_soon(authorities[0], now):
        made, next_key = _new_authority(now)
        authorities.insert(1, made)
    return [each for each in authorities[:2] if not _expired(each, now)], key, next_key


def _new_authority(now: datetime.datetime) -> tuple[x509.Certificate, bytes]:
    key = new_key()
    return authority_certificate(key, "wharfinger webhook authority", now, AUTHORITY_LIFETIME), key_pem(key)


@dataclass(frozen=True, slots=True)
class CertificateSecret:
    """Certificates in a Secret. Replicas that renew at the same time all use what the first one wrote."""

    client: Client
    name: str
    namespace: str
    names: tuple[str, ...]
    now: Callable[[], float]

    async def current(self, serving: WebhookCertificates | None = None) -> WebhookCertificates:
        """The certificates to use, created or renewed as needed. If the Secret was deleted or is malformed, it is restored
        from `serving`, the certificates in use, because API servers trust those."""
        while True:
            now = datetime.datetime.fromtimestamp(self.now(), datetime.UTC)
            try:
                secret = await self.client.get(SECRETS, self.name, self.namespace)
            except NotFound:
                made = renewed(self.names, now, serving)
                try:
                    await self.client.create(SECRETS, self._document(made), self.namespace)
                except AlreadyExists:
                    continue
                except NotFound:
                    await self._create_namespace()
                    continue
                return made
            held = _read(secret)
            made = renewed(self.names, now, held or serving)
            if made == held:
                return held
            document = self._document(made)
            document["metadata"]["resourceVersion"] = secret["metadata"]["resourceVersion"]
            try:
                await self.client.update(SECRETS, document, self.namespace)
            except Conflict:
                continue
            return made

    async def _create_namespace(self) -> None:
        document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        with suppress(AlreadyExists):
            await self.client.create(NAMESPACES, document)

    def _document(self, made: WebhookCertificates) -> Document:
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "type": "kubernetes.io/tls",
            "data": {
                "ca.crt": b64encode(made.bundle).decode(),
                "ca.key": b64encode(made.authority_key).decode(),
                "tls.crt": b64encode(made.certificate).decode(),
                "tls.key": b64encode(made.key).decode(),
                **({"next.key": b64encode(made.next_key).decode()} if made.next_key else {}),
            },
        }


def _read(secret: Document) -> WebhookCertificates | None:
    """The certificates in a Secret; None if it is malformed or keys and certificates do not match."""
    data = secret.get("data") or {}
    try:
        parts = [data[name] for name in ("ca.crt", "ca.key", "tls.crt", "tls.key")]
        held = WebhookCertificates(*(b64decode(part) for part in (*parts, data.get("next.key") or "")))
        keys = [held.authority_key, *([held.next_key] if held.next_key else ())]
        for authority, key in zip(_bundle(held.bundle), keys, strict=False):
            if load_key(key).public_key() != authority.public_key():
                return None
        return held if len(_bundle(held.bundle)) >= len(keys) else None
    except (KeyError, ValueError, TypeError):
        return None


def _bundle(pem: bytes) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(pem)


def _expires_soon(certificate: x509.Certificate, now: datetime.datetime) -> bool:
    lifetime = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    return certificate.not_valid_after_utc - now < lifetime / RENEW_FRACTION


def _expired(certificate: x509.Certificate, now: datetime.datetime) -> bool:
    return certificate.not_valid_after_utc <= now
