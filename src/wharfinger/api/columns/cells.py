"""Columns and cells that many kinds share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from wharfinger.api.registry import Column, Document
from wharfinger.api.selectors import BadSelector, LabelSelector, compile_label_selector
from wharfinger.api.times import BadTime, human_duration, parse_time

NONE = "<none>"
UNSET = "<unset>"
UNKNOWN = "<unknown>"

AGE = Column("Age", "metadata.creationTimestamp", "date")
CREATED_AT = Column("Created At", "metadata.creationTimestamp")
"""For kinds without columns of their own."""

Cell = Callable[[Document], Any]


def computed(name: str, cell: Cell, *, type: str = "string", wide: bool = False) -> Column:
    """A column whose cell does not depend on the time."""
    return Column(name, type=type, priority=1 if wide else 0, cell=lambda document, now: cell(document))


def spec(document: Document) -> Document:
    return document.get("spec") or {}


def status(document: Document) -> Document:
    return document.get("status") or {}


def since(time: str | None, now: float) -> str:
    if not time:
        return UNKNOWN
    try:
        return human_duration(now - parse_time(time))
    except BadTime:
        return UNKNOWN


def condition(document: Document, kind: str) -> Document | None:
    return next((one for one in status(document).get("conditions") or () if one.get("type") == kind), None)


def has_condition(document: Document, kind: str) -> bool:
    found = condition(document, kind)
    return found is not None and found.get("status") == "True"


def labels_text(labels: dict[str, str] | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or NONE


def selector_text(selector: Document | None) -> str:
    """A label selector in text form: `a=b,c in (d,e),!f`."""
    if selector is None:
        return NONE
    try:
        requirements = compile_label_selector(msgspec.convert(selector, LabelSelector))
    except (BadSelector, msgspec.ValidationError):
        return "<error>"
    return ",".join(sorted(each.text() for each in requirements)) or NONE


def template_columns(template: Callable[[Document], Document], selector: Cell | None) -> tuple[Column, ...]:
    """The wide columns of kinds with a pod template."""

    def joined(field: str) -> Cell:
        return lambda document: ",".join(
            str(container.get(field, "")) for container in spec(template(document)).get("containers") or ()
        )

    columns = (computed("Containers", joined("name"), wide=True), computed("Images", joined("image"), wide=True))
    return columns if selector is None else (*columns, computed("Selector", selector, wide=True))
