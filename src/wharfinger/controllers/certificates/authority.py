"""A certificate authority that signs requests, as upstream's PermissiveSigningPolicy does."""

from __future__ import annotations

import datetime
from base64 import b64encode
from collections.abc import Collection
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from wharfinger.api.certificate_requests import alternative_names

_BACKDATE = datetime.timedelta(minutes=5)
_SHORT = datetime.timedelta(hours=8)  # shorter certificates do not end earlier because of the backdating
_MINIMUM = datetime.timedelta(minutes=10)
_KEY_USAGES = {
    "signing": "digital_signature",
    "digital signature": "digital_signature",
    "content commitment": "content_commitment",
    "key encipherment": "key_encipherment",
    "key agreement": "key_agreement",
    "data encipherment": "data_encipherment",
    "cert sign": "key_cert_sign",
    "crl sign": "crl_sign",
    "encipher only": "encipher_only",
    "decipher only": "decipher_only",
}
_EXTENDED_USAGES = {
    "any": ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,
    "server auth": ExtendedKeyUsageOID.SERVER_AUTH,
    "client auth": ExtendedKeyUsageOID.CLIENT_AUTH,
    "code signing": ExtendedKeyUsageOID.CODE_SIGNING,
    "email protection": ExtendedKeyUsageOID.EMAIL_PROTECTION,
    "s/mime": ExtendedKeyUsageOID.EMAIL_PROTECTION,
    "ipsec end system": x509.ObjectIdentifier("1.3.6.1.5.5.7.3.5"),
    "ipsec tunnel": x509.ObjectIdentifier("1.3.6.1.5.5.7.3.6"),
    "ipsec user": x509.ObjectIdentifier("1.3.6.1.5.5.7.3.7"),
    "timestamping": ExtendedKeyUsageOID.TIME_STAMPING,
    "ocsp signing": ExtendedKeyUsageOID.OCSP_SIGNING,
    "microsoft sgc": x509.ObjectIdentifier("1.3.6.1.4.1.311.10.3.3"),
    "netscape sgc": x509.ObjectIdentifier("2.16.840.1.113730.4.1"),
}


class BadAuthority(ValueError):
    """The files of a certificate authority cannot be used."""


class CannotSign(Exception):
    """The authority cannot sign a request now."""


@dataclass(frozen=True, slots=True)
class SigningAuthority:
    certificate: x509.Certificate
    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
    duration: datetime.timedelta = datetime.timedelta(days=365)

    @classmethod
    def load(cls, certificate: bytes, key: bytes) -> SigningAuthority:
        """From PEM. Raises `BadAuthority`."""
        try:
            loaded = serialization.load_pem_private_key(key, None)
            parsed = x509.load_pem_x509_certificate(certificate)
        except (ValueError, TypeError) as error:
            raise BadAuthority(str(error)) from None
        if not isinstance(loaded, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey):
            raise BadAuthority("the key must be an RSA, ECDSA or Ed25519 key")
        if loaded.public_key() != parsed.public_key():
            raise BadAuthority("the key is not that of the certificate")
        return cls(parsed, loaded)

    def sign(
        self, request: x509.CertificateSigningRequest, usages: Collection[str], seconds: int | None, now: float
    ) -> str:
        """The certificate as `status.certificate` holds it: PEM in base64. Raises `CannotSign`."""
        moment = datetime.datetime.fromtimestamp(now, datetime.UTC)
        end_of_authority = self.certificate.not_valid_after_utc
        if moment >= end_of_authority:
            raise CannotSign(f"the signer has expired: NotAfter={end_of_authority}")
        lifetime = self._lifetime(seconds)
        end = moment + (lifetime if lifetime < _SHORT else lifetime - _BACKDATE)
        builder = (
            x509.CertificateBuilder()
            .subject_name(request.subject)
            .issuer_name(self.certificate.subject)
            .public_key(request.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(moment - _BACKDATE)
            .not_valid_after(min(end, end_of_authority))
        )
        asked = {_KEY_USAGES[usage] for usage in usages if usage in _KEY_USAGES}
        if asked:
            flags = dict.fromkeys(_KEY_USAGES.values(), False) | dict.fromkeys(asked, True)
            if not flags["key_agreement"]:  # X.509 defines the other two only with it
                flags |= {"encipher_only": False, "decipher_only": False}
            builder = builder.add_extension(x509.KeyUsage(**flags), critical=True)
        extended = list(dict.fromkeys(_EXTENDED_USAGES[usage] for usage in usages if usage in _EXTENDED_USAGES))
        if extended:
            builder = builder.add_extension(x509.ExtendedKeyUsage(extended), critical=False)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(self._authority_key(), critical=False)
        names = alternative_names(request)
        if names:
            empty = not list(request.subject)
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=empty)
        algorithm = None if isinstance(self.key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
        signed = builder.sign(self.key, algorithm)
        return b64encode(signed.public_bytes(serialization.Encoding.PEM)).decode()

    def _lifetime(self, seconds: int | None) -> datetime.timedelta:
        if seconds is None:
            return self.duration
        return min(self.duration, max(_MINIMUM, datetime.timedelta(seconds=seconds)))

    def _authority_key(self) -> x509.AuthorityKeyIdentifier:
        try:
            found = self.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
        except x509.ExtensionNotFound:
            return x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(found.value)
