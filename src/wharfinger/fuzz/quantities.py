"""Amounts of resources in plain code: quantities as whole thousandths, and what a pod asks for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from wharfinger.api.registry import Document

_SUFFIXES = {
    "m": 1,
    "": 1000,
    "k": 1000**2,
    "M": 1000**3,
    "G": 1000**4,
    "T": 1000**5,
    "Ki": 1000 * 1024,
    "Mi": 1000 * 1024**2,
    "Gi": 1000 * 1024**3,
    "Ti": 1000 * 1024**4,
}

Milli = dict[str, int]
"""Amounts in thousandths by resource name."""


@lru_cache(maxsize=4096)
def milli(text: str) -> int:
    """Only whole numbers with a suffix: what the generator writes, and what components make of that."""
    digits = text.rstrip("mkMGTi")
    if "." in digits:
        whole, _, part = digits.partition(".")
        return int(whole or 0) * _SUFFIXES[text[len(digits) :]] + int(
            int(part) * _SUFFIXES[text[len(digits) :]] // 10 ** len(part)
        )
    return int(digits) * _SUFFIXES[text[len(digits) :]]


def amounts(quantities: Mapping[str, Any] | None) -> Milli:
    return {name: milli(str(each)) for name, each in (quantities or {}).items()}


def add(total: Milli, more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def total(several: Iterable[Mapping[str, int]]) -> Milli:
    found: Milli = {}
    for each in several:
        add(found, each)
    return found


def _requests(container: Document) -> Milli:
    resources = container.get("resources") or {}
    return amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def pod_requests(spec: Document) -> Milli:
    """What a pod asks for: all containers together, or the largest init container if that is more; plus overhead."""
    total: Milli = {}
    for container in spec.get("containers") or ():
        add(total, _requests(container))
    largest: Milli = {}
    for container in spec.get("initContainers") or ():
        for name, amount in _requests(container).items():
            largest[name] = max(largest.get(name, 0), amount)
    for name, amount in largest.items():
        total[name] = max(total.get(name, 0), amount)
    add(total, amounts(spec.get("overhead")))
    return total


def counted_requests(pod: Document) -> Milli:
    """What a pod on a node counts for at least: what it asks for, but while a resize is under way, what it has if that
    is less."""
    wanted = pod_requests(pod["spec"])
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    if len(statuses) < len(pod["spec"]["containers"]) or any(each.get("resources") is None for each in statuses):
        return wanted
    given = total(amounts(each["resources"].get("requests")) for each in statuses)
    return {name: min(amount, given.get(name, 0)) for name, amount in wanted.items()}


def host_ports(spec: Document) -> set[tuple[str, int]]:
    return {
        (str(port.get("protocol") or "TCP"), int(port["hostPort"]))
        for container in spec.get("containers") or ()
        for port in container.get("ports") or ()
        if port.get("hostPort")
    }


def exceeding(used: Mapping[str, int], limit: Mapping[str, int], names: Iterable[str]) -> list[str]:
    """The named resources of which more is used than there is."""
    return sorted(name for name in names if used.get(name, 0) > limit.get(name, 0))
