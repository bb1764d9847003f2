"""Objects that are decoded when somebody looks at them: as JSON they take a tenth of the memory of documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, TypeVar, overload

import msgspec

from wharfinger.api.registry import Document

T = TypeVar("T")

_decode = msgspec.json.Decoder(Document).decode


class Encoded(Protocol):
    @property
    def data(self) -> bytes:
        """The object as JSON, which may be put together now."""
        ...


class EncodedObjects(Sequence[Document]):
    """A sequence of documents. Each access decodes a new one."""

    def __init__(self, encoded: Iterable[tuple[str, Encoded]]) -> None:
        """Kinds, and their objects."""
        self._kinds: list[str] = []
        self._items: list[Encoded] = []
        for kind, item in encoded:
            self._kinds.append(kind)
            self._items.append(item)

    def encoded(self) -> Iterator[bytes]:
        return (item.data for item in self._items)

    def of_kind(self, kind: str) -> Iterator[Document]:
        return map(_decode, self.encoded_of_kind(kind))

    def encoded_of_kind(self, kind: str) -> Iterator[bytes]:
        return (item.data for found, item in zip(self._kinds, self._items) if found == kind)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(a == b for a, b in zip(self, other))

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Document]:
        return map(_decode, self.encoded())

    @overload
    def __getitem__(self, index: int) -> Document: ...
    @overload
    def __getitem__(self, index: slice) -> list[Document]: ...
    def __getitem__(self, index: int | slice) -> Document | list[Document]:
        if isinstance(index, slice):
            return [_decode(item.data) for item in self._items[index]]
        return _decode(self._items[index].data)


def of_kind(objects: Sequence[Document], kind: str) -> Iterator[Document]:
    """The objects of a kind, without decoding the others."""
    if isinstance(objects, EncodedObjects):
        return objects.of_kind(kind)
    return (document for document in objects if document.get("kind") == kind)


def parts_of_kind(objects: Sequence[Document], kind: str, as_type: type[T]) -> Iterator[T]:
    """The same as a type with the fields that are needed, which takes a quarter of the time where there are many."""
    if isinstance(objects, EncodedObjects):
        return map(msgspec.json.Decoder(as_type).decode, objects.encoded_of_kind(kind))
    return (msgspec.convert(document, as_type) for document in of_kind(objects, kind))
