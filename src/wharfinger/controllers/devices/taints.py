"""Which device taints make a pod leave, and when; the condition of a DeviceTaintRule. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from wharfinger.api.defaults.devices import allocation_results
from wharfinger.api.registry import Document
from wharfinger.api.times import parse_time
from wharfinger.devices.claims import tolerates

NO_EXECUTE = "NoExecute"
EVICTION_IN_PROGRESS = "EvictionInProgress"
PoolKey = tuple[str, str]
"""Driver and pool."""


class DeviceEviction(NamedTuple):
    """When a pod must leave, and the names of the rules that are part of the reason."""

    at: float
    rules: frozenset[str]


def pool_key(slice: Document) -> PoolKey:
    spec = slice.get("spec") or {}
    return spec.get("driver") or "", (spec.get("pool") or {}).get("name") or ""


def current_slices(slices: Iterable[Document]) -> list[Document]:
    """The slices of a pool's newest generation."""
    found = list(slices)
    newest = max((_generation(each) for each in found), default=0)
    return [each for each in found if _generation(each) == newest]


def _generation(slice: Document) -> int:
    return int(((slice.get("spec") or {}).get("pool") or {}).get("generation") or 0)


def devices_of(slices: Iterable[Document]) -> Iterator[Document]:
    for slice in slices:
        yield from (slice.get("spec") or {}).get("devices") or ()


def evicts(taint: Document) -> bool:
    return taint.get("effect") == NO_EXECUTE


def rule_taint(rule: Document) -> Document:
    return (rule.get("spec") or {}).get("taint") or {}


def selects(rule: Document, driver: str, pool: str, device: str) -> bool:
    """Whether a DeviceTaintRule taints a device; a rule without a selector taints none."""
    chosen = (rule.get("spec") or {}).get("deviceSelector")
    if chosen is None:
        return False
    wanted = (("driver", driver), ("pool", pool), ("device", device))
    return all(chosen.get(name) is None or chosen[name] == value for name, value in wanted)


def selects_result(rule: Document, result: Document) -> bool:
    return selects(rule, result.get("driver") or "", result.get("pool") or "", result.get("device") or "")


def eviction(
    claim: Document, pools: Mapping[PoolKey, Iterable[Document]], rules: Iterable[Document]
) -> DeviceEviction | None:
    """When pods that use the claim must leave because of NoExecute taints of its devices.

    `pools` are the slices of each pool, and `rules` those with the effect NoExecute.
    """
    times, reasons = [], set()
    for result in allocation_results(claim):
        taints: list[tuple[Document, str]] = []
        slices = pools.get((result.get("driver") or "", result.get("pool") or ""), ())
        for device in devices_of(current_slices(slices)):
            if device.get("name") == result.get("device"):
                taints += [(taint, "") for taint in device.get("taints") or () if evicts(taint)]
                break
        taints += [(rule_taint(rule), rule["metadata"]["name"]) for rule in rules if selects_result(rule, result)]
        for taint, rule in taints:
            at = _leaves_at(result, taint)
            if at is not None:
                times.append(at)
                reasons.add(rule)
    return DeviceEviction(min(times), frozenset(reasons - {""})) if times else None


def _leaves_at(result: Document, taint: Document) -> float | None:
    """When a taint of an allocated device takes effect; None if it is tolerated for ever."""
    added = parse_time(taint["timeAdded"]) if taint.get("timeAdded") else 0.0
    seconds: int | None = None
    for toleration in result.get("tolerations") or ():
        if toleration.get("effect") == NO_EXECUTE and tolerates(toleration, taint):
            given = toleration.get("tolerationSeconds")
            if given is None:
                return None
            seconds = max(given, 0) if seconds is None else min(seconds, max(given, 0))
    return added + (seconds or 0)


class RuleEffect(NamedTuple):
    """What a DeviceTaintRule does, or would do with the effect NoExecute."""

    published: int  # devices in slices
    allocated: int  # devices of claims
    pods: int
    namespaces: int
    evicted: int  # pods since the controller started


def rule_condition(effect: str, found: RuleEffect) -> tuple[bool, str, str]:
    """Status, reason and message of the condition EvictionInProgress."""
    status, reason, message = False, "OtherEffect", "Eviction only happens for the NoExecute effect."
    if effect == NO_EXECUTE:
        message = ""
        reason = "Completed" if found.evicted else "NotStarted"
        if found.pods:
            status, reason = True, "PodsPendingEviction"
            message = f"{_counted(found.pods, 'pod needs', 'pods need')} to be evicted in {_spaces(found)}."
    elif effect == "None":
        reason = "NoEffect"
        message = (
            f"{_counted(found.published, 'published device', 'published devices')} selected. "
            f"{_counted(found.allocated, 'allocated device', 'allocated devices')} selected. "
            f"{_counted(found.pods, 'pod', 'pods')} would be evicted in {_spaces(found)} if the effect was NoExecute. "
            "This information will not be updated again. Recreate the DeviceTaintRule to trigger an update."
        )
    if found.evicted:
        evicted = f"{_counted(found.evicted, 'pod', 'pods')} evicted since starting the controller."
        message = f"{message} {evicted}" if message else evicted
    return status, reason, message


def _counted(count: int, one: str, several: str) -> str:
    return f"{count} {one if count == 1 else several}"


def _spaces(found: RuleEffect) -> str:
    return _counted(found.namespaces, "namespace", "different namespaces")
