"""Applying patches of each media type to documents. Strategic merge has its own module."""

from __future__ import annotations

from functools import partial
from types import MappingProxyType
from typing import Any

import jsonpatch
import jsonpointer
import msgspec

from wharfinger.api.errors import ApiError, BadRequest, TooLarge, UnsupportedMediaType
from wharfinger.api.registry import Document, Kind
from wharfinger.api.requests import PatchType
from wharfinger.api.schema.tree import schema_of
from wharfinger.store import strategic
from wharfinger.store.versions import copy

_MOST_OPERATIONS = 10_000
MAX_COPIED = 3 * 1024 * 1024  # bytes of JSON that the copy operations of one patch may add, as upstream
_MOST_MOVED = (
    20_000_000  # list items that the operations of one patch may move, by adding and removing others before them
)


def apply_patch(
    kind: Kind, version: str, document: Document, patch: Any, type: PatchType, *, plain: bool = False
) -> Document:
    """Returns the patched document; may change `document` and `patch`. A `plain` patch contains neither nulls nor merge
    directives."""
    if type is PatchType.JSON:
        return _json_patched(document, patch if kind.keeps_nulls else copy({"patch": patch})["patch"])
    if type is PatchType.MERGE:
        return dict(merged(document, _object(patch)))
    if type is PatchType.STRATEGIC and kind.builtin:
        return strategic.merged(document, _object(patch), schema_of(kind, version), plain=plain)
    raise UnsupportedMediaType(
        f"the body of the request was in an unknown format - accepted media types include: {', '.join(patch_media(kind))}"
    )


def patch_media(kind: Kind) -> list[str]:
    """The media types of patches that a kind accepts. Strategic merge needs Go types, which custom kinds do not have."""
    return [type.value for type in PatchType if type is not PatchType.STRATEGIC or kind.builtin]


def _object(patch: Any) -> Document:
    if not isinstance(patch, dict):
        raise BadRequest("error decoding patch: the patch must be an object")
    return patch


def _json_patched(document: Document, patch: Any) -> Document:
    if not isinstance(patch, list):
        raise BadRequest("error decoding patch: a JSON patch is an array of operations")
    if len(patch) > _MOST_OPERATIONS:
        raise TooLarge(f"The allowed maximum operations in a JSON patch is {_MOST_OPERATIONS}, got {len(patch)}")
    try:
        return dict(_Operations(patch).apply(document, in_place=True))
    except (
        jsonpatch.JsonPatchException,
        jsonpointer.JsonPointerException,
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
    ):
        raise ApiError(
            "the server rejected our request due to an error in our request", code=422, reason="Invalid"
        ) from None


class _Replace(jsonpatch.ReplaceOperation):
    """Like upstream's library, also replaces a member that does not exist."""

    def apply(self, obj: Any) -> Any:
        target, part = self.pointer.to_last(obj)
        if isinstance(target, dict) and part is not None:
            target[part] = self.operation["value"]
            return obj
        return super().apply(obj)


class _Copy(jsonpatch.CopyOperation):
    """Copies by way of JSON: that is faster than a deep copy, and gives the size, of which `budget` is left."""

    def __init__(self, budget: list[int], operation: Any, **options: Any) -> None:
        super().__init__(operation, **options)
        self._budget = budget

    def apply(self, obj: Any) -> Any:
        data = msgspec.json.encode(self.pointer_cls(self.operation["from"]).resolve(obj))
        self._budget[0] -= len(data)
        if self._budget[0] < 0:
            raise jsonpatch.JsonPatchException("the copied values are too large")
        added = {"op": "add", "path": self.location, "value": msgspec.json.decode(data)}
        return jsonpatch.AddOperation(added, pointer_cls=self.pointer_cls).apply(obj)


class _Operations(jsonpatch.JsonPatch):
    def __init__(self, patch: Any) -> None:
        copying: Any = partial(_Copy, [MAX_COPIED])
        known = {**jsonpatch.JsonPatch.operations, "replace": _Replace, "copy": copying}
        self.operations = MappingProxyType(known)  # type: ignore[misc]  # per patch, since the budget is

        class Pointer(jsonpointer.JsonPointer):
            """Counts the list items that stand behind the one that an operation is about."""

            moved = 0

            def to_last(self, doc: Any) -> Any:
                holder, part = super().to_last(doc)
                if isinstance(holder, list) and isinstance(part, int):
                    Pointer.moved += len(holder) - part
                    if Pointer.moved > _MOST_MOVED:
                        raise jsonpatch.JsonPatchException("the patch moves too many list items")
                return holder, part

        super().__init__(patch, pointer_cls=Pointer)


def merged(target: Any, patch: Any) -> Any:
    """A JSON merge patch (RFC 7386): members are merged, null removes, anything else replaces."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result
