"""Object metadata: the fields that the server sets, and those that clients cannot change. `api/validation` validates it.

After pkg/registry/rest of the API server.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from wharfinger.api.registry import Document, Kind
from wharfinger.api.times import format_time

_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_GENERATED_LIMIT = 63 - 5
_SERVER_FIELDS = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
)
_IDENTITY = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


class Identities:
    """Generates uids, name suffixes and timestamps from the random source and the clock of the store."""

    def __init__(self, now: Callable[[], float], source: random.Random, *, keep_given: bool = False) -> None:
        self.now = now
        self.keep_given = keep_given
        self._random = source
        self._second = -1
        self._text = ""

    def uid(self) -> str:
        digits = f"{self._random.getrandbits(128):032x}"
        variant = "89ab"[int(digits[16], 16) & 3]
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"

    def name(self, prefix: str) -> str:
        letters = "".join(self._random.choices(_SUFFIX_LETTERS, k=5))
        return f"{prefix[:_GENERATED_LIMIT]}{letters}"

    def time(self) -> str:
        second = int(self.now() // 1)
        if second != self._second:
            self._second, self._text = second, format_time(second)
        return self._text


def initialise(kind: Kind, metadata: Document, identities: Identities) -> None:
    """Sets the server's fields on a new object, in place."""
    given = {field: metadata.pop(field) for field in _SERVER_FIELDS if field in metadata}
    _drop_empty(metadata)
    metadata["uid"] = identities.uid()
    metadata["creationTimestamp"] = identities.time()
    if identities.keep_given:
        metadata.update({field: given[field] for field in _IDENTITY if given.get(field) is not None})
    if kind.generation:
        metadata["generation"] = 1


def _drop_empty(metadata: Document) -> None:
    """Kubernetes does not distinguish empty metadata fields from absent ones."""
    for field in [field for field, value in metadata.items() if not value and not isinstance(value, int)]:
        del metadata[field]


def keep_server_fields(new: Document, old: Document) -> None:
    """Restores fields that an update cannot change, where Kubernetes does so silently; validation rejects other changes."""
    metadata, before = new["metadata"], old["metadata"]
    metadata.pop("managedFields", None)
    metadata.pop("selfLink", None)
    _drop_empty(metadata)
    for field in ("generation", "creationTimestamp"):
        if field in before:
            metadata[field] = before[field]
        else:
            metadata.pop(field, None)
    if "deletionTimestamp" in before:
        metadata.setdefault("deletionTimestamp", before["deletionTimestamp"])
    if not metadata.get("uid"):
        metadata["uid"] = before["uid"]
    if "deletionGracePeriodSeconds" in before:
        metadata.setdefault("deletionGracePeriodSeconds", before["deletionGracePeriodSeconds"])
    else:
        metadata.pop("deletionGracePeriodSeconds", None)
