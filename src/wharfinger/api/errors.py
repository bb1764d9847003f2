"""API errors: exceptions for every error response of an API server, with the Kubernetes `Status` of each.

    ApiError
    ├── BadRequest 400          ├── Conflict 409            ├── TooManyRequests 429
    ├── Unauthorized 401        ├── AlreadyExists 409       ├── InternalError 500
    ├── Forbidden 403           ├── Expired 410             ├── ServiceUnavailable 503
    ├── NotFound 404            ├── TooLarge 413            └── ServerTimeout 504
    ├── MethodNotAllowed 405    ├── UnsupportedMediaType 415
    └── NotAcceptable 406       └── Invalid 422

The store and the API server raise them; clients turn a server's Status back into the same exceptions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wharfinger.api.fields import FieldError, describe


class ApiError(Exception):
    code = 500
    reason = "InternalError"

    def __init__(
        self,
        message: str,
        *,
        code: int | None = None,
        reason: str | None = None,
        details: dict[str, Any] | None = None,
        retry_after: float | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = self.code if code is None else code
        self.reason = self.reason if reason is None else reason
        self.details = details or {}
        self.retry_after = retry_after
        self.metadata = metadata or {}  # of the Status: a token with which an expired list can continue inconsistently

    def status(self) -> dict[str, Any]:
        """The Kubernetes `Status` document of this error."""
        details = dict(self.details)
        if self.retry_after is not None:
            details["retryAfterSeconds"] = max(1, round(self.retry_after))
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
            **({"reason": self.reason} if self.reason else {}),
            **({"details": details} if details else {}),
            "code": self.code,
        }


class BadRequest(ApiError):
    code, reason = 400, "BadRequest"


class Unauthorized(ApiError):
    code, reason = 401, "Unauthorized"


class Forbidden(ApiError):
    code, reason = 403, "Forbidden"


class NotFound(ApiError):
    code, reason = 404, "NotFound"


class MethodNotAllowed(ApiError):
    code, reason = 405, "MethodNotAllowed"


class NotAcceptable(ApiError):
    code, reason = 406, "NotAcceptable"


class Conflict(ApiError):
    code, reason = 409, "Conflict"


class AlreadyExists(ApiError):
    code, reason = 409, "AlreadyExists"


class Expired(ApiError):
    """The requested resourceVersion is too old; list again."""

    code, reason = 410, "Expired"


class TooLarge(ApiError):
    code, reason = 413, "RequestEntityTooLarge"


class UnsupportedMediaType(ApiError):
    code, reason = 415, "UnsupportedMediaType"


class Invalid(ApiError):
    code, reason = 422, "Invalid"


class TooManyRequests(ApiError):
    """Also for an eviction that would violate a disruption budget."""

    code, reason = 429, "TooManyRequests"


class InternalError(ApiError):
    code, reason = 500, "InternalError"


class ServiceUnavailable(ApiError):
    code, reason = 503, "ServiceUnavailable"


class ServerTimeout(ApiError):
    code, reason = 504, "Timeout"


def qualified(group: str, plural: str) -> str:
    """`pods`, or `deployments.apps`: how messages name a resource."""
    return f"{plural}.{group}" if group else plural


def _details(group: str, plural: str, name: str) -> dict[str, Any]:
    return {key: value for key, value in (("name", name), ("group", group), ("kind", plural)) if value}


def not_found(group: str, plural: str, name: str) -> NotFound:
    return NotFound(f'{qualified(group, plural)} "{name}" not found', details=_details(group, plural, name))


def already_exists(group: str, plural: str, name: str) -> AlreadyExists:
    return AlreadyExists(f'{qualified(group, plural)} "{name}" already exists', details=_details(group, plural, name))


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def conflict(group: str, plural: str, name: str, why: str = MODIFIED) -> Conflict:
    message = f'Operation cannot be fulfilled on {qualified(group, plural)} "{name}": {why}'
    return Conflict(message, details=_details(group, plural, name))


def forbidden(group: str, plural: str, name: str, why: str) -> Forbidden:
    target = f'{qualified(group, plural)} "{name}"' if name else qualified(group, plural)
    return Forbidden(f"{target} is forbidden: {why}", details=_details(group, plural, name))


def invalid_object(group: str, kind: str, name: str, errors: Sequence[FieldError]) -> Invalid:
    """All faults of one object, with a cause for each."""
    causes = [{"reason": error.reason, "message": error.message, "field": error.path} for error in errors]
    return Invalid(
        f'{qualified(group, kind)} "{name}" is invalid: {describe(errors)}',
        details={**_details(group, kind, name), "causes": causes},
    )


def is_terminating_namespace(error: ApiError) -> bool:
    """Whether a creation was refused because the namespace is being deleted, so that a retry is pointless."""
    causes = error.details.get("causes") or ()
    return isinstance(error, Forbidden) and any(cause.get("reason") == "NamespaceTerminating" for cause in causes)


_BY_REASON: dict[str, type[ApiError]] = {cls.reason: cls for cls in ApiError.__subclasses__()} | {"Gone": Expired}
_BY_CODE: dict[int, type[ApiError]] = {cls.code: cls for cls in reversed(ApiError.__subclasses__())}


def from_status(document: dict[str, Any], code: int = 500) -> ApiError:
    """The exception for a server's `Status`: by its reason, or by its code if it has none."""
    code = document.get("code") or code
    reason = document.get("reason") or ""
    cls = _BY_REASON.get(reason) or _BY_CODE.get(code) or ApiError
    details = document.get("details") or {}
    return cls(
        document.get("message") or reason or f"the server answered {code}",
        code=code,
        reason=reason or None,
        details=details,
        retry_after=details.get("retryAfterSeconds"),
        metadata=document.get("metadata"),
    )
