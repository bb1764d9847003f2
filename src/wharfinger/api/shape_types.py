"""Shapes as types of msgspec, so that a document with nothing wrong in it is looked through in C.

Says only whether a value fits; what is wrong with one that does not, `shapes.check` finds out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from wharfinger.api.quantity import parse_nano
from wharfinger.api.times import parse_time

if TYPE_CHECKING:
    from wharfinger.api.shapes import Shape

Fits = Callable[["Shape", Any], bool]


class _Quantity:
    """Stands for a quantity, in any of the forms that JSON has for one."""


class _Time:
    """Stands for the text of a time."""


_known_time = lru_cache(4096)(parse_time)  # many objects are written in the same second
_A_QUANTITY, _A_TIME = _Quantity(), _Time()
_SCALARS: dict[str, Any] = {
    "string": str,
    "boolean": bool,
    "int32": Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)],
    "int64": Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)],
    "number": float,
    "int-or-string": int | str,
    "quantity": _Quantity,
    "time": _Time,
    "any": Any,
}


class Typed:
    """One shape and all that it holds, as types. What refers back to itself is left to `otherwise`."""

    def __init__(self, shape: Shape, otherwise: Fits) -> None:
        self._otherwise = otherwise
        self._structs: dict[int, Any] = {}
        self._open: set[int] = set()
        self._left: dict[type, Shape] = {}  # stand-ins for shapes that only `otherwise` looks at
        self._type = self._made(shape)

    def fits(self, value: Any) -> bool:
        """Whether nothing is wrong with a value; a doubt is a no."""
        try:
            msgspec.convert(value, self._type, dec_hook=self._read)
        except (msgspec.ValidationError, ValueError, OverflowError, TypeError):
            return False
        return True

    def _read(self, wanted: type, value: Any) -> Any:
        if wanted is _Quantity:
            parse_nano(value)
            return _A_QUANTITY
        if wanted is _Time:
            if not isinstance(value, str):
                raise TypeError
            _known_time(value)
            return _A_TIME
        if not self._otherwise(self._left[wanted], value):
            raise ValueError
        return wanted()

    def _made(self, shape: Shape) -> Any:
        if shape.type == "object":
            return self._struct(shape)
        if shape.item is not None:
            inner = self._made(shape.item)
            return list[inner] if shape.type == "list" else dict[str, inner | None]  # type: ignore[valid-type]  # made here
        return _SCALARS.get(shape.type) or self._stand_in(shape)

    def _struct(self, shape: Shape) -> Any:
        found = self._structs.get(id(shape))
        if found is not None:
            return found
        if id(shape) in self._open:
            return self._stand_in(shape)
        self._open.add(id(shape))
        names = {f"f{number}": name for number, name in enumerate(shape.fields)}
        fields = [
            (field, self._made(shape.fields[name]) | None, None)  # null is absent
            for field, name in names.items()
        ]
        self._open.remove(id(shape))
        made = msgspec.defstruct("Shape", fields, rename=names, gc=False)
        self._structs[id(shape)] = made
        return made

    def _stand_in(self, shape: Shape) -> Any:
        made = type("StandIn", (), {})
        self._left[made] = shape
        return made
