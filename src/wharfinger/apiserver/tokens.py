"""Service-account tokens: JSON web tokens signed with the server's own key (ES256), bound to their object and audience."""

from __future__ import annotations

import hashlib
import uuid
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from wharfinger.admission.request import User, service_account
from wharfinger.api.registry import Document
from wharfinger.apiserver.certificates import load_key, private_pem
from wharfinger.apiserver.files import write_private

ISSUER = "https://kubernetes.default.svc.cluster.local"
AUDIENCE = ISSUER
_SIZE = 32  # bytes of each half of a P-256 signature


class BadToken(ValueError):
    """The token is not one of ours, or no longer valid."""


@dataclass(frozen=True, slots=True)
class Verified:
    """What a valid token says."""

    user: User
    audiences: tuple[str, ...]
    expires: float


Lookup = Callable[[str, str, str], Document | None]
"""Kind, namespace and name to the live object: tokens die with what they are bound to."""


class TokenSigner:
    def __init__(self, key: ec.EllipticCurvePrivateKey) -> None:
        self._key = key
        self._public = key.public_key()
        numbers = self._public.public_numbers()
        self._point = (numbers.x, numbers.y)
        der = self._public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        self.key_id = _encode(hashlib.sha256(der).digest())
        self._header = _encode(msgspec.json.encode({"alg": "ES256", "kid": self.key_id, "typ": "JWT"}))

    @classmethod
    def load(cls, path: Path) -> TokenSigner:
        """Reads the key; makes it on first use."""
        if not path.exists():
            write_private(path, private_pem(ec.generate_private_key(ec.SECP256R1())))
        return cls(load_key(path))

    def issue(
        self,
        account: Document,
        *,
        audiences: Sequence[str],
        now: float,
        seconds: int,
        bound: tuple[str, str, str] | None = None,
    ) -> str:
        """A token of the service account; `bound` is kind (`pod`, `secret`, `node`), name and uid of an object."""
        meta = account["metadata"]
        claims: dict[str, Any] = {
            "namespace": meta["namespace"],
            "serviceaccount": {"name": meta["name"], "uid": meta.get("uid", "")},
        }
        if bound is not None:
            claims[bound[0]] = {"name": bound[1], "uid": bound[2]}
        return self._sign(
            {
                "aud": list(audiences),
                "exp": int(now) + seconds,
                "iat": int(now),
                "iss": ISSUER,
                "jti": str(uuid.uuid4()),
                "kubernetes.io": claims,
                "nbf": int(now),
                "sub": f"system:serviceaccount:{meta['namespace']}:{meta['name']}",
            }
        )

    def _sign(self, claims: dict[str, Any]) -> str:
        body = f"{self._header}.{_encode(msgspec.json.encode(claims))}"
        r, s = decode_dss_signature(self._key.sign(body.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{body}.{_encode(r.to_bytes(_SIZE, 'big') + s.to_bytes(_SIZE, 'big'))}"

    def claims(self, token: str) -> dict[str, Any]:
        """What a token says, if our key signed it; whether it still holds is `check_claims`' part."""
        body, _, signature = token.rpartition(".")
        header, _, payload = body.partition(".")
        try:
            raw = _decode(signature)
            if header != self._header or len(raw) != 2 * _SIZE:
                raise BadToken("not signed by this server")
            halves = (int.from_bytes(raw[:_SIZE], "big"), int.from_bytes(raw[_SIZE:], "big"))
            self._public.verify(encode_dss_signature(*halves), body.encode(), ec.ECDSA(hashes.SHA256()))
            return msgspec.json.decode(_decode(payload), type=dict[str, Any])
        except (InvalidSignature, ValueError, msgspec.DecodeError) as error:
            raise BadToken("not signed by this server") from error

    def keys(self) -> Document:
        """The JSON web key set, for others who verify our tokens."""
        x, y = (_encode(number.to_bytes(_SIZE, "big")) for number in self._point)
        key = {"use": "sig", "kty": "EC", "kid": self.key_id, "crv": "P-256", "alg": "ES256", "x": x, "y": y}
        return {"keys": [key]}


def check_claims(claims: dict[str, Any], *, now: float, lookup: Lookup) -> Verified:
    """Whether signed claims still hold: time, issuer, and every object they name."""
    if claims.get("iss") != ISSUER:
        raise BadToken("foreign issuer")
    if now >= claims["exp"]:
        raise BadToken("service account token has expired")
    if now < claims["nbf"] - 5:
        raise BadToken("service account token is not valid yet")
    said = claims["kubernetes.io"]
    namespace, account = said["namespace"], said["serviceaccount"]
    _alive(lookup("serviceaccount", namespace, account["name"]), account["uid"], "service account")
    user = service_account(namespace, account["name"])
    extra: dict[str, tuple[str, ...]] = {"authentication.kubernetes.io/credential-id": (f"JTI={claims['jti']}",)}
    for kind in ("pod", "secret", "node"):
        if bound := said.get(kind):
            _alive(lookup(kind, "" if kind == "node" else namespace, bound["name"]), bound["uid"], kind)
            if kind != "secret":
                extra[f"authentication.kubernetes.io/{kind}-name"] = (bound["name"],)
                extra[f"authentication.kubernetes.io/{kind}-uid"] = (bound["uid"],)
    audiences = tuple(claims["aud"])
    return Verified(User(user.name, user.groups, account["uid"], extra), audiences, claims["exp"])


def _alive(found: Document | None, uid: str, what: str) -> None:
    if found is None or found["metadata"].get("uid") != uid:
        raise BadToken(f"{what} has been deleted")


def _encode(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4))
