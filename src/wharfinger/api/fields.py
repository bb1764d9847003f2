"""Field errors: what is wrong with an object and where, worded as in Kubernetes.

Validation functions return a list of these, so that all faults of an object are reported together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec


@dataclass(frozen=True, slots=True)
class FieldError:
    """One fault: `str(error)` reads like `spec.units[0].priority: Invalid value: -1: must be 0 or more`."""

    path: str
    reason: str  # the wire reason in Status causes: FieldValueInvalid, FieldValueRequired, …
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


def show(value: Any) -> str:
    """A value as Kubernetes prints it in messages: strings quoted, the rest as JSON."""
    return msgspec.json.encode(value).decode()


def invalid(path: str, value: Any, detail: str) -> FieldError:
    return FieldError(path, "FieldValueInvalid", f"Invalid value: {show(value)}: {detail}")


def invalid_whole(path: str, detail: str) -> FieldError:
    """For messages that do not show the value."""
    return FieldError(path, "FieldValueInvalid", f"Invalid value: {detail}")


def required(path: str, detail: str = "") -> FieldError:
    return FieldError(path, "FieldValueRequired", f"Required value: {detail}" if detail else "Required value")


def duplicate(path: str, value: Any) -> FieldError:
    return FieldError(path, "FieldValueDuplicate", f"Duplicate value: {show(value)}")


def forbidden(path: str, detail: str) -> FieldError:
    return FieldError(path, "FieldValueForbidden", f"Forbidden: {detail}")


def not_supported(path: str, value: Any, supported: Sequence[str]) -> FieldError:
    names = ", ".join(show(name) for name in supported)
    return FieldError(path, "FieldValueNotSupported", f"Unsupported value: {show(value)}: supported values: {names}")


def too_long(path: str, limit: int) -> FieldError:
    return FieldError(path, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")


def too_many(path: str, actual: int, limit: int) -> FieldError:
    return FieldError(path, "FieldValueTooMany", f"Too many: {actual}: must have at most {limit} items")


MALFORMED = "FieldValueTypeInvalid"
"""The reason of faults in the structure of a document."""


def wrong_type(path: str, value: Any, expected: str) -> FieldError:
    return FieldError(path, MALFORMED, f"Invalid value: {show(value)}: must be of type {expected}")


def immutable(path: str, value: Any) -> FieldError:
    return invalid(path, value, "field is immutable")


def describe(errors: Iterable[FieldError]) -> str:
    """The faults in one line; more than one in brackets, as Kubernetes aggregates them."""
    texts = list(dict.fromkeys(str(error) for error in errors))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
