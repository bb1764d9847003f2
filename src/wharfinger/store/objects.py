"""What the store hands out: one object at one version, a list of them, a change, and the outcome of a write.

Objects are JSON bytes, complete and in the storage version. `arrange` fixes the order of the leading fields, so that
another version can be written into the bytes without decoding them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import msgspec

from wharfinger.api.registry import Document
from wharfinger.api.views import decode

T = TypeVar("T")

ADDED, MODIFIED, DELETED, BOOKMARK = "ADDED", "MODIFIED", "DELETED", "BOOKMARK"

encode = msgspec.json.Encoder().encode
decode_document = cast("Any", msgspec.json.Decoder()).decode


class _Meta(msgspec.Struct, gc=False):
    labels: dict[str, str] | None = None


class _Labelled(msgspec.Struct, gc=False):
    metadata: _Meta


_decode_labels = msgspec.json.Decoder(_Labelled).decode
_NO_LABELS: Mapping[str, str] = {}


class Stored(msgspec.Struct, gc=False, eq=False, weakref=False):
    """One object at one version. Labels, selectable fields and views are worked out once, when first asked for."""

    namespace: str
    name: str
    uid: str
    version: int
    data: bytes
    created: int  # the version at which this object was created: its row in a data file
    _labels: Mapping[str, str] | None = None
    _fields: tuple[str, ...] | None = None
    _forms: dict[Any, Any] | None = None  # views by type, and other served versions by apiVersion

    @property
    def labels(self) -> Mapping[str, str]:
        if self._labels is None:
            self._labels = _decode_labels(self.data).metadata.labels or _NO_LABELS
        return self._labels

    def document(self) -> Document:
        """Decoded afresh: the caller may change it."""
        return cast("Document", decode_document(self.data))

    def view(self, as_type: type[T]) -> T:
        """A typed view, decoded once however many watchers ask for it."""
        if self._forms is None:
            self._forms = {}
        found = self._forms.get(as_type)
        if found is None:
            found = self._forms[as_type] = decode(self.data, as_type)
        return cast("T", found)

    def forget_forms(self) -> None:
        self._forms = None

    def at_version(self, version: int) -> Stored:
        """The same content under a later version: how watches show an object that went."""
        old, new = b'"resourceVersion":"%d"' % self.version, b'"resourceVersion":"%d"' % version
        return Stored(
            self.namespace,
            self.name,
            self.uid,
            version,
            self.data.replace(old, new, 1),
            self.created,
            self._labels,
            self._fields,
        )


def arrange(document: Document, version: int) -> Document:
    """The document with its identity first and its version set.

    Nothing before `metadata.resourceVersion` can hold that name unescaped, so its first occurrence in the bytes is it.
    """
    metadata = document["metadata"]
    head = {"name": "", "namespace": "", "uid": ""} if metadata.get("namespace") else {"name": "", "uid": ""}
    ordered = {**head, "resourceVersion": "", **metadata}
    ordered["resourceVersion"] = str(version)
    arranged = {"apiVersion": "", "kind": "", "metadata": None, **document}
    arranged["metadata"] = ordered
    return arranged


def key_of(namespace: str, name: str) -> str:
    """How objects of one kind are told apart and ordered: as etcd orders them."""
    return f"{namespace}/{name}" if namespace else name


@dataclass(frozen=True, slots=True)
class Listing:
    """One page: `continue_token` is empty on the last one; `remaining` is known only where nothing selects."""

    items: list[Stored]
    version: int
    continue_token: str = ""
    remaining: int | None = None


class StoreEvent(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One event of a watch. `object` is None for bookmarks."""

    type: str
    object: Stored | None
    version: int
    initial_events_end: bool = False


@dataclass(frozen=True, slots=True)
class Written:
    """The outcome of a write: the object (or Status) in the version asked for, as document and as bytes."""

    known: Document | None  # the document where there is one already
    data: bytes
    created: bool = False
    warnings: tuple[str, ...] = ()
    deleted: bool = False  # the object is gone, not merely going

    @property
    def document(self) -> Document:
        return self.known if self.known is not None else cast("Document", decode_document(self.data))
