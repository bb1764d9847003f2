"""Authentication: client certificates, bearer tokens, anonymous access to a few paths, and impersonation."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import msgspec
from cryptography import x509
from cryptography.x509.oid import NameOID

from wharfinger.admission.authorization import Authorizer
from wharfinger.admission.rbac import Attributes
from wharfinger.admission.request import User, service_account
from wharfinger.api.errors import BadRequest, Unauthorized
from wharfinger.apiserver.bootstrap_tokens import NAMESPACE as BOOTSTRAP_NAMESPACE
from wharfinger.apiserver.bootstrap_tokens import bootstrap_user, token_secret_name
from wharfinger.apiserver.tokens import AUDIENCE, InvalidToken, Lookup, TokenSigner, VerifiedToken, check_claims

AUTHENTICATED, UNAUTHENTICATED = "system:authenticated", "system:unauthenticated"
ANONYMOUS = User("system:anonymous", (UNAUTHENTICATED,))

# Paths open to anonymous requests; compare `AnonymousAuthConfig.conditions` of kube-apiserver.
_ANONYMOUS_PATHS = frozenset(("healthz", "livez", "readyz", "version"))
_CACHED_TOKENS = 4096  # with verified signatures
_UID = x509.ObjectIdentifier("1.3.6.1.4.1.57683.2")  # of a subject: the user's UID


class CertificateUser(msgspec.Struct, frozen=True):
    """The user of a client certificate, until it expires. None if its subject names no user."""

    user: User | None
    expires: float

    @classmethod
    def of(cls, der: bytes) -> CertificateUser:
        """After CommonNameUserConversion of kube-apiserver. TLS has verified that our authority issued it for clients."""
        certificate = x509.load_der_x509_certificate(der)
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        groups = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
        uids = certificate.subject.get_attributes_for_oid(_UID)
        expires = certificate.not_valid_after_utc.timestamp()
        if not names or not names[-1].value or len(uids) > 1:
            return cls(None, expires)
        credential = f"X509SHA256={hashlib.sha256(der).hexdigest()}"
        user = User(
            str(names[-1].value),
            (*dict.fromkeys(str(group.value) for group in groups), AUTHENTICATED),
            str(uids[0].value) if uids else "",
            {"authentication.kubernetes.io/credential-id": (credential,)},
        )
        return cls(user, expires)


class Authenticator:
    """Accepts certificates issued by our authority, static tokens, tokens signed by this server, and bootstrap tokens."""

    def __init__(
        self, static: Mapping[str, User], signer: TokenSigner, lookup: Lookup, now: Callable[[], float]
    ) -> None:
        # Keyed by digest, so that the duration of a look-up reveals nothing about tokens.
        self._static = {_digest(token): user for token, user in static.items()}
        # Headers with such a token that were seen. Hashes of strings have a random key, so this reveals nothing either.
        self._seen: dict[str, User] = {}
        self._signer = signer
        self._lookup = lookup
        self._now = now
        self._signed: OrderedDict[bytes, dict[str, Any]] = OrderedDict()
        self._certified: OrderedDict[bytes, CertificateUser] = OrderedDict()

    def authenticate(self, authorization: str, parts: Sequence[str], certificate: bytes | None = None) -> User:
        """The user of a client certificate (in DER) or of an `Authorization` header. Raises Unauthorized."""
        if certificate is not None and (user := self._certificate_user(certificate)) is not None:
            return user
        if (user := self._seen.get(authorization)) is not None:
            return user
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() == "bearer" and token.strip():
            user = self.user_of(token.strip())
            if user is None:
                raise Unauthorized("Unauthorized")
            if authorization == f"Bearer {token}" and _digest(token) in self._static:
                self._seen[authorization] = user
            return user
        if authorization or not (parts and parts[0] in _ANONYMOUS_PATHS):
            raise Unauthorized("Unauthorized")
        return ANONYMOUS

    def user_of(self, token: str) -> User | None:
        """The user of a token for this server; None if it is invalid."""
        digest = _digest(token)
        if (user := self._static.get(digest)) is not None:
            return user
        if (user := self._bootstrap_user(token)) is not None:
            return user
        try:
            verified = self._verified(token, digest)
        except InvalidToken:
            return None
        return verified.user if AUDIENCE in verified.audiences else None

    def _certificate_user(self, der: bytes) -> User | None:
        found = self._certified.get(der)
        if found is None:
            found = self._certified[der] = CertificateUser.of(der)
            if len(self._certified) > _CACHED_TOKENS:
                self._certified.popitem(last=False)
        return found.user if self._now() < found.expires else None

    def _bootstrap_user(self, token: str) -> User | None:
        name = token_secret_name(token)
        secret = self._lookup("secret", BOOTSTRAP_NAMESPACE, name) if name else None
        return None if secret is None else bootstrap_user(secret, token, self._now())

    def review(self, token: str, audiences: Sequence[str]) -> tuple[User, tuple[str, ...]]:
        """The user of a token, and those of the audiences that it is valid for. Raises InvalidToken."""
        digest = _digest(token)
        wanted = tuple(audiences) or (AUDIENCE,)
        if (user := self._static.get(digest) or self._bootstrap_user(token)) is not None:
            meant = tuple(audience for audience in wanted if audience == AUDIENCE)
            if not meant:
                raise InvalidToken(f"token audiences [{AUDIENCE!r}] is invalid for the target audiences {list(wanted)}")
            return user, meant
        verified = self._verified(token, digest)
        meant = tuple(audience for audience in wanted if audience in verified.audiences)
        if not meant:
            raise InvalidToken(
                f"token audiences {list(verified.audiences)} is invalid for the target audiences {list(wanted)}"
            )
        return verified.user, meant

    def _verified(self, token: str, digest: bytes) -> VerifiedToken:
        claims = self._signed.get(digest)
        if claims is None:
            claims = self._signer.claims(token)
            self._signed[digest] = claims
            if len(self._signed) > _CACHED_TOKENS:
                self._signed.popitem(last=False)
        return check_claims(claims, now=self._now(), lookup=self._lookup)


def _digest(token: str) -> bytes:
    return hashlib.blake2b(token.encode("utf-8", "surrogatepass"), digest_size=32).digest()


def impersonated(user: User, headers: Iterable[tuple[bytes, bytes]], authorizer: Authorizer) -> User:
    """The user in the `Impersonate-…` headers. Raises Forbidden if `user` may not impersonate it."""
    name, uid = "", ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}
    for key, raw in headers:
        if not key.startswith(b"impersonate-"):
            continue
        value = raw.decode("utf-8", "replace")
        if key == b"impersonate-user":
            name = value
        elif key == b"impersonate-uid":
            uid = value
        elif key == b"impersonate-group":
            groups.append(value)
        elif key.startswith(b"impersonate-extra-"):
            extra.setdefault(unquote(key[len(b"impersonate-extra-") :].decode("latin-1")).lower(), []).append(value)
    if not name:
        if uid or groups or extra:
            raise BadRequest("requested impersonation of groups, uid or extras without impersonating a user")
        return user
    for check in _impersonation_checks(user, name, uid, groups, extra):
        if not authorizer.allowed(check).allowed:
            raise check.forbidden()
    if not groups and name.startswith("system:serviceaccount:") and name.count(":") == 3:
        _, _, namespace, account = name.split(":")
        groups = list(service_account(namespace, account).groups)
    membership = UNAUTHENTICATED if name == ANONYMOUS.name else AUTHENTICATED
    if membership not in groups and UNAUTHENTICATED not in groups:
        groups.append(membership)
    return User(name, tuple(groups), uid, {key: tuple(values) for key, values in extra.items()})


def _impersonation_checks(
    user: User, name: str, uid: str, groups: list[str], extra: dict[str, list[str]]
) -> Iterable[Attributes]:
    if name.startswith("system:serviceaccount:") and name.count(":") == 3:
        _, _, namespace, account = name.split(":")
        yield Attributes(user, "impersonate", "", "serviceaccounts", name=account, namespace=namespace)
    else:
        yield Attributes(user, "impersonate", "", "users", name=name)
    for group in groups:
        yield Attributes(user, "impersonate", "", "groups", name=group)
    for key, values in extra.items():
        for value in values:
            yield Attributes(user, "impersonate", "authentication.k8s.io", "userextras", key, name=value)
    if uid:
        yield Attributes(user, "impersonate", "authentication.k8s.io", "uids", name=uid)
