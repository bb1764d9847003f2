"""Schemas as msgspec types, so that a correct document is checked in C.

A type only tells whether a value fits; what is wrong with one that does not is found by a walk over the schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar

import msgspec

from wharfinger.api.schema.tree import Schema

_INTEGERS: dict[str, Any] = {
    f"int{bits}": Annotated[int, msgspec.Meta(ge=-(1 << bits - 1), le=(1 << bits - 1) - 1)] for bits in (32, 64)
}
_SCALARS: dict[str, Any] = {
    **_INTEGERS,
    "string": str,
    "boolean": bool,
    "number": float,
    "int-or-string": int | str,
    "any": Any,
}


class QuantityValue:
    """Marks a quantity, in any of the JSON forms of one; the decoding hook parses it."""


class TimeValue:
    """Marks the text of a time; the decoding hook parses it."""


class UncheckedValue:
    """Marks a value that has no msgspec type: base64 data, and schemas that contain themselves."""

    schema: ClassVar[Schema]


class TypeCompiler:
    """Makes msgspec types of schemas and keeps them there, by purpose."""

    def __init__(self, purpose: str, scalars: Mapping[str, Any], *, strict: bool) -> None:
        """A strict type refuses unknown fields and takes null for any value."""
        self._purpose = purpose
        self._scalars = {**_SCALARS, **scalars}
        self._strict = strict
        self._open: set[int] = set()  # schemas being compiled

    def type_of(self, schema: Schema) -> Any:
        made = schema.compiled.get(self._purpose)
        if made is None:
            if id(schema) in self._open:
                return Any if self._strict else _unchecked(schema)
            self._open.add(id(schema))
            made = schema.compiled[self._purpose] = self._compile(schema)
            self._open.remove(id(schema))
        return made

    def _compile(self, schema: Schema) -> Any:
        if schema.preserves or schema.embedded:
            return dict[str, Any] if schema.type in ("object", "map") else Any
        match schema.type:
            case "object" if schema.fields:
                return self._struct(schema)
            case "object":
                return dict[str, Any]
            case "map":
                values = self.type_of(schema.item_schema) | None
                return dict[str, values]  # type: ignore[valid-type]  # a type made at run time
            case "list":
                items = self.type_of(schema.item_schema)
                return list[items | None] if self._strict else list[items]  # type: ignore[valid-type]  # as above
            case "string" if schema.format == "date-time" and self._strict:
                return self._scalars["time"]
        return self._scalars.get(schema.type) or _unchecked(schema)

    def _struct(self, schema: Schema) -> Any:
        fields = [
            (f"f{index}", self.type_of(part) | None, msgspec.field(default=None, name=name))
            for index, (name, part) in enumerate(schema.fields.items())
        ]
        name = schema.name.rpartition(".")[2] or "Inline"
        return msgspec.defstruct(name, fields, forbid_unknown_fields=self._strict, gc=False)


def _unchecked(schema: Schema) -> Any:
    return type("Unchecked", (UncheckedValue,), {"schema": schema})


_SIMPLE_QUANTITY = (
    r"^[+-]?([0-9]{1,12}\.?[0-9]{0,9}|\.[0-9]{1,9})([numkMGTPE]|[KMGTPE]i)?$"  # surely valid; others are parsed
)
JSON_TYPES = TypeCompiler(
    "json",
    {
        "quantity": Annotated[str, msgspec.Meta(pattern=_SIMPLE_QUANTITY)] | int | float,
        "time": Annotated[datetime, msgspec.Meta(tz=True)],
        "bytes": bytes,
    },
    strict=True,
)
"""For request bodies: what one of these types decodes has no unknown fields and no wrong types."""
VALUE_TYPES = TypeCompiler("value", {"quantity": QuantityValue, "time": TimeValue}, strict=False)
"""For documents in memory, with `msgspec.convert`: null is absent, and unknown fields pass."""
