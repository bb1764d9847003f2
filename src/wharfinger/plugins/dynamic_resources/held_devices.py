"""Devices that stand-ins hold for the pods that will use them, such as those of a Reservation whose template has claims.

They are in use for everybody else. A pod that uses the stand-in takes them first. Its claims then have them too; for
capacity that several claims share, the stand-in holds only what its users leave.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from wharfinger.api.keys import ObjectKey
from wharfinger.api.quantity import format_nano, parse_nano
from wharfinger.devices.claims import Claim, device_id, results_of
from wharfinger.devices.held_record import Allocations
from wharfinger.devices.slices import DeviceID, Document, PoolID
from wharfinger.devices.usage import DeviceUsage
from wharfinger.framework.stand_ins import StandIn


class _Hold:
    """What one stand-in holds. One that is being moved has two, with the same UID."""

    __slots__ = ("name", "results", "uid")

    def __init__(self, stand_in: StandIn, allocations: Allocations) -> None:
        self.uid = stand_in.metadata.uid
        self.name = f"{stand_in.kind} {stand_in.object_name}"
        self.results = [result for each in allocations.values() for result in results_of(each)]


class HeldDevices:
    def __init__(self, usage: DeviceUsage, claim: Callable[[ObjectKey], Claim | None]) -> None:
        self.given: dict[ObjectKey, Allocations] = {}  # by assumed stand-in
        self._usage = usage
        self._claim = claim
        self._holds: dict[ObjectKey, _Hold] = {}
        self._of_uid: dict[str, dict[ObjectKey, _Hold]] = {}
        self._users: dict[str, dict[ObjectKey, Sequence[ObjectKey]]] = {}  # UID of the stand-in: pods and their claims
        self._used: dict[ObjectKey, str] = {}  # by such a pod
        self._uid_of: dict[ObjectKey, str] = {}  # by claim of such a pod

    def __bool__(self) -> bool:
        return bool(self._holds)

    # -- changes; all return the pools in which something changed

    def hold(self, key: ObjectKey, stand_in: StandIn, allocations: Allocations) -> set[PoolID]:
        """The stand-in is on a node and holds these devices."""
        hold = _Hold(stand_in, allocations)
        if not hold.results:
            return self.drop(key)
        self._forget(key)
        self._holds[key] = self._of_uid.setdefault(hold.uid, {})[key] = hold
        return self._count(key, hold)

    def drop(self, key: ObjectKey) -> set[PoolID]:
        return self._usage.set(_counted_as(key), None) if self._forget(key) else set()

    def _forget(self, key: ObjectKey) -> bool:
        hold = self._holds.pop(key, None)
        if hold is None:
            return False
        del self._of_uid[hold.uid][key]
        if not self._of_uid[hold.uid]:
            del self._of_uid[hold.uid]
        return True

    def use(self, pod: ObjectKey, uid: str, claims: Iterable[ObjectKey]) -> set[PoolID]:
        """A pod uses the stand-in with this UID, and these claims are its own."""
        self._used[pod] = uid
        known = self._users.setdefault(uid, {})[pod] = tuple(claims)
        self._uid_of.update(dict.fromkeys(known, uid))
        return self._recount(uid)

    def leave(self, pod: ObjectKey) -> set[PoolID]:
        """The pod uses no stand-in any more."""
        uid = self._used.pop(pod, None)
        if uid is None:
            return set()
        for claim in self._users[uid].pop(pod):
            self._uid_of.pop(claim, None)
        if not self._users[uid]:
            del self._users[uid]
        return self._recount(uid)

    def claim_changed(self, claim: ObjectKey) -> set[PoolID]:
        uid = self._uid_of.get(claim)
        return self._recount(uid) if uid is not None else set()

    def _recount(self, uid: str) -> set[PoolID]:
        changed: set[PoolID] = set()
        for key, hold in self._of_uid.get(uid, {}).items():
            if any("shareID" in each for each in hold.results):
                changed |= self._count(key, hold)
        return changed

    def _count(self, key: ObjectKey, hold: _Hold) -> set[PoolID]:
        """Devices that are held as a whole count beside those of the users: one is in use if anybody has it."""
        drawn = self._drawn(hold.uid)
        left = [each if "shareID" not in each else _less(each, drawn) for each in hold.results]
        return self._usage.set(_counted_as(key), {"devices": {"results": [each for each in left if each is not None]}})

    def _drawn(self, uid: str) -> dict[tuple[DeviceID, str], int]:
        """The shared capacity that the users of a stand-in have."""
        found: dict[tuple[DeviceID, str], int] = {}
        for claims in self._users.get(uid, {}).values():
            for key in claims:
                claim = self._claim(key)
                names = () if claim is None else (claim.uid, f"pending/{claim.uid}")
                for result in (each for name in names for each in self._usage.held(name)):
                    for name, amount in (result.get("consumedCapacity") or {}).items():
                        part = (device_id(result), name)
                        found[part] = found.get(part, 0) + parse_nano(amount)
        return found

    # -- questions

    def devices(self, uid: str) -> Collection[DeviceID]:
        """The devices that the stand-in with this UID holds."""
        return {device_id(each) for hold in self._of_uid.get(uid, {}).values() for each in hold.results}

    def opened(self, uid: str) -> DeviceUsage:
        """What is in use for a pod that uses this stand-in."""
        return self._usage.without(_counted_as(key) for key in self._of_uid.get(uid, {}))

    def holder(self, device: DeviceID) -> str:
        """The kind and name of the object that alone holds a device; empty if none does. Slow: for explanations."""
        for hold in self._holds.values():
            if any(device_id(each) == device for each in hold.results) and not self.opened(hold.uid).in_use(device):
                return hold.name
        return ""


def _counted_as(key: ObjectKey) -> str:
    return f"held/{'/'.join(key)}"


def _less(result: Document, drawn: dict[tuple[DeviceID, str], int]) -> Document | None:
    """The share without what is drawn from it, which is used up; None if nothing is left."""
    left = {}
    for name, text in (result.get("consumedCapacity") or {}).items():
        part = (device_id(result), name)
        amount = parse_nano(text)
        taken = min(amount, drawn.get(part, 0))
        if taken:
            drawn[part] -= taken
        if amount > taken:
            left[name] = format_nano(amount - taken, "decimal")
    return {**result, "consumedCapacity": left} if left or not result.get("consumedCapacity") else None
