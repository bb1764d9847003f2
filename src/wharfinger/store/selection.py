"""Label and field selectors of lists and watches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from wharfinger.api.errors import BadRequest
from wharfinger.api.registry import Kind
from wharfinger.api.selectors import FieldRequirement, Operator, Requirement, Requirements, field_text, matches
from wharfinger.store.collection import ObjectIndex
from wharfinger.store.interests import Interest
from wharfinger.store.objects import StoredObject

# The text of an absent field, where Go's zero value is not the empty string.
_ZERO = {
    "spec.unschedulable": "false",
    "spec.hostNetwork": "false",
    "status.replicas": "0",
    "status.successful": "0",
}
# Events of the core group may be selected by `source`, the reporting component.
_ELSEWHERE = {("Event", "source"): "source.component"}


Form = Callable[[StoredObject], StoredObject]
"""An object in the version in which it is selected. Raises ConversionNeeded if somebody has to be asked first."""


@lru_cache(1024)
def _places(kind: str, fields: tuple[str, ...]) -> tuple[tuple[str, str, str, str], ...]:
    """Selectable fields in order: part and name where the path is `part.name`, the path, and the zero value."""
    places = []
    for selectable in fields:
        path = _ELSEWHERE.get((kind, selectable), selectable)
        part, _, name = path.partition(".")
        plain = name and "." not in name
        places.append((part if plain else "", name if plain else "", path, _ZERO.get(selectable, "")))
    return tuple(places)


def selectable_fields(kind: Kind, document: Any) -> tuple[str, ...]:
    """The values of the kind's selectable fields as text, in the kind's order."""
    return _texts_of(_places(kind.kind, kind.selectable), document)


def _texts_of(places: tuple[tuple[str, str, str, str], ...], document: Any) -> tuple[str, ...]:
    texts = []
    last, inside = "", None
    for part, name, path, zero in places:
        if part != last:
            last, inside = part, document.get(part) if part else None
        value = inside.get(name) if type(inside) is dict else None if part else field_text(document, path)
        if type(value) is str:
            texts.append(value or zero)
        else:
            texts.append(zero if value is None else field_text(document, path) or zero)
    return tuple(texts)


class ObjectSelector:
    """A label selector and a field selector, compiled for one kind.

    The fields of a custom kind are those of the requested `version`. If objects are not served as they are stored, `form`
    converts them.
    """

    __slots__ = ("_fields", "_form", "_indexed", "_labels", "_names", "_paths", "_places", "empty")

    def __init__(
        self,
        kind: Kind,
        labels: Requirements,
        fields: Sequence[FieldRequirement],
        version: str = "",
        form: Form | None = None,
    ) -> None:
        paths = kind.selectable
        if form is not None and kind.selectable_in is not None:
            paths = kind.selectable_in.get(version, ())
        self._paths = paths
        self._places = _places(kind.kind, paths)
        self._indexed = kind.indexed
        self._labels = labels
        self._names: list[FieldRequirement] = []
        self._fields: list[tuple[int, str, bool]] = []
        for field in fields:
            if field.path in ("metadata.name", "metadata.namespace"):
                self._names.append(field)
            elif field.path in paths:
                self._fields.append((paths.index(field.path), field.value, field.equal))
            elif paths or kind.ours or kind.custom:
                raise BadRequest(f"field label not supported: {field.path}")
            else:
                raise BadRequest(
                    f'"{field.path}" is not a known field selector: only "metadata.name", "metadata.namespace"'
                )
        self._form = form if self._fields else None
        self.empty = not (labels or fields)

    @property
    def by_field(self) -> bool:
        """Whether fields other than name and namespace are selected; stored objects cache those."""
        return bool(self._fields) and self._form is None

    @property
    def converts(self) -> bool:
        """Whether `matches` converts objects, and so may raise ConversionNeeded."""
        return self._form is not None

    def matches(self, stored: StoredObject) -> bool:
        for field in self._names:
            text = stored.name if field.path == "metadata.name" else stored.namespace
            if (text == field.value) is not field.equal:
                return False
        if self._form is not None:
            stored = self._form(stored)
        if self._fields:
            texts = self._texts(stored)
            for position, value, equal in self._fields:
                if (texts[position] == value) is not equal:
                    return False
        return not self._labels or matches(self._labels, stored.labels)

    def _texts(self, stored: StoredObject) -> tuple[str, ...]:
        texts = stored._fields
        if texts is None:
            texts = stored._fields = _texts_of(self._places, stored.document())
        return texts

    def keys(self, index: ObjectIndex, prefix: str = "", start: str = "") -> list[str]:
        """The sorted keys of all objects that may match, with this prefix, from `start` on."""
        for position, value, equal in self._fields:
            if equal and self._form is None and self._paths[position] in self._indexed:
                return index.keys_of(self._field_interest(position, value), prefix, start)
        return index.keys(prefix, start)

    def interest(self, prefix: str) -> Interest | None:
        """The property by which matching objects with this prefix of their keys are found; None if there is none.

        Of several, the one that fewest objects are expected to share.
        """
        for field in self._names:
            if field.equal and field.path == "metadata.name":
                return Interest("name", _name, (field.value,))
        for position, value, equal in self._fields:
            if equal and self._form is None:
                return self._field_interest(position, value)
        for label in self._labels if self._form is None else ():
            if (found := _label_interest(label)) is not None:
                return found
        for field in self._names:
            if field.equal:
                return Interest("namespace", _namespace, (field.value,))
        return Interest("namespace", _namespace, (prefix.removesuffix("/"),)) if prefix else None

    def _field_interest(self, position: int, value: str) -> Interest:
        return Interest(self._paths[position], lambda stored: self._texts(stored)[position], (value,))


def _label_interest(label: Requirement) -> Interest | None:
    key = label.key
    if label.operator is Operator.IN:
        return Interest(f"label {key}", lambda stored: stored.labels.get(key), tuple(label.values))
    if label.operator is Operator.EXISTS:
        return Interest(f"has label {key}", lambda stored: "" if key in stored.labels else None, ("",))
    return None


def _name(stored: StoredObject) -> str:
    return stored.name


def _namespace(stored: StoredObject) -> str:
    return stored.namespace
