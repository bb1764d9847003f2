"""Type checks of applied configurations, with the messages of structured-merge-diff.

Ranges of numbers, times and quantities are checked when the object is decoded.
"""

from __future__ import annotations

from typing import Any

from wharfinger.api.go_text import plain, spelled, type_name
from wharfinger.api.schema.tree import Schema
from wharfinger.store.field_sets import Path, describe, is_granular, item_key

_UNTYPED = frozenset(("quantity", "time"))
_NUMERIC = frozenset(("int32", "int64", "number"))


def typed_faults(schema: Schema, value: Any, *, declared: bool) -> list[str]:
    """All faults. Unless `declared`, the schema is incomplete and only duplicate list items are faults."""
    return _Faults(declared).within(schema, value, "")


class _Faults:
    def __init__(self, declared: bool) -> None:
        self._declared = declared

    def within(self, schema: Schema, value: Any, at: str) -> list[str]:
        if value is None or schema.type in ("any", "int-or-string"):
            return []
        if schema.type in ("object", "map"):
            if isinstance(value, dict):
                return self._members(schema, value, at)
            return self._fault(at, f"expected map, got &{{{plain(value)}}}")
        if schema.type == "list":
            if isinstance(value, list):
                return self._items(schema, value, at)
            return self._fault(at, f"expected list, got &{{{plain(value)}}}")
        return self._scalar(schema.type, value, at)

    def _fault(self, at: str, text: str) -> list[str]:
        return [f"{at}: {text}" if at else text] if self._declared else []

    def _tells_all(self, schema: Schema) -> bool:
        """Whether the schema lists all fields."""
        return self._declared and schema.closed

    def _members(self, schema: Schema, value: dict[str, Any], at: str) -> list[str]:
        found: list[str] = []
        for name, inner in value.items():
            here = at + describe((f"f:{name}",))
            if schema.type == "object" and name not in schema.fields and self._tells_all(schema):
                return found + self._fault(here, "field not declared in schema")  # upstream stops here too
            found += self.within(schema.child(name), inner, here)
        return found

    def _items(self, schema: Schema, value: list[Any], at: str) -> list[str]:
        found: list[str] = []
        items = schema.item_schema
        if not is_granular(schema, value):
            for index, item in enumerate(value):
                found += self.within(items, item, f"{at}[{index}]")
            return found
        seen: set[str] = set()
        for index, item in enumerate(value):
            if self._declared and (why := _unkeyed(schema, item)):
                return found + self._fault(at, f"element {index}: {why}")
            key = item_key(schema, item)
            path: Path = (key,)
            if key in seen:
                found.append(f"{at}: duplicate entries for key {describe(path)}")
            seen.add(key)
            found += self.within(items, item, at + describe(path))
        return found

    def _scalar(self, kind: str, value: Any, at: str) -> list[str]:
        if kind in _NUMERIC:
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                return self._fault(at, f"expected numeric (int or float), got {type_name(value)}")
        elif kind == "boolean":
            if not isinstance(value, bool):
                return self._fault(at, f"expected boolean, got &{{{plain(value)}}}")
        elif kind in _UNTYPED:
            if isinstance(value, (dict, list)):
                return self._fault(at, f"expected any scalar, got &{{{plain(value)}}}")
        elif not isinstance(value, str):
            return self._fault(at, f"expected string, got &value.valueUnstructured{{Value:{spelled(value)}}}")
        return []


def _unkeyed(schema: Schema, item: Any) -> str:
    """Why a list item has no valid key."""
    if schema.list_type == "map":
        if item is None:
            return "associative list with keys may not have a null element"
        if not isinstance(item, dict):
            return "associative list with keys may not have non-map elements"
        if item_key(schema, item) == "k:{}":
            keys = " ".join(f'"{key}"' for key in schema.map_keys)
            return (
                f"associative list with keys has an element that omits all key fields [{keys}] (and doesn't have default "
                "values for any key fields)"
            )
        return ""
    if isinstance(item, dict):
        return "associative list without keys has an element that's a map type"
    if isinstance(item, list):
        return "not supported: associative list with lists as elements"
    return "associative list without keys has an element that's an explicit null" if item is None else ""
