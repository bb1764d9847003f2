"""Quota by namespace and resource, classes of devices included."""

from __future__ import annotations

from collections.abc import Iterable

from wharfinger.api.quantity import NANO, BadQuantity, family, parse_nano
from wharfinger.api.registry import Document

_UNITS = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))


def quota_rows(quotas: Iterable[Document]) -> list[Document]:
    rows = []
    for quota in quotas:
        status = quota.get("status") or {}
        used = status.get("used") or {}
        for resource, hard in (status.get("hard") or (quota.get("spec") or {}).get("hard") or {}).items():
            rows.append(
                {
                    "namespace": quota["metadata"]["namespace"],
                    "name": quota["metadata"]["name"],
                    "resource": resource,
                    "hard": str(hard),
                    "used": str(used.get(resource, 0)),
                    "percent": _percent(used.get(resource, 0), hard),
                    "text": f"{readable(used.get(resource, 0), hard)} of {readable(hard, hard)}",
                }
            )
    return sorted(rows, key=lambda row: (row["namespace"], row["name"], row["resource"]))


def readable(quantity: object, like: object) -> str:
    """A quantity for people, such as `21.6` for `21600m`, in the family of units of another one."""
    try:
        amount = parse_nano(str(quantity)) / NANO
        if family(str(like)) != "binary":
            return _trimmed(amount)
    except BadQuantity:
        return str(quantity)
    for unit, size in _UNITS:
        if amount >= size:
            return f"{_trimmed(amount / size)} {unit}"
    return _trimmed(amount)


def _trimmed(amount: float) -> str:
    return f"{amount:,.1f}".removesuffix(".0") if amount >= 10 else f"{amount:.3g}"


def _percent(used: object, hard: object) -> int:
    try:
        total = parse_nano(str(hard))
        return round(100 * parse_nano(str(used)) / total) if total else 100
    except BadQuantity:
        return 0
