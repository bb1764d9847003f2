"""Access to malformed documents: a value of the wrong type reads as absent, and writes into it are lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from wharfinger.api.quantity import BadQuantity, canonical, canonical_milli
from wharfinger.api.registry import DefaultFn, Document


def child(owner: Any, name: str) -> Document:
    """The object under a name; a new one, not attached to `owner`, if there is none."""
    value = owner.get(name) if isinstance(owner, dict) else None
    return value if isinstance(value, dict) else {}


def value_at(document: Any, path: str) -> Any:
    """The value at a path of field names with dots; None where there is none."""
    found = document
    for part in path.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def made_child(owner: Document, name: str) -> Document:
    """The object under a name, created if absent."""
    if owner.get(name) is None:
        owner[name] = {}
    return child(owner, name)


def children(owner: Any, name: str) -> Sequence[Document]:
    """The objects of a list under a name."""
    value = owner.get(name) if isinstance(owner, dict) else None
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else ()


def restore(new: Document, old: Document, part: str, name: str) -> None:
    """Puts a member of `metadata`, `spec` or `status` back to its old value, or to its absence."""
    before = old.get(part) or {}
    if name in before:
        new[part] = {**(new.get(part) or {}), name: before[name]}
    elif new.get(part):
        new[part].pop(name, None)


def fill(owner: Document, **values: Any) -> None:
    """Sets absent members. Values are not copied."""
    for name, value in values.items():
        if owner.get(name) is None:
            owner[name] = value


def fill_text(owner: Document, **values: str) -> None:
    """Sets strings that are absent or empty, which Go cannot tell apart."""
    for name, value in values.items():
        if owner.get(name) in (None, ""):
            owner[name] = value


def fill_number(owner: Document, **values: int) -> None:
    """Sets numbers that are absent or zero."""
    for name, value in values.items():
        current = owner.get(name)
        if current is None or (current == 0 and not isinstance(current, (bool, str))):
            owner[name] = value


def canonical_quantities(owner: Any, *names: str) -> None:
    """Rewrites quantities in the form that API servers store: rounded to thousandths, with the largest suffix."""
    for name in names:
        quantities = child(owner, name)
        for key, quantity in quantities.items():
            if isinstance(quantity, (str, int, float)) and not isinstance(quantity, bool):
                try:
                    quantities[key] = canonical_milli(quantity)
                except (BadQuantity, ValueError, OverflowError):
                    continue  # validation reports it


_encode = msgspec.json.Encoder().encode


def drop_nulls(value: Any) -> None:
    """Removes null members in place; to Kubernetes they are absent."""
    try:
        if b"null" not in _encode(value):
            return  # much faster than a walk
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        pass
    _drop_nulls(value)


def _drop_nulls(value: Any) -> None:
    if isinstance(value, dict):
        items = value.values()
        if None in items:
            for name in [name for name, item in value.items() if item is None]:
                del value[name]
        for item in items:
            if type(item) is dict or type(item) is list:
                _drop_nulls(item)
    elif isinstance(value, list):
        for item in value:
            if type(item) is dict or type(item) is list:
                _drop_nulls(item)


def canonical_quantity(owner: Document, *fields: str) -> None:
    """Writes single quantities as an API server stores them."""
    for field in fields:
        value = owner.get(field)
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            try:
                owner[field] = canonical(value)
            except (BadQuantity, ValueError, OverflowError):
                continue  # validation reports it


def with_status(**counts: int) -> DefaultFn:
    """`prepare_create` of a kind whose status starts with these counters, which Go writes even if they are zero."""

    def prepare(document: Document) -> None:
        document["status"] = dict(counts)

    return prepare


def typed(fill_in: DefaultFn | None = None) -> DefaultFn:
    """`default` of a built-in kind, whose null members are dropped."""

    def default(document: Document) -> None:
        drop_nulls(document)
        if fill_in is not None:
            fill_in(document)

    return default
