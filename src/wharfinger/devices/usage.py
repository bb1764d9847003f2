"""The devices in use: those of allocated claims, and those that the scheduler has chosen but not written yet.

Each claim counts once, under its UID: what was chosen for it, or what its status says, never both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from wharfinger.api.quantity import parse_nano
from wharfinger.devices.claims import device_id, results_of
from wharfinger.devices.slices import DeviceID, Document, PoolID

_NOTHING: Mapping[str, int] = {}


class DeviceUsage:
    """Devices given by admin access are not in use: others may have them too."""

    def __init__(self) -> None:
        self._held: dict[str, Sequence[Document]] = {}  # claim UID to its devices
        self._exclusive: dict[DeviceID, int] = {}  # devices in use as a whole, with the number of claims
        self._shares: dict[DeviceID, int] = {}  # number of shares
        self._consumed: dict[DeviceID, dict[str, int]] = {}  # capacity that shares take, in nano-units
        self._consumers: dict[DeviceID, int] = {}  # number of shares that take capacity

    def set(self, uid: str, allocation: Document | None) -> set[PoolID]:
        """Says which devices a claim has now; returns the pools in which something changed."""
        new = results_of(allocation)
        old = self._held.get(uid, ())
        if new == old or (not new and not old):
            return set()
        for result in old:
            self._count(result, -1)
        for result in new:
            self._count(result, 1)
        if new:
            self._held[uid] = new
        else:
            self._held.pop(uid, None)
        return {PoolID(*device_id(each)[:2]) for each in (*old, *new)}

    def held(self, uid: str) -> Sequence[Document]:
        """The devices of a claim."""
        return self._held.get(uid, ())

    def without(self, uids: Iterable[str]) -> DeviceUsage:
        """What is in use if these claims did not count."""
        return _UsageWithout(self, [each for uid in uids for each in self.held(uid)])

    def exclusive(self, device: DeviceID) -> bool:
        """Whether the device is in use as a whole."""
        return device in self._exclusive

    def shared(self, device: DeviceID) -> bool:
        return device in self._shares

    def in_use(self, device: DeviceID) -> bool:
        return device in self._exclusive or device in self._shares

    def consumed(self, device: DeviceID) -> Mapping[str, int]:
        """The capacity that is taken."""
        return self._consumed.get(device, _NOTHING)

    def _count(self, result: Document, sign: int) -> None:
        if result.get("adminAccess"):
            return
        device = device_id(result)
        if result.get("shareID") is None:
            _add(self._exclusive, device, sign)
            return
        _add(self._shares, device, sign)
        consumed: Mapping[str, str] | None = result.get("consumedCapacity")
        if consumed is None:
            return
        amounts = self._consumed.setdefault(device, {})
        for name, text in consumed.items():
            amounts[name] = amounts.get(name, 0) + sign * parse_nano(text)
        _add(self._consumers, device, sign)
        if device not in self._consumers:
            del self._consumed[device]


class _UsageWithout(DeviceUsage):
    """Another use of devices, less some of it."""

    def __init__(self, usage: DeviceUsage, results: Iterable[Document]) -> None:
        super().__init__()
        self._usage = usage
        for result in results:
            self._count(result, 1)

    def exclusive(self, device: DeviceID) -> bool:
        return self._usage._exclusive.get(device, 0) > self._exclusive.get(device, 0)

    def shared(self, device: DeviceID) -> bool:
        return self._usage._shares.get(device, 0) > self._shares.get(device, 0)

    def in_use(self, device: DeviceID) -> bool:
        return self.exclusive(device) or self.shared(device)

    def consumed(self, device: DeviceID) -> Mapping[str, int]:
        left = Counter(self._usage.consumed(device))
        left.subtract(self._consumed.get(device, _NOTHING))
        return left


def _add(counts: dict[DeviceID, int], device: DeviceID, sign: int) -> None:
    count = counts.get(device, 0) + sign
    if count:
        counts[device] = count
    else:
        counts.pop(device, None)
