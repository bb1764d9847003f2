"""Objects that are held as JSON and decoded when somebody looks at them: a tenth of the memory of documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import msgspec

from wharfinger.api.registry import Document

_decode = msgspec.json.Decoder(Document).decode


class EncodedObjects(Sequence[Document]):
    """A sequence of documents. Each access decodes a new one."""

    def __init__(self, encoded: Iterable[tuple[str, bytes]]) -> None:
        """Kinds, and objects as JSON."""
        self._kinds: list[str] = []
        self.data: list[bytes] = []
        for kind, data in encoded:
            self._kinds.append(kind)
            self.data.append(data)

    def of_kind(self, kind: str) -> Iterator[Document]:
        for found, data in zip(self._kinds, self.data):
            if found == kind:
                yield _decode(data)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(a == b for a, b in zip(self, other))

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[Document]:
        return map(_decode, self.data)

    @overload
    def __getitem__(self, index: int) -> Document: ...
    @overload
    def __getitem__(self, index: slice) -> list[Document]: ...
    def __getitem__(self, index: int | slice) -> Document | list[Document]:
        if isinstance(index, slice):
            return [_decode(data) for data in self.data[index]]
        return _decode(self.data[index])


def of_kind(objects: Sequence[Document], kind: str) -> Iterator[Document]:
    """The objects of a kind, without decoding the others."""
    if isinstance(objects, EncodedObjects):
        return objects.of_kind(kind)
    return (document for document in objects if document.get("kind") == kind)
