"""Bootstrap tokens, with which a new node asks for its certificate: Secrets of a special type in `kube-system`. Pure.

After plugin/pkg/auth/authenticator/token/bootstrap of Kubernetes.
"""

from __future__ import annotations

import hmac
import re
import secrets
from base64 import b64decode, b64encode
from binascii import Error as BadBase64

from wharfinger.admission.request import User
from wharfinger.api.registry import Document
from wharfinger.api.times import BadTime, format_time, parse_time

NAMESPACE = "kube-system"
BOOTSTRAPPERS = "system:bootstrappers"
_TYPE = "bootstrap.kubernetes.io/token"
_PREFIX = "bootstrap-token-"
_TOKEN = re.compile(r"([a-z0-9]{6})\.([a-z0-9]{16})")
_GROUP = re.compile(r"system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]")
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


def token_secret_name(token: str) -> str:
    """The name of the Secret of a token; empty if this is not a bootstrap token."""
    found = _TOKEN.fullmatch(token)
    return f"{_PREFIX}{found[1]}" if found else ""


def bootstrap_user(secret: Document, token: str, now: float) -> User | None:
    """The user of a token with this Secret; None if the token is not valid."""
    found = _TOKEN.fullmatch(token)
    if found is None or secret["metadata"].get("deletionTimestamp") or secret.get("type") != _TYPE:
        return None
    data = secret.get("data") or {}
    if not hmac.compare_digest(_value(data, "token-secret"), found[2]) or _value(data, "token-id") != found[1]:
        return None
    if _expired(_value(data, "expiration"), now) or _value(data, "usage-bootstrap-authentication") != "true":
        return None
    extra = _value(data, "auth-extra-groups")
    groups = extra.split(",") if extra else []
    if not all(_GROUP.fullmatch(group) for group in groups):
        return None
    return User(f"system:bootstrap:{found[1]}", (*sorted({BOOTSTRAPPERS, *groups}), "system:authenticated"))


def _value(data: Document, key: str) -> str:
    try:
        return b64decode(data.get(key) or "").decode("ascii")
    except (BadBase64, ValueError, TypeError):
        return ""


def _expired(text: str, now: float) -> bool:
    try:
        return bool(text) and parse_time(text) <= now
    except BadTime:
        return True


def new_token() -> str:
    """A random token."""
    return ".".join("".join(secrets.choice(_LETTERS) for _ in range(length)) for length in (6, 16))


def token_secret(token: str, expires: float, description: str) -> Document:
    """The Secret that makes a token valid until a time."""
    identity, _, secret = token.partition(".")
    data = {
        "token-id": identity,
        "token-secret": secret,
        "expiration": format_time(expires),
        "usage-bootstrap-authentication": "true",
        "description": description,
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": f"{_PREFIX}{identity}", "namespace": NAMESPACE},
        "type": _TYPE,
        "data": {key: b64encode(value.encode()).decode() for key, value in data.items()},
    }
