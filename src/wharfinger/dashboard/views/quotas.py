"""Quota by namespace and resource, classes of devices included."""

from __future__ import annotations

from collections.abc import Iterable

from wharfinger.api.quantity import BadQuantity, parse_nano
from wharfinger.api.registry import Document


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
                }
            )
    return sorted(rows, key=lambda row: (row["namespace"], row["name"], row["resource"]))


def _percent(used: object, hard: object) -> int:
    try:
        total = parse_nano(str(hard))
        return round(100 * parse_nano(str(used)) / total) if total else 100
    except BadQuantity:
        return 0
