"""Claims: a device of dynamic resource allocation belongs to at most one claim, and a pod is bound only when all its
claims are allocated and reserved for it."""

from __future__ import annotations

from collections.abc import Iterator

from wharfinger.api.registry import Document
from wharfinger.fuzz.history import PlainChange, PlainHistory, node_of, title
from wharfinger.fuzz.invariants.base import Invariant

_Device = tuple[str, str, str]
"""Driver, pool and name."""


class ClaimsHeldOnce(Invariant):
    name = "claims"
    kinds = ("resourceclaims", "pods")

    def __init__(self, history: PlainHistory) -> None:
        super().__init__(history)
        self._holders: dict[_Device, dict[str, str]] = {}  # the claims that a device belongs to: uid and title

    def changed(self, change: PlainChange) -> Iterator[str]:
        if change.plural == "resourceclaims":
            yield from self._claim_changed(change)
        elif change.plural == "pods":
            yield from self._pod_changed(change)

    def _claim_changed(self, change: PlainChange) -> Iterator[str]:
        before, after = change.before, change.after
        old, new = _devices(before), _devices(after)
        for device in old - new:
            self._holders.get(device, {}).pop((before or {})["metadata"]["uid"], None)
        for device in sorted(new):
            assert after is not None
            holders = self._holders.setdefault(device, {})
            holders[after["metadata"]["uid"]] = title(after)
            if device not in old and len(holders) > 1:
                yield f"the device {'/'.join(device)} belongs to the claims {', '.join(sorted(holders.values()))}"

    def _pod_changed(self, change: PlainChange) -> Iterator[str]:
        pod, before = change.after, change.before
        if pod is None or before is None or not node_of(pod) or node_of(before):
            return
        if self.history.placed_by(pod["metadata"]["uid"], node_of(pod)) is None:
            return
        for wanted in pod["spec"].get("resourceClaims") or ():
            name = wanted.get("resourceClaimName")
            claim = self.history.objects["resourceclaims"].get((pod["metadata"]["namespace"], name))
            if not name or claim is None:
                continue  # made from a template, or deleted since
            status = claim.get("status") or {}
            users = {each.get("uid") for each in status.get("reservedFor") or ()}
            if not status.get("allocation") or pod["metadata"]["uid"] not in users:
                yield f"pod {title(pod)} was bound, but its claim {name} is not reserved for it"

    def recount(self) -> Iterator[str]:
        plain: dict[_Device, dict[str, str]] = {}
        for claim in self.history.of("resourceclaims"):
            for device in _devices(claim):
                plain.setdefault(device, {})[claim["metadata"]["uid"]] = title(claim)
        if {device: held for device, held in self._holders.items() if held} != plain:
            yield f"the check counts {self._holders}, but the claims have {plain}"


def _devices(claim: Document | None) -> set[_Device]:
    allocation = ((claim or {}).get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    return {(each["driver"], each["pool"], each["device"]) for each in results}
