"""Service account tokens: JSON Web Tokens signed with the server's key (ES256), for an audience and optionally bound to an object."""

from __future__ import annotations

import hashlib
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from jwt.algorithms import ECAlgorithm
from jwt.types import Options

from wharfinger.admission.request import User, service_account
from wharfinger.api.registry import Document
from wharfinger.api.times import parse_time
from wharfinger.apiserver.files import write_private
from wharfinger.http.certificates import PrivateKey, key_pem, load_key, new_key

ISSUER = "https://kubernetes.default.svc.cluster.local"
AUDIENCE = ISSUER
_ALGORITHM = "ES256"
_LEEWAY = 60  # seconds by which clocks may differ; as upstream, also for objects that are being deleted


# Times are checked against the server's clock, and audiences against those that the caller asks for.
_SIGNATURE_ONLY: Options = {
    "verify_signature": True,
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_aud": False,
    "verify_iss": False,
    "verify_sub": False,
    "verify_jti": False,
}


class InvalidToken(ValueError):
    """The token was not signed by this server, or is no longer valid."""


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    """The contents of a valid token."""

    user: User
    audiences: tuple[str, ...]
    expires: float


@dataclass(frozen=True, slots=True)
class BoundObject:
    """An object in a token's claims. Without a UID it is there for information only."""

    name: str
    uid: str = ""

    def claim(self) -> dict[str, str]:
        return {"name": self.name, "uid": self.uid} if self.uid else {"name": self.name}


Lookup = Callable[[str, str, str], Document | None]
"""Kind, namespace and name to the live object: a token is invalid once an object that it is bound to is deleted."""


class TokenSigner:
    def __init__(self, key: PrivateKey) -> None:
        self._key = key
        self._public = key.public_key()
        der = self._public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        self.key_id = urlsafe_b64encode(hashlib.sha256(der).digest()).rstrip(b"=").decode()

    @classmethod
    def load(cls, path: Path) -> TokenSigner:
        """Reads the key from a file, which is created if it does not exist."""
        if not path.exists():
            write_private(path, key_pem(new_key()))
        return cls(load_key(path.read_bytes()))

    def issue(
        self,
        account: Document,
        *,
        audiences: Sequence[str],
        now: float,
        seconds: int,
        bound: Mapping[str, BoundObject] = MappingProxyType({}),
        warn_after: int = 0,
    ) -> str:
        """A token for the service account; `bound` are objects by kind (`pod`, `secret`, `node`), of which a pod may come
        with its node. Uses of the token later than `warn_after` seconds from now are reported, if that is not 0."""
        meta = account["metadata"]
        claims: dict[str, Any] = {
            "namespace": meta["namespace"],
            **{kind: bound[kind].claim() for kind in ("node", "pod", "secret") if kind in bound},
            "serviceaccount": {"name": meta["name"], "uid": meta.get("uid", "")},
        }
        if warn_after:
            claims["warnafter"] = int(now) + warn_after
        return jwt.encode(
            {
                "aud": list(audiences),
                "exp": int(now) + seconds,
                "iat": int(now),
                "iss": ISSUER,
                "jti": str(uuid.uuid4()),
                "kubernetes.io": claims,
                "nbf": int(now),
                "sub": f"system:serviceaccount:{meta['namespace']}:{meta['name']}",
            },
            self._key,
            _ALGORITHM,
            headers={"kid": self.key_id},
        )

    def claims(self, token: str) -> dict[str, Any]:
        """The claims of a token signed by this server. `check_claims` decides whether they still hold."""
        try:
            decoded = jwt.decode_complete(token, self._public, algorithms=[_ALGORITHM], options=_SIGNATURE_ONLY)
        except (jwt.PyJWTError, ValueError) as error:
            raise InvalidToken("not signed by this server") from error
        if decoded["header"].get("kid") != self.key_id:
            raise InvalidToken("not signed by this server")
        payload: dict[str, Any] = decoded["payload"]
        return payload

    def keys(self) -> Document:
        """The JSON Web Key Set with which others verify our tokens."""
        key = ECAlgorithm.to_jwk(self._public, as_dict=True)
        return {"keys": [{"use": "sig", "kid": self.key_id, "alg": _ALGORITHM, **key}]}


def check_claims(claims: dict[str, Any], *, now: float, lookup: Lookup) -> VerifiedToken:
    """Checks the times, the issuer and the objects that signed claims name. Raises InvalidToken.

    After pkg/serviceaccount/claims.go of Kubernetes.
    """
    if claims.get("iss") != ISSUER:
        raise InvalidToken("foreign issuer")
    if now - _LEEWAY > claims["exp"]:
        raise InvalidToken("service account token has expired")
    if now < claims["nbf"] - _LEEWAY:
        raise InvalidToken("service account token is not valid yet")
    private = claims["kubernetes.io"]
    namespace, account = private["namespace"], private["serviceaccount"]
    deleted_before = now - _LEEWAY
    found = lookup("serviceaccount", namespace, account["name"])
    if found is None:
        raise InvalidToken(f'serviceaccounts "{account["name"]}" not found')
    uid = found["metadata"].get("uid", "")
    if uid != account["uid"]:
        raise InvalidToken(f"service account UID ({uid}) does not match claim ({account['uid']})")
    if _deleted(found, deleted_before):
        raise InvalidToken(f"service account {namespace}/{account['name']} has been deleted")
    user = service_account(namespace, account["name"])
    extra: dict[str, tuple[str, ...]] = {"authentication.kubernetes.io/credential-id": (f"JTI={claims['jti']}",)}
    for kind in ("secret", "pod", "node"):
        if bound := private.get(kind):
            if kind != "node":
                _check_bound(kind, lookup(kind, namespace, bound["name"]), bound["uid"], deleted_before)
            elif "pod" not in private:
                _check_bound(kind, lookup(kind, "", bound["name"]), bound["uid"], deleted_before)
            if kind != "secret":
                extra[f"authentication.kubernetes.io/{kind}-name"] = (bound["name"],)
                if bound.get("uid"):
                    extra[f"authentication.kubernetes.io/{kind}-uid"] = (bound["uid"],)
    audiences = tuple(claims["aud"])
    return VerifiedToken(User(user.name, user.groups, account["uid"], extra), audiences, claims["exp"])


def _check_bound(kind: str, found: Document | None, uid: str, deleted_before: float) -> None:
    """The node of a token that is bound to a pod is not checked: it is there for information."""
    if found is None or _deleted(found, deleted_before):
        raise InvalidToken("service account token has been invalidated")
    if (current := found["metadata"].get("uid", "")) != uid:
        raise InvalidToken(f"{kind} UID ({current}) does not match service account {kind} ref claim ({uid})")


def _deleted(document: Document, before: float) -> bool:
    """Whether the object was to be gone before this time; one with finalizers, or a pod that ends, may still exist."""
    stamp = document["metadata"].get("deletionTimestamp")
    return stamp is not None and parse_time(stamp) < before
