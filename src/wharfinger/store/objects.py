"""The values that the store returns: an object at a version, a list, a watch event, and the result of a write.

Objects are stored as JSON bytes in the storage version. `arrange` fixes the order of the leading fields, so that the
resource version can be replaced in the bytes without decoding them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, cast

import msgspec

from wharfinger.api.registry import Document
from wharfinger.api.views import Pod, decode
from wharfinger.api.views.meta import Metadata
from wharfinger.api.views.shared_pods import decode_pod
from wharfinger.store.contents import EventContent, PodContent

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
_POD = b'{"apiVersion":"v1","kind":"Pod",'


class StoredObject(msgspec.Struct, gc=False, eq=False, weakref=False):
    """One object at one version. Labels, selectable fields and views are computed once, on first use."""

    namespace: str
    name: str
    uid: str
    version: int
    content: bytes | PodContent | EventContent  # the JSON, or what it is put together from when it is read
    created: int  # the version at which the object was created; identifies its row in a data file
    _labels: Mapping[str, str] | None = None
    _fields: tuple[str, ...] | None = None
    _forms: dict[Any, Any] | None = None  # views by type, and other served versions by apiVersion
    # The views that nearly all objects have, outside of the dictionary, which takes more room than they: the first that was
    # asked for, and the metadata, which the garbage collector reads.
    _viewed: Any = None
    _view: Any = None
    _metadata: Metadata | None = None

    @property
    def data(self) -> bytes:
        content = self.content
        if type(content) is bytes:
            return content
        return content.encoded(self.namespace, self.name, self.uid, self.version)  # type: ignore[union-attr]

    @property
    def labels(self) -> Mapping[str, str]:
        if self._labels is None:
            self._labels = _decode_labels(self.data).metadata.labels or _NO_LABELS
        return self._labels

    def document(self) -> Document:
        """Decodes a new document, which the caller may change."""
        return cast("Document", decode_document(self.data))

    def view(self, as_type: type[T]) -> T:
        """A typed view, decoded once for all watchers."""
        if self._viewed is as_type:
            found: T = self._view
            return found
        if as_type is Metadata:
            if self._metadata is None:
                self._metadata = self._decoded(Metadata)
            return cast("T", self._metadata)
        if self._viewed is None:
            self._viewed, self._view = as_type, self._decoded(as_type)
            return cast("T", self._view)
        if self._forms is None:
            self._forms = {}
        if as_type not in self._forms:
            self._forms[as_type] = self._decoded(as_type)
        return cast("T", self._forms[as_type])

    def _decoded(self, as_type: type[Any]) -> Any:
        content = self.content
        if as_type is Pod:
            if type(content) is PodContent:
                return content.pod(self.namespace, self.name, self.uid, self.version)
            return decode_pod(self.data)
        if as_type is Metadata and (type(content) is PodContent or self.data.startswith(_POD)):
            return Metadata(self.view(Pod).metadata, "v1", "Pod")  # somebody will want both
        return decode(self.data, as_type)

    def drop_forms(self) -> None:
        self._forms = self._viewed = self._view = self._metadata = None

    def at_version(self, version: int) -> StoredObject:
        """The same content with a later version, as watches report a deleted object."""
        old, new = b'"resourceVersion":"%d"' % self.version, b'"resourceVersion":"%d"' % version
        return StoredObject(
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
    """The document with the identifying fields first and its version set.

    No field before `metadata.resourceVersion` can contain that name unescaped, so its first occurrence in the bytes is
    the field itself.
    """
    metadata = document["metadata"]
    head = {"name": "", "namespace": "", "uid": ""} if metadata.get("namespace") else {"name": "", "uid": ""}
    ordered = {**head, "resourceVersion": "", **metadata}
    ordered["resourceVersion"] = str(version)
    arranged = {"apiVersion": "", "kind": "", "metadata": None, **document}
    arranged["metadata"] = ordered
    return arranged


def key_of(namespace: str, name: str) -> str:
    """The key of an object among those of its kind, ordered as in etcd."""
    return f"{namespace}/{name}" if namespace else name


class Listing(msgspec.Struct, frozen=True):
    """One page; `continue_token` is empty on the last one. `remaining` is known only without selectors."""

    items: list[StoredObject]
    version: int
    continue_token: str = ""
    remaining: int | None = None


class StoreEvent(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One watch event. `object` is None for bookmarks."""

    type: str
    object: StoredObject | None
    version: int
    initial_events_end: bool = False


class Written(msgspec.Struct, frozen=True):
    """The result of a write: the object (or Status) in the requested version, as a document and as bytes."""

    known: Document | None  # the document, if already decoded
    encoded: bytes | StoredObject
    created: bool = False
    warnings: tuple[str, ...] = ()
    deleted: bool = False  # removed, not only marked for deletion

    @property
    def data(self) -> bytes:
        return self.encoded if isinstance(self.encoded, bytes) else self.encoded.data

    @property
    def identity(self) -> Document:
        """The document, or at least the metadata that identifies the object."""
        stored = self.encoded
        if self.known is not None or isinstance(stored, bytes):
            return self.document
        return {"metadata": {"name": stored.name, "namespace": stored.namespace, "uid": stored.uid}}

    @property
    def document(self) -> Document:
        return self.known if self.known is not None else cast("Document", decode_document(self.data))
